"""Store in the log dirs that their broker is one of a cluster.

    cluster.zookeeper    [the servers and the path, such as "zk:2181/demo"]

Without this fact, a broker that is started without its ZooKeeper would serve its replicas alone,
and the cluster would not know the new records.
"""

from __future__ import annotations

import logging

from broker.catalog import dir_facts
from logstore import LogStore, LogStoreError

LOG = logging.getLogger("broker")
FACT = "cluster.zookeeper"


def remember_cluster(store: LogStore, zookeeper: str) -> None:
    """Store the ZooKeeper of the cluster in every log dir that works."""
    if dir_facts.values(store, FACT) == [[zookeeper]] * len(store.log_dirs):
        return
    try:
        dir_facts.remember(store, FACT, [zookeeper])
    except LogStoreError as error:  # the next start tries again
        LOG.warning("the log dirs do not store the address of their cluster: %s", error)


def cluster_of(store: LogStore) -> str:
    """Return the ZooKeeper of the broker's cluster; "" if the broker was never in a cluster."""
    for value in dir_facts.values(store, FACT):
        match value:
            case [str(zookeeper)]:
                return zookeeper
    return ""
