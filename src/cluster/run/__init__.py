"""Run the rules of `cluster.pure` on real brokers: connections, logs, threads, timers."""
