"""Test that a configuration is checked before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from broker import BrokerConfig
from broker.listener_config import Endpoint, parse_endpoints
from logstore import LogConfig


def test_the_listener_of_brokers_has_its_own_limit_only_if_clients_have_another() -> None:
    """Otherwise, clients could have twice as many connections."""
    two: dict[str, Any] = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "inter_broker_listener_name": "b",
    }
    cluster: dict[str, Any] = {"zookeeper_connect": "127.0.0.1:2181"}
    assert BrokerConfig(**two, **cluster).peer_listener == "B"
    assert BrokerConfig(**two).peer_listener == ""
    assert BrokerConfig(listeners="A://127.0.0.1:1", **cluster).peer_listener == ""


def test_listeners_are_read() -> None:
    """Several listeners, names, IPv6 addresses and empty hosts can be read."""
    text = "PLAINTEXT://127.0.0.1:9092, INSIDE://[::1]:0,ALL://:9093"
    found = parse_endpoints(text, "listeners")
    assert found == (
        Endpoint("PLAINTEXT", "127.0.0.1", 9092),
        Endpoint("INSIDE", "::1", 0),
        Endpoint("ALL", "", 9093),
    )
    assert [str(one) for one in found] == [one.strip() for one in text.split(",")]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"listeners": "127.0.0.1:9092"}, ValueError, "listeners"),
    ({"listeners": "A://h:99999"}, ValueError, "99999"),
    ({"listeners": "A://h:1,A://h:2"}, ValueError, "same name"),
    ({"advertised_listeners": "OTHER://h:1"}, ValueError, "no listener 'OTHER'"),
    ({"advertised_listeners": "PLAINTEXT://h:0"}, ValueError, "no client can connect"),
    ({"advertised_listeners": "PLAINTEXT://b1..example.com:1"}, ValueError, "is not a host name"),
    ({"listeners": f"PLAINTEXT://{'a' * 64}:1"}, ValueError, "is not a host name"),
    ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, ValueError, "no client can connect"),
    ({"num_partitions": 0}, ValueError, "num_partitions=0"),
    ({"num_partitions": "three"}, ValueError, "num_partitions"),
    ({"num_partitions": True}, TypeError, "num_partitions"),
    ({"auto_create_topics_enable": 1}, TypeError, "auto_create_topics_enable"),
    ({"log_config": {}}, TypeError, "log_config"),
    ({"log_config": LogConfig()}, ValueError, "record_format='kafka'"),
    ({"queued_max_request_bytes": "1MiB"}, ValueError, "socket_request_max_bytes"),
    ({"num.partitions": 3}, TypeError, "did you mean 'num_partitions'"),
    ({"zookeeper_quorum": "h"}, TypeError, "zookeeper_quorum"),
]


@pytest.mark.parametrize(("settings", "error", "text"), WRONG)
def test_a_wrong_setting_is_named(
    settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error for a wrong setting names the setting and the problem."""
    with pytest.raises(error, match=text):
        BrokerConfig.of(settings)


def test_sizes_and_durations_may_be_text() -> None:
    """Sizes and durations may be texts such as "64MiB" and "30s"."""
    config = BrokerConfig.of({"socket_request_max_bytes": "1MiB", "connections_max_idle_ms": "9s"})
    assert (config.socket_request_max_bytes, config.connections_max_idle_ms) == (1 << 20, 9000)
    assert BrokerConfig.of(config) is config and BrokerConfig.of(None) == BrokerConfig()
