"""Translate Kafka's topic settings to settings of a log, and back.

A log uses the settings in `KEYS`. A log does not use the settings in `FIXED`, so only the defaults
of these settings are accepted. Kafka has no other topic settings. An error names the refused
setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.config import KAFKA_LOG_CONFIG
from logstore import LogConfig

UNLIMITED = 2**63 - 1  # Kafka's value for a duration or a count without a limit
MS_MAX = 2**62
CODEC = "compression.type"
# Kafka has no key for the codec of records that a program appends itself.
FIELDS = {CODEC: "encoded_compression_type", "own.compression.type": "compression_type"}
_KEYS_OF = {field: key for key, field in FIELDS.items()}
LAGS = frozenset({"min.compaction.lag.ms", "max.compaction.lag.ms"})
CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # the types of DescribeConfigs


class Setting(NamedTuple):
    """A topic setting of Kafka: its type, and its value for "no limit"."""

    type: int
    unlimited: int | None = None


KEYS: dict[str, Setting] = {
    "cleanup.policy": Setting(LIST),
    "compression.type": Setting(STRING),
    "delete.retention.ms": Setting(LONG),
    "flush.messages": Setting(LONG, UNLIMITED),
    "flush.ms": Setting(LONG, UNLIMITED),
    "index.interval.bytes": Setting(INT),
    "max.compaction.lag.ms": Setting(LONG, UNLIMITED),
    "max.message.bytes": Setting(INT),
    "message.timestamp.after.max.ms": Setting(LONG, UNLIMITED),
    "message.timestamp.before.max.ms": Setting(LONG, UNLIMITED),
    "message.timestamp.type": Setting(STRING),
    "min.cleanable.dirty.ratio": Setting(DOUBLE),
    "min.compaction.lag.ms": Setting(LONG),
    "retention.bytes": Setting(LONG, -1),
    "retention.ms": Setting(LONG, -1),
    "segment.bytes": Setting(INT),
    "segment.index.bytes": Setting(INT),
    "segment.ms": Setting(LONG, UNLIMITED),
}
FIXED: dict[str, tuple[int, str]] = {
    "compression.gzip.level": (INT, "-1"),
    "compression.lz4.level": (INT, "9"),
    "compression.zstd.level": (INT, "3"),
    "file.delete.delay.ms": (LONG, "60000"),
    "follower.replication.throttled.replicas": (LIST, ""),
    "leader.replication.throttled.replicas": (LIST, ""),
    "local.retention.bytes": (LONG, "-2"),
    "local.retention.ms": (LONG, "-2"),
    "min.insync.replicas": (INT, "1"),
    "preallocate": (BOOLEAN, "false"),
    "remote.log.copy.disable": (BOOLEAN, "false"),
    "remote.log.delete.on.disable": (BOOLEAN, "false"),
    "remote.storage.enable": (BOOLEAN, "false"),
    "segment.jitter.ms": (LONG, "0"),
    "unclean.leader.election.enable": (BOOLEAN, "false"),
}
# The source of a setting's value, with Kafka's numbers.
TOPIC_SOURCE, DYNAMIC_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 2, 4, 5
# The broker's key for the default of a topic setting, if it is not the same key.
BROKER_KEYS = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.ms": "log.roll.ms",
}
# For these topic settings, Kafka has no broker key, or a broker key without a default.
WITHOUT_DEFAULT = frozenset({
    "flush.ms", "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable", "retention.ms", "segment.jitter.ms",
    "segment.ms",
})  # fmt: skip


class Synonym(NamedTuple):
    """A possible value of a setting, and its source. The setting has the first possible value."""

    key: str
    text: str
    source: int


# Kafka's tool sets these settings while it moves replicas between brokers.
# A single broker has no such moves, so it accepts these settings, but does not store them.
IGNORED = frozenset(key for key in FIXED if key.endswith(".throttled.replicas"))


class InvalidSettingError(ValueError):
    """Report a setting that this broker does not accept. The message names the setting."""


def field_of(key: str) -> str:
    """Return the name of a setting in a `LogConfig`."""
    return FIELDS.get(key) or key.replace(".", "_")


def key_of(field: str) -> str:
    """Return the key of a setting of a `LogConfig`."""
    return _KEYS_OF.get(field) or field.replace("_", ".")


def text_of(key: str, config: LogConfig) -> str:
    """Return the value of a setting as Kafka writes it."""
    value = getattr(config, field_of(key))
    return str(KEYS[key].unlimited if value is None else value)


def synonyms_of(key: str, config: LogConfig, defaults: LogConfig) -> list[Synonym]:
    """List the values of a topic setting: of the topic, of the broker, and Kafka's default.

    Args:
        config: the configuration of the topic.
        defaults: the configuration of topics that are created without settings.
    """
    broker_key = BROKER_KEYS.get(key, key)
    if key in FIXED:
        text = default = FIXED[key][1]
    else:
        text, default = text_of(key, defaults), text_of(key, KAFKA_LOG_CONFIG)
    found = []
    if key in KEYS and text_of(key, config) != text:
        found.append(Synonym(key, text_of(key, config), TOPIC_SOURCE))
    if text != default:
        found.append(Synonym(broker_key, text, STATIC_SOURCE))
    if key not in WITHOUT_DEFAULT:
        found.append(Synonym(broker_key, default, DEFAULT_SOURCE))
    return found


def source_of(synonyms: list[Synonym]) -> int:
    """Return the source of the value that the setting has."""
    return synonyms[0].source if synonyms else DEFAULT_SOURCE


def config_of(settings: Iterable[tuple[str, str | None]], defaults: LogConfig) -> LogConfig:
    """Return a log's configuration with some of Kafka's settings changed.

    Args:
        settings: the names and values of settings; the value None means the default.

    Raises:
        InvalidSettingError: a setting is unknown or not supported, or its value is not valid.
    """
    changes: dict[str, object] = {}
    for key, text in settings:
        if key in KEYS:
            if text is not None:
                changes[field_of(key)] = value_of(key, text.strip())
        elif key not in FIXED:
            raise InvalidSettingError(f"unknown topic setting {key!r}{_nearest(key)}")
        elif text is not None and text.strip().lower() != FIXED[key][1]:
            raise InvalidSettingError(
                f"{key}={text} is not supported by this broker, only {FIXED[key][1]!r}"
            )
    try:
        return _changed(defaults, changes)
    except (TypeError, ValueError) as error:
        raise InvalidSettingError(str(error)) from error


def check_together(config: LogConfig, changed: Iterable[str]) -> LogConfig:
    """Return the configuration, unless two of its settings contradict each other, as in Kafka.

    A contradiction that an earlier version has accepted does not prevent changes of other settings.

    Args:
        changed: the keys of the settings that the client gives.

    Raises:
        InvalidSettingError: two settings contradict each other.
    """
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if high is not None and low > high and not LAGS.isdisjoint(changed):
        raise InvalidSettingError(
            f"min.compaction.lag.ms={low} is larger than max.compaction.lag.ms={high}"
        )
    return config


def _changed(defaults: LogConfig, changes: Mapping[str, object]) -> LogConfig:
    return defaults.replace(**changes)


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, [*KEYS, *FIXED], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def value_of(key: str, text: str) -> object:
    """Convert a setting's value from Kafka's form to the form of a `LogConfig`."""
    kind = KEYS[key].type
    if key == CODEC and text not in CODECS:
        raise InvalidSettingError(f"{key}={text!r} is none of {', '.join(CODECS)}")
    if kind == LIST:
        return ",".join(sorted(part.strip() for part in text.split(",")))
    if kind == STRING:
        return text
    try:
        number = float(text) if kind == DOUBLE else int(text)
    except ValueError as error:
        raise InvalidSettingError(f"{key}={text!r} is not a number") from error
    if "_" in text or not text.isascii() or number > UNLIMITED:
        raise InvalidSettingError(f"{key}={text!r} is not a number as in Kafka")
    if KEYS[key].unlimited is not None and (number == -1 or number > MS_MAX):
        return None
    return number
