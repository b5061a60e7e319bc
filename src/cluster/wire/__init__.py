"""Write the requests between brokers as Kafka's messages, and read them back, checked."""
