"""Run a whole cluster in this process, for tests of programs that use Kafka's clients."""
