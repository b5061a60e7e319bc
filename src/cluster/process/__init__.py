"""Runs one broker of a cluster as a process of its own, over ZooKeeper."""
