"""Test the znodes of topics: Kafka's JSON, which can be read again without a loss."""

from __future__ import annotations

import json

import pytest

from broker.catalog.topic_znodes import (
    Alteration,
    TopicRecord,
    deleted_path,
    encode_alteration,
    encode_config,
    encode_topic,
    parse_alteration,
    parse_config,
    parse_topic,
    record_of,
)
from broker.config import KAFKA_LOG_CONFIG
from broker.coordination.errors import BadZnodeError
from broker.coordination.paths import check_path
from logstore import LogConfig

ID = bytes(range(16))
CONFIGS = [
    KAFKA_LOG_CONFIG,
    KAFKA_LOG_CONFIG.replace(retention_ms=None, retention_bytes=1 << 40, flush_messages=1),
    KAFKA_LOG_CONFIG.replace(cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.25),
    KAFKA_LOG_CONFIG.replace(compression_type="zstd", message_timestamp_type="LogAppendTime"),
    KAFKA_LOG_CONFIG.replace(segment_ms=None, max_compaction_lag_ms=2**62, flush_ms=0),
    LogConfig(),
    LogConfig(record_format="columnar", retention_pressure=True),
]


def test_the_json_is_that_of_kafka() -> None:
    """The id has the form that Kafka prints, and every value is text."""
    document = json.loads(encode_topic(record_of("t", ID, 2, KAFKA_LOG_CONFIG), 7))
    assert document == {
        "version": 3, "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": {"0": [7], "1": [7]},
        "adding_replicas": {}, "removing_replicas": {},
    }  # fmt: skip
    config = KAFKA_LOG_CONFIG.replace(retention_ms=1000, cleanup_policy="compact")
    settings = {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert json.loads(encode_config(config)) == {"version": 1, "config": settings}
    assert json.loads(encode_config(KAFKA_LOG_CONFIG)) == {"version": 1, "config": {}}


@pytest.mark.parametrize("config", CONFIGS)
def test_settings_come_back(config: LogConfig) -> None:
    """Settings can be read again, even those that Kafka lacks, and values without a limit."""
    assert parse_config(encode_config(config), "/config/topics/t") == config


def test_settings_that_are_not_known_are_left_out() -> None:
    """Kafka has more settings than this library; the others are left out."""
    data = b'{"version":1,"config":{"segment.jitter.ms":"5","retention.ms":"9"}}'
    assert parse_config(data, "p") == KAFKA_LOG_CONFIG.replace(retention_ms=9)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_topic_comes_back(*, is_mixed: bool) -> None:
    """A topic can be read again, even with gaps in its numbers and with several ids."""
    ids = {0: ID, 3: b"z" * 16 if is_mixed else ID}
    record = TopicRecord("t", ID, ids, KAFKA_LOG_CONFIG, is_mixed)
    assert parse_topic(encode_topic(record, 0), "p", KAFKA_LOG_CONFIG, "t") == record
    data = encode_topic(record, 0, name="t")
    assert parse_topic(data, "p", KAFKA_LOG_CONFIG) == record


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"topic_id":"AAAA","partitions":{}}', b'{"topic_id":7,"partitions":{}}',
     b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"x":[1]}}',
     b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{},"partition_ids":[1]}'],
)  # fmt: skip
def test_other_bytes_are_refused(data: bytes) -> None:
    """The error names the path of the znode."""
    with pytest.raises(BadZnodeError, match="/brokers/topics/t"):
        parse_topic(data, "/brokers/topics/t", KAFKA_LOG_CONFIG, "t")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"config":[]}', b'{"config":{"retention.ms":"x"}}'])
def test_other_settings_are_refused(data: bytes) -> None:
    """The error names the path of the znode."""
    with pytest.raises(BadZnodeError, match="/config/topics/t"):
        parse_config(data, "/config/topics/t")


def test_changed_settings_come_back() -> None:
    """With Kafka's keys; keys that are not known are left out."""
    alteration = Alteration(ID, frozenset({"retention_ms", "encoded_compression_type"}))
    data = encode_alteration(alteration)
    assert json.loads(data)["keys"] == ["compression.type", "retention.ms"]
    assert parse_alteration(data, "p") == alteration
    later = data.replace(b'"retention.ms"', b'"retention.ms","a.new.key"')
    assert parse_alteration(later, "p") == alteration


@pytest.mark.parametrize(
    "data",
    [b"", b"7", b"{}", b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw"}', b'{"topic_id":"AA","keys":[]}',
     b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","keys":"retention.ms"}'],
)  # fmt: skip
def test_other_alterations_are_refused(data: bytes) -> None:
    """By the path of the znode."""
    with pytest.raises(BadZnodeError, match="/logstore/altered_topics/t"):
        parse_alteration(data, "/logstore/altered_topics/t")


def test_an_altered_setting_that_contradicts_is_left_out() -> None:
    """A program may have changed the log; the other new settings are applied."""
    new = KAFKA_LOG_CONFIG.replace(cleanup_policy="compact", retention_ms=9)
    alteration = Alteration(ID, frozenset({"cleanup_policy", "retention_ms"}))
    record = record_of("t", ID, 1, new)
    assert alteration.applied(record, KAFKA_LOG_CONFIG.replace(flush_ms=5)) == new.replace(
        flush_ms=5
    )
    log = KAFKA_LOG_CONFIG.replace(retention_pressure=True)
    assert alteration.applied(record, log) == log.replace(retention_ms=9)
    with pytest.raises(ValueError, match="retention_pressure"):
        alteration.apply(record, log)


def test_every_id_is_a_part_of_a_path() -> None:
    """An id never contains a dot or a slash."""
    for one in (bytes(16), b"\xff" * 16, ID):
        check_path(deleted_path(one))
