"""Test which session timeout ZooKeeper grants."""

from __future__ import annotations

import socket

import pytest

from cluster.zookeeper_timeout import granted_timeout_ms
from support.zookeeper_process import TICK_MS, ZooKeeperProcess, free_port

SECONDS = 60.0


@pytest.mark.parametrize(
    ("wished", "granted"), [(1, 2 * TICK_MS), (5_000, 5_000), (9_000_000, 600_000)]
)
def test_a_timeout_is_kept_in_its_limits(
    server: ZooKeeperProcess, wished: int, granted: int
) -> None:
    """The limits are two ticks and ten minutes; a server that is gone is skipped."""
    servers = f"127.0.0.1:{free_port()},{server.hosts}"
    assert granted_timeout_ms(servers, wished, SECONDS) == granted


def test_no_server_answers() -> None:
    """One port refuses, and at the other there is a program that is not ZooKeeper."""
    with pytest.raises(OSError, match="Connection refused"):
        granted_timeout_ms(f"127.0.0.1:{free_port()}", 1, SECONDS)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(OSError, match="timed out"),
    ):
        granted_timeout_ms(f"127.0.0.1:{silent.getsockname()[1]}", 1, 0.05)
