"""Run a whole cluster in this process, to test programs that use Kafka's clients."""
