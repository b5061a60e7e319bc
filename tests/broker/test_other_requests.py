"""Test the first requests of clients, and requests about settings and coordinators."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog.settings import FIXED, KEYS
from broker.config import KAFKA_LOG_CONFIG
from broker.requests.dispatcher import HANDLERS
from broker.requests.services import MILESTONES
from broker.wire import messages
from broker.wire.frames import decode_response
from broker.wire.versions import ApiVersions
from support.kafka_client import KafkaClient


def test_each_announced_api_has_a_handler() -> None:
    """Clients hang, or refuse to start, if a broker lacks an announced API."""
    assert sorted(HANDLERS) == [row.key for row in ApiVersions(MILESTONES).announced]


@pytest.mark.parametrize("version", range(5))
def test_api_versions(client: KafkaClient, version: int) -> None:
    """Every version lists the same APIs; Produce is listed from version 0 on."""
    names = {"client_software_name": "my-client", "client_software_version": "1.0"}
    answer = client.call("ApiVersions", version, **names)
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert answer.error_code == 0 and rows[0] == (0, 13) and rows[1] == (4, 18)
    assert sorted(rows) == sorted(HANDLERS)


def test_an_unknown_version_is_answered_in_version_0(client: KafkaClient) -> None:
    """The answer has error 35, and the versions of ApiVersions itself."""
    body = struct.pack(">hhih", 18, 99, 7, 3) + b"raw" + b"unreadable"
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    number, answer = decode_response(18, 0, client.read_frame())
    assert (number, answer.error_code) == (7, 35)
    assert [tuple(row) for row in answer.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("ä", "1")])
def test_a_bad_software_name_is_refused(client: KafkaClient, name: str, version: str) -> None:
    """A bad software name gets error 42."""
    fields = {"client_software_name": name, "client_software_version": version}
    assert client.call("ApiVersions", 3, **fields).error_code == 42


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (3, 14), (38, 0), (999, 0), (-1, 0)])
def test_an_unknown_request_ends_the_connection(
    client: KafkaClient, key: int, version: int
) -> None:
    """This includes the versions of Produce that are announced only for librdkafka."""
    body = struct.pack(">hhih", key, version, 7, -1) + bytes(20)
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    assert client.is_closed_by_broker


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_its_own_id(client: KafkaClient, version: int) -> None:
    """The epoch is 0, even if the producer names its present id."""
    fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1000}
    answers = [client.call("InitProducerId", version, **fields) for _ in range(3)]
    ids = [answer.producer_id for answer in answers]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    if version >= 3:
        again = client.call(
            "InitProducerId", version, **fields, producer_id=ids[0], producer_epoch=0
        )
        assert (again.producer_id, again.producer_epoch) == (ids[2] + 1, 0)
        half = client.call("InitProducerId", version, **fields, producer_id=ids[0])
        assert half.error_code == 42
    fields["transactional_id"] = ""
    refused = client.call("InitProducerId", version, **fields)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (42, -1, -1)


@pytest.mark.parametrize("version", range(7))
def test_the_broker_coordinates_groups(client: KafkaClient, broker: Broker, version: int) -> None:
    """The broker names itself, with the address of the client's listener."""
    answer = client.call("FindCoordinator", version, key="k", coordinator_keys=["k", "l"])
    rows = answer.coordinators if version >= 4 else [answer]
    assert {(row.error_code, row.node_id) for row in rows} == {(0, 0)}
    assert {f"{row.host}:{row.port}" for row in rows} == {broker.bootstrap_servers}
    assert [row.key for row in rows] == ["k", "l"] if version >= 4 else len(rows) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_the_broker_coordinates_transactions(
    client: KafkaClient, broker: Broker, version: int
) -> None:
    """The broker names itself; there are no coordinators of other types."""
    answer = client.call("FindCoordinator", version, key="k", key_type=1, coordinator_keys=["k"])
    rows = answer.coordinators if version >= 4 else [answer]
    assert {(row.error_code, row.node_id) for row in rows} == {(0, 0)}
    assert {f"{row.host}:{row.port}" for row in rows} == {broker.bootstrap_servers}
    answer = client.call("FindCoordinator", version, key="k", key_type=2, coordinator_keys=["k"])
    rows = answer.coordinators if version >= 4 else [answer]
    assert [(row.error_code, row.node_id) for row in rows] == [(42, -1)]
    assert "type 2" in rows[0].error_message


