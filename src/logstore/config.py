"""Configure a store and its partitions, with Kafka's keys in snake case.

Sizes are ints or text like "64MiB" and "1GB"; what is not known is refused, naming the nearest.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}B"] = 1000**_power
    _UNITS[f"{_letter}"] = 1024**_power
    _UNITS[f"{_letter}IB"] = 1024**_power
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(size: int | str) -> int:
    """Read a size in bytes: a whole number, or text like "64MiB", "1GB", "512".

    Raises:
        TypeError, ValueError: it is neither.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"a size is a whole number or text like '64MiB', not {size!r}")
    if isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{size!r} is not a size: write bytes as '512', or '64KiB', '1.5MB', '2GiB'")
    return round(float(match[1]) * _UNITS[match[2].upper()]) if "." in match[1] else (
        int(match[1]) * _UNITS[match[2].upper()]
    )


def parse_rate(rate: int | str) -> int:
    """Read a rate in bytes per second: a whole number, or text like "50MB/s"."""
    if isinstance(rate, str) and rate.rstrip().endswith("/s"):
        rate = rate.rstrip()[:-2]
    return parse_size(rate)


def format_size(size_bytes: int) -> str:
    """Write a size for people, in powers of 1024."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.0)
    return close[0] if close else ""


class _Config:
    """Hold checked settings that never change."""

    __slots__ = ("_values",)
    _values: dict[str, Any]
    _defaults: dict[str, Any] = {}
    _sizes: frozenset[str] = frozenset()
    _bounds: dict[str, tuple[int, int]] = {}
    _choices: dict[str, tuple[str, ...]] = {}
    _optional: frozenset[str] = frozenset()

    def _set(self, settings: dict[str, Any]) -> None:
        known = list(self._defaults)
        for name in settings:
            if name not in self._defaults:
                raise TypeError(
                    f"{type(self).__name__} has no setting {name!r}; "
                    f"did you mean {_nearest(name, known)!r}?"
                )
        values = {
            name: self._checked(name, settings.get(name, default))
            for name, default in self._defaults.items()
        }
        object.__setattr__(self, "_values", values)

    def _checked(self, name: str, value: Any) -> Any:
        if value is None and name in self._optional:
            return None
        if name in self._choices:
            if value not in self._choices[name]:
                raise ValueError(f"{name}={value!r} is none of {', '.join(self._choices[name])}")
            return value
        if name not in self._bounds:
            return value
        number = parse_size(value) if name in self._sizes else value
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} is a whole number, not {value!r}")
        if number == -1 and name in self._optional:
            return None
        low, high = self._bounds[name]
        if not low <= number <= high:
            raise ValueError(f"{name}={value!r} is not in {low}..{high}")
        return number

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_values")[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} does not change; make another one")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values == self._values  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self._values.items()
            if value != self._checked(name, self._defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._values)

    def to_dict(self) -> dict[str, Any]:
        """Give every setting as a plain value."""
        return dict(self._values)

    def replace(self, **settings: Any) -> Any:
        """Make a copy with some settings changed."""
        return type(self)(**{**self._values, **settings})


def _rebuild(kind: type[_Config], values: dict[str, Any]) -> _Config:
    return kind(**values)


_MS_MAX = 2**62


class LogConfig(_Config):
    """Configure one partition: Kafka's topic keys.

    Args (sizes in bytes, times in milliseconds; None or -1: no limit):
        segment_bytes: roll the active segment at this size.
        segment_ms: roll it at this age.
        segment_index_bytes: roll it when its index has this size.
        index_interval_bytes: distance of index entries.
        max_message_bytes: largest record batch.
        flush_messages, flush_ms: flush after so many records, or so long.
        retention_ms, retention_bytes: drop segments older than, or beyond this size.
        compression_type: none, lz4 or zstd.
        message_timestamp_type: CreateTime, or LogAppendTime to stamp records on append.
        record_format: columnar.
        cleanup_policy: delete.
    """

    __slots__ = ()
    _defaults = {
        "segment_bytes": 1 << 30,
        "segment_ms": 7 * 24 * 3600 * 1000,
        "segment_index_bytes": 10 << 20,
        "index_interval_bytes": 4096,
        "max_message_bytes": 128 << 20,
        "flush_messages": None,
        "flush_ms": None,
        "retention_ms": None,
        "retention_bytes": None,
        "compression_type": "none",
        "message_timestamp_type": "CreateTime",
        "record_format": "columnar",
        "cleanup_policy": "delete",
    }
    _sizes = frozenset(
        ("segment_bytes", "segment_index_bytes", "index_interval_bytes", "max_message_bytes",
         "retention_bytes")
    )
    _bounds = {
        "segment_bytes": (256, 2**31 - 1),
        "segment_ms": (1, _MS_MAX),
        "segment_index_bytes": (64, 2**31 - 1),
        "index_interval_bytes": (0, 2**31 - 1),
        "max_message_bytes": (1, 2**31 - 1024),
        "flush_messages": (1, _MS_MAX),
        "flush_ms": (0, _MS_MAX),
        "retention_ms": (0, _MS_MAX),
        "retention_bytes": (0, _MS_MAX),
    }
    _optional = frozenset(("segment_ms", "flush_messages", "flush_ms", "retention_ms", "retention_bytes"))
    _choices = {
        "compression_type": ("none", "lz4", "zstd"),
        "message_timestamp_type": ("CreateTime", "LogAppendTime"),
        "record_format": ("columnar",),
        "cleanup_policy": ("delete",),
    }

    segment_bytes: int
    segment_ms: int | None
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    flush_messages: int | None
    flush_ms: int | None
    retention_ms: int | None
    retention_bytes: int | None
    compression_type: str
    message_timestamp_type: str
    record_format: str
    cleanup_policy: str

    def __init__(self, **settings: Any) -> None:
        self._set(settings)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> LogConfig:
        """Make one from what `to_dict` gave."""
        return cls(**settings)


class StoreConfig(_Config):
    """Configure a store: Kafka's broker keys.

    Args (sizes in bytes, times in milliseconds):
        broker_id: this store among those that will replicate to each other.
        num_recovery_threads_per_data_dir: logs recovered at once in each log dir.
        log_flush_scheduler_interval_ms: how often `flush_ms` is looked at.
        log_flush_offset_checkpoint_interval_ms: how often recovery points are written.
        log_retention_check_interval_ms: how often retention runs.
        max_open_files: segment files kept open beside those in use.
        read_cache_bytes: decoded batches kept for point reads.
        index_cache_bytes: indexes of sealed segments kept at hand.
        log_config: of partitions created without one of their own.
    """

    __slots__ = ()
    _defaults = {
        "broker_id": 0,
        "num_recovery_threads_per_data_dir": 2,
        "log_flush_scheduler_interval_ms": 1000,
        "log_flush_offset_checkpoint_interval_ms": 60_000,
        "log_retention_check_interval_ms": 300_000,
        "max_open_files": 512,
        "read_cache_bytes": 64 << 20,
        "index_cache_bytes": 64 << 20,
        "log_config": LogConfig(),
    }
    _sizes = frozenset(("read_cache_bytes", "index_cache_bytes"))
    _bounds = {
        "broker_id": (0, 2**31 - 1),
        "num_recovery_threads_per_data_dir": (1, 256),
        "log_flush_scheduler_interval_ms": (1, _MS_MAX),
        "log_flush_offset_checkpoint_interval_ms": (1, _MS_MAX),
        "log_retention_check_interval_ms": (1, _MS_MAX),
        "max_open_files": (1, 1 << 20),
        "read_cache_bytes": (0, _MS_MAX),
        "index_cache_bytes": (0, _MS_MAX),
    }

    broker_id: int
    num_recovery_threads_per_data_dir: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    max_open_files: int
    read_cache_bytes: int
    index_cache_bytes: int
    log_config: LogConfig

    def __init__(self, **settings: Any) -> None:
        self._set(settings)
        if not isinstance(self.log_config, LogConfig):
            raise TypeError(f"log_config is a LogConfig, not {self.log_config!r}")
