"""Test that Kafka's topic settings and the settings of a log have the same meaning."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from broker.catalog.admin.sole_topic_admin import SoleTopicAdmin
from broker.catalog.admin.topic_admin import NewTopic, TopicRefusedError
from broker.catalog.setting_changes import Change, Operation, altered
from broker.catalog.settings import FIXED, KEYS, InvalidSettingError, config_of, field_of, text_of
from broker.catalog.topics import TopicCatalog
from broker.config import KAFKA_LOG_CONFIG, BrokerConfig
from broker.wire.error_codes import ErrorCode
from logstore import LogConfig, LogStore

OURS = {
    "compression_type",
    "record_format",
    "retention_pressure",
}  # settings that Kafka does not have
KAFKA = {  # Kafka 4.1's defaults, by which its tools compare
    "cleanup.policy": "delete", "compression.gzip.level": "-1", "compression.lz4.level": "9",
    "compression.type": "producer", "compression.zstd.level": "3",
    "delete.retention.ms": "86400000", "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807", "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807", "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime", "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0", "min.insync.replicas": "1", "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false", "remote.storage.enable": "false",
    "retention.bytes": "-1", "retention.ms": "604800000", "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760", "segment.jitter.ms": "0", "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}  # fmt: skip


def test_the_defaults_are_kafkas() -> None:
    """A topic without settings is the same as in Kafka."""
    ours = {key: text_of(key, KAFKA_LOG_CONFIG) for key in KEYS}
    ours |= {key: text for key, (_, text) in FIXED.items()}
    assert {key: ours[key] for key in KAFKA} == KAFKA


def test_every_setting_of_a_log_has_a_key() -> None:
    """Only the settings that Kafka lacks have no key."""
    assert {field_of(key) for key in KEYS} == {*LogConfig().to_dict()} - OURS


@pytest.mark.parametrize("key", KEYS)
def test_a_setting_comes_back_as_it_was_given(key: str) -> None:
    """A setting survives the way through a log's configuration, as text."""
    text = {
        "cleanup.policy": "compact,delete", "compression.type": "uncompressed",
        "message.timestamp.type": "LogAppendTime", "min.cleanable.dirty.ratio": "0.25",
    }.get(key, "12345")  # fmt: skip
    config = config_of([(key, text)], KAFKA_LOG_CONFIG)
    assert config != KAFKA_LOG_CONFIG and text_of(key, config) == text
    assert config_of([(key, None)], KAFKA_LOG_CONFIG) == KAFKA_LOG_CONFIG


@pytest.mark.parametrize("text", ["-1", str(2**63 - 1)])
def test_no_limit_in_both_of_kafkas_forms(text: str) -> None:
    """Kafka writes "no limit" as -1, or as the largest number."""
    config = config_of([("flush.ms", text), ("retention.ms", text)], KAFKA_LOG_CONFIG)
    assert config.flush_ms is None and config.retention_ms is None


def test_policies_in_any_order() -> None:
    """Kafka accepts a list, in any order."""
    for text in ("delete,compact", "compact, delete"):
        config = config_of([("cleanup.policy", text)], KAFKA_LOG_CONFIG)
        assert config.cleanup_policy == "compact,delete"


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.minutes", "1", "unknown"), ("retention.mss", "1", "mean 'retention.ms'"),
        ("retention.ms", "1_000", "not a number"), ("retention.ms", str(2**63), "not a number"),
        ("segment.bytes", "many", "not a number"), ("segment.bytes", "-1", "segment_bytes"),
        ("cleanup.policy", "keep", "cleanup_policy"), ("compression.type", "rar", "producer, unc"),
        ("min.insync.replicas", "2", "not supported"), ("preallocate", "true", "not supported"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_setting(key: str, text: str, reason: str) -> None:
    """The error also suggests the right setting, if it is known."""
    with pytest.raises(InvalidSettingError, match=reason):
        config_of([(key, text)], KAFKA_LOG_CONFIG)


def test_what_has_no_meaning_here_may_have_its_default() -> None:
    """Programs set such keys without need, so their defaults are accepted."""
    settings = [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "FALSE")]
    assert config_of(settings, KAFKA_LOG_CONFIG) == KAFKA_LOG_CONFIG


LOW, HIGH = "min.compaction.lag.ms", "max.compaction.lag.ms"


def test_regression_settings_that_contradict_each_other(tmp_path: Path) -> None:
    """A minimum above its maximum was accepted; Kafka refuses it with INVALID_CONFIG."""
    with LogStore.open(tmp_path) as store, closing(TopicCatalog(store)) as topics:
        admin = SoleTopicAdmin(topics, BrokerConfig(), 0)
        for is_dry in (True, False):
            with pytest.raises(TopicRefusedError, match=r"min\.compaction\.lag\.ms=6") as caught:
                admin.create(NewTopic("t", settings=[(LOW, "6"), (HIGH, "5")]), is_dry=is_dry)
            assert caught.value.code is ErrorCode.INVALID_CONFIG
        assert topics.get("t") is None
        admin.create(NewTopic("t", settings=[(HIGH, "5")]))
        for is_dry in (True, False):
            with pytest.raises(InvalidSettingError, match="is larger than"):
                admin.alter("t", [Change(LOW, Operation.SET, "6")], is_dry=is_dry)
        assert store.log("t", 0).config.min_compaction_lag_ms == 0
        admin.alter("t", [Change(LOW, Operation.SET, "6"), Change(HIGH, Operation.SET, "6")])
        with pytest.raises(InvalidSettingError):
            admin.alter("t", [Change(HIGH, Operation.SET, "5")])
        admin.alter("t", [Change(HIGH, Operation.DELETE, None)])
        assert store.log("t", 0).config.max_compaction_lag_ms is None


def test_an_old_contradiction_prevents_no_other_change() -> None:
    """An earlier version has accepted the settings."""
    config = KAFKA_LOG_CONFIG.replace(min_compaction_lag_ms=6, max_compaction_lag_ms=5)
    change = Change("retention.ms", Operation.SET, "7")
    assert altered([change], config, KAFKA_LOG_CONFIG) == {"retention_ms": 7}