def configs_of(client: KafkaClient, kind: int, name: str, version: int = 4, **fields: Any) -> Any:
    """Describe the settings of a resource."""
    one = messages.DescribeConfigsRequest.DescribeConfigsResource(
        kind, name, fields.pop("configuration_keys", None)
    )
    (result,) = client.call("DescribeConfigs", version, resources=[one], **fields).results
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_a_topic(client: KafkaClient, version: int) -> None:
    """The answer has Kafka's keys, with the topic's settings and the other defaults."""
    name = f"configs-{version}"
    client.create(name, retention_ms="-1", cleanup_policy="compact", segment_bytes="1048576")
    result = configs_of(client, 2, name, version, include_synonyms=True)
    rows = {row.name: row for row in result.configs}
    assert result.error_code == 0 and set(rows) == {*KEYS, *FIXED}
    expected = {
        "retention.ms": ("-1", 1), "cleanup.policy": ("compact", 1),
        "segment.bytes": ("1048576", 1), "flush.ms": ("9223372036854775807", 5),
        "compression.type": ("producer", 5), "min.insync.replicas": ("1", 5),
        "max.message.bytes": ("1048588", 5), "retention.bytes": ("-1", 5),
    }  # fmt: skip
    for key, (value, source) in expected.items():
        assert (rows[key].value, rows[key].config_source) == (value, source), key
    assert rows["min.insync.replicas"].read_only and not rows["retention.ms"].read_only
    assert [tuple(one) for one in rows["retention.ms"].synonyms] == [("retention.ms", "-1", 1)]
    assert [tuple(one) for one in rows["cleanup.policy"].synonyms] == [
        ("cleanup.policy", "compact", 1), ("log.cleanup.policy", "delete", 5),
    ]  # fmt: skip
    some = configs_of(client, 2, name, version, configuration_keys=["retention.ms", "none"])
    assert [row.name for row in some.configs] == ["retention.ms"]


def test_a_default_that_the_broker_was_given_is_static(tmp_path: Path) -> None:
    """The broker's value precedes Kafka's default, under the broker's key; a topic may differ."""
    log_config = KAFKA_LOG_CONFIG.replace(segment_bytes=1 << 20)
    config = {"log_config": log_config, "num_partitions": 3}
    with (
        Broker.start(tmp_path, config=config) as running,
        KafkaClient(running.bootstrap_servers) as client,
    ):
        client.create("t", segment_bytes="2097152")
        client.create("u")
        static, default = (
            ("log.segment.bytes", "1048576", 4),
            ("log.segment.bytes", "1073741824", 5),
        )
        synonyms = {}
        for name in "tu":
            found = configs_of(client, 2, name, include_synonyms=True).configs
            (row,) = [row for row in found if row.name == "segment.bytes"]
            synonyms[name] = [tuple(one) for one in row.synonyms]
            assert row.config_source == synonyms[name][0][2]
        assert synonyms == {"t": [("segment.bytes", "2097152", 1), static, default],
                            "u": [static, default]}  # fmt: skip
        rows = {row.name: row for row in configs_of(client, 4, "0", include_synonyms=True).configs}
        assert rows["num.partitions"].config_source == 4
        assert [tuple(one) for one in rows["num.partitions"].synonyms] == [
            ("num.partitions", "3", 4), ("num.partitions", "1", 5),
        ]  # fmt: skip
        assert rows["max.connections"].config_source == 5


def test_settings_of_a_broker(client: KafkaClient, broker: Broker) -> None:
    """The settings are read-only; shared settings are empty, and other brokers are unknown."""
    rows = {row.name: row.value for row in configs_of(client, 4, "0").configs}
    assert rows["broker.id"] == "0" and rows["log.dirs"] == ",".join(broker.store.log_dirs)
    assert rows["auto.create.topics.enable"] == "true"
    assert configs_of(client, 4, "").configs == ()
    assert configs_of(client, 4, "7").error_code == 42
    assert configs_of(client, 2, "none").error_code == 3
    assert configs_of(client, 8, "0").error_code == 42
