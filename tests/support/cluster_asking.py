"""Ask the brokers of a cluster, and wait for something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cluster import Cluster
from support.kafka_client import KafkaClient

SECONDS = 60.0


def until(is_done: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + SECONDS
    while not is_done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def running(cluster: Cluster) -> dict[int, str]:
    """Map the brokers in the metadata to their addresses."""
    with KafkaClient(cluster.bootstrap_servers) as client:
        brokers = client.call("Metadata", topics=[]).brokers
    return {one.node_id: f"{one.host}:{one.port}" for one in brokers}


def coordinator_of(cluster: Cluster, name: str, key_type: int = 1) -> tuple[int, str]:
    """Ask for the coordinator until there is one; return its id and address."""
    deadline = time.monotonic() + SECONDS
    while True:
        with KafkaClient(cluster.bootstrap_servers) as client:
            answer = client.call("FindCoordinator", 4, key_type=key_type, coordinator_keys=[name])
        (row,) = answer.coordinators
        if not row.error_code:
            return row.node_id, f"{row.host}:{row.port}"
        assert time.monotonic() < deadline, row


def stable(client: KafkaClient, number: int) -> int:
    """Return the last stable offset of a partition; -1 if this broker does not serve it."""
    row = client.fetch("t", 0, partition=number, isolation_level=1)
    return -1 if row.error_code else int(row.last_stable_offset)
