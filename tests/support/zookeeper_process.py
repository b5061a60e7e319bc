"""Run a real ZooKeeper, as the demo of the cluster does."""

from benchmarks.cluster.zookeeper import TICK_MS, ZooKeeperProcess, free_port, zookeeper

__all__ = ["TICK_MS", "ZooKeeperProcess", "free_port", "zookeeper"]
