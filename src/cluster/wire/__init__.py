"""Write the requests between brokers as Kafka's messages, and read and check such messages."""
