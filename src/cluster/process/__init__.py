"""Run one broker of a cluster as a separate process, over ZooKeeper."""
