"""Translate Kafka's topic settings to settings of a log, and back.

The settings in `KEYS` have a meaning for a log. The settings in `FIXED` have no meaning here, so
only their defaults are accepted. Kafka has no other topic settings. An error names the refused
setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logstore import LogConfig

UNLIMITED = 2**63 - 1  # Kafka's value for a duration or a count without a limit
MS_MAX = 2**62
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # the types of DescribeConfigs


class Setting(NamedTuple):
    """Describe a topic setting of Kafka: its type, and its value for "no limit"."""

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
    "file.delete.delay.ms": (LONG, "60000"),
    "follower.replication.throttled.replicas": (LIST, ""),
    "leader.replication.throttled.replicas": (LIST, ""),
    "local.retention.bytes": (LONG, "-2"),
    "local.retention.ms": (LONG, "-2"),
    "min.insync.replicas": (INT, "1"),
    "preallocate": (BOOLEAN, "false"),
    "remote.storage.enable": (BOOLEAN, "false"),
    "segment.jitter.ms": (LONG, "0"),
    "unclean.leader.election.enable": (BOOLEAN, "false"),
}


# Kafka's tool sets these settings while it moves replicas between brokers. With one broker there is
# nothing to limit. So the settings are accepted, but not stored.
IGNORED = frozenset(key for key in FIXED if key.endswith(".throttled.replicas"))


class InvalidSettingError(ValueError):
    """Report a setting that this broker does not accept; the message names the setting."""


def field_of(key: str) -> str:
    """Return the name of a setting in a `LogConfig`."""
    return key.replace(".", "_")


def text_of(key: str, config: LogConfig) -> str:
    """Return the value of a setting as Kafka writes it."""
    value = getattr(config, field_of(key))
    if key == "compression.type":  # the log keeps the codec of the producer
        return "producer" if value == "none" else str(value)
    return str(KEYS[key].unlimited if value is None else value)


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


def _changed(defaults: LogConfig, changes: Mapping[str, object]) -> LogConfig:
    return defaults.replace(**changes)


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, [*KEYS, *FIXED], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def value_of(key: str, text: str) -> object:
    """Convert a setting's value from Kafka's form to the form of a `LogConfig`."""
    kind = KEYS[key].type
    if key == "compression.type":
        if text != "producer":
            raise InvalidSettingError(
                f"compression.type={text} is not supported: this broker keeps the codec of the "
                "producer; set compression.type on the producer instead"
            )
        return "none"
    if kind == LIST:
        return ",".join(sorted(part.strip() for part in text.split(",")))
    if kind == STRING:
        return text
    try:
        number = float(text) if kind == DOUBLE else int(text)
    except ValueError as error:
        raise InvalidSettingError(f"{key}={text!r} is not a number") from error
    if KEYS[key].unlimited is not None and (number == -1 or number > MS_MAX):
        return None
    return number
