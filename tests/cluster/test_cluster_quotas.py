"""Test quotas in a cluster: any broker accepts a change, and all brokers follow it."""

from __future__ import annotations

import time

from broker.wire import messages
from cluster import Cluster
from support.kafka_client import KafkaClient

Alter = messages.AlterClientQuotasRequest


def described(server: str) -> dict[str, float]:
    """Ask one broker for all quotas of its only entity."""
    with KafkaClient(server) as client:
        answer = client.call("DescribeClientQuotas", components=[], strict=False)
    assert answer.error_code == 0
    return {one.key: one.value for entry in answer.entries for one in entry.values}


def test_every_broker_follows_a_change_also_after_its_restart() -> None:
    """The last broker makes the change; the others get it soon, and a restarted broker at once."""
    with Cluster.start(brokers=3, log_dirs=1) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        with KafkaClient(servers[2]) as client:
            entry = Alter.EntryData(
                [Alter.EntityData("user", "alice")],
                [Alter.OpData("producer_byte_rate", 1e6, False)],
            )
            (row,) = client.call("AlterClientQuotas", entries=[entry]).entries
            assert row.error_code == 0, row.error_message
        wanted = {"producer_byte_rate": 1e6}
        deadline = time.monotonic() + 20
        for server in servers:
            while (found := described(server)) != wanted:
                assert time.monotonic() < deadline, found
        cluster.kill(1)
        cluster.restart(1)
        assert described(cluster.bootstrap_servers.split(",")[0]) == wanted
