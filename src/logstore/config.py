"""Configure a store and its partitions; the keys are Kafka's keys in snake case.

A size is a whole number of bytes, or text like "64MiB" and "1GB". A duration is a whole number of
milliseconds, or text like "7d", "2h" and "500ms". An unknown key is refused, and the error names
the nearest known key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Never

from logstore.config_keys import Config, Key, Ratio, Switch
from logstore.units import format_size, parse_duration, parse_rate, parse_size, size_of

__all__ = [
    "LogConfig", "StoreConfig", "format_size", "parse_duration", "parse_rate", "parse_size",
    "size_of",
]  # fmt: skip

MS_MAX = 2**62
BYTES_MAX = 2**62
SEGMENT_BYTES_MAX = 2**31 - 1  # as in Kafka, a position in a segment has 31 bits


class LogConfig(Config):
    """Configure one partition with Kafka's topic keys.

    Sizes are in bytes, durations in milliseconds. None or -1 means no limit. The configuration is
    stored with the partition. So a later change of the store's defaults does not change the
    configuration of an existing partition.

    Args:
        segment_bytes: roll the active segment before it grows larger than this.
        segment_ms: roll the active segment when this time has passed since the segment began.
        segment_index_bytes: roll the active segment when its offset index has this size.
        index_interval_bytes: bytes of batches between two entries of an index.
        max_message_bytes: the largest size that a record batch is allowed to have.
        flush_messages: flush after this many records. If None, the number of records causes no
            flush.
        flush_ms: flush records no later than this time after their append.
        retention_ms: drop sealed segments whose newest record is older than this. With None, the
            age of a segment does not matter.
        retention_bytes: drop the oldest sealed segments, but keep at least this many bytes.
        compression_type: "none", "lz4" or "zstd"; in Kafka's layout also "gzip" and "snappy".
        encoded_compression_type: the codec that encoded batches get when they are appended
            (`append_encoded`), as with Kafka's `compression.type`. "producer" keeps the codec of
            each batch. All other values ("uncompressed", "gzip", "snappy", "lz4", "zstd") need
            Kafka's layout. A batch that has another codec is decompressed and compressed again.
        message_timestamp_before_max_ms, message_timestamp_after_max_ms: how far a timestamp in an
            encoded batch is allowed to be before or after the time of its append
            (`append_encoded`). With LogAppendTime, these two keys have no effect.
        message_timestamp_type: "CreateTime" keeps the timestamps of records. "LogAppendTime" gives
            records the time of their append.
        record_format: "columnar" is the layout of FORMAT.md section 4; "kafka" is the layout of
            Kafka's own record batches. A change of `record_format` begins a new segment.
        cleanup_policy: "delete": retention drops old segments. "compact": compaction keeps only the
            latest record of each key, and drops records without a key; retention drops nothing.
            "compact,delete" does both.
        min_compaction_lag_ms: do not compact records that are younger than this.
        max_compaction_lag_ms: compact records that are older than this, even if few bytes can be
            compacted.
        delete_retention_ms: how long a tombstone stays after a compaction has removed all older
            records of its key.
        min_cleanable_dirty_ratio: compact a log when this fraction of its bytes is not compacted.
        retention_pressure: while the log dir is full, drop the oldest sealed segments of the log,
            even if `retention_ms` and `retention_bytes` would keep them. Refused with "compact".
    """

    __slots__ = (
        "cleanup_policy",
        "compression_type",
        "delete_retention_ms",
        "encoded_compression_type",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "message_timestamp_type",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "record_format",
        "retention_bytes",
        "retention_ms",
        "retention_pressure",
        "segment_bytes",
        "segment_index_bytes",
        "segment_ms",
    )
    _keys: ClassVar[dict[str, Key]] = {
        "segment_bytes": Key(256, SEGMENT_BYTES_MAX, is_size=True),
        "segment_ms": Key(1, MS_MAX, is_optional=True),
        "segment_index_bytes": Key(64, SEGMENT_BYTES_MAX, is_size=True),
        "index_interval_bytes": Key(0, SEGMENT_BYTES_MAX, is_size=True),
        "max_message_bytes": Key(1, SEGMENT_BYTES_MAX - 1023, is_size=True),
        "flush_messages": Key(1, MS_MAX, is_optional=True),
        "flush_ms": Key(0, MS_MAX, is_optional=True),
        "retention_ms": Key(0, MS_MAX, is_optional=True),
        "retention_bytes": Key(0, BYTES_MAX, is_size=True, is_optional=True),
        "compression_type": Key(choices=("none", "gzip", "snappy", "lz4", "zstd")),
        "encoded_compression_type": Key(
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
        ),
        "message_timestamp_before_max_ms": Key(0, MS_MAX, is_optional=True),
        "message_timestamp_after_max_ms": Key(0, MS_MAX, is_optional=True),
        "message_timestamp_type": Key(choices=("CreateTime", "LogAppendTime")),
        "record_format": Key(choices=("columnar", "kafka")),
        "cleanup_policy": Key(choices=("delete", "compact", "compact,delete")),
        "min_compaction_lag_ms": Key(0, MS_MAX),
        "max_compaction_lag_ms": Key(1, MS_MAX, is_optional=True),
        "delete_retention_ms": Key(0, MS_MAX),
        "min_cleanable_dirty_ratio": Ratio(),
        "retention_pressure": Switch(),
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
    encoded_compression_type: str
    message_timestamp_before_max_ms: int | None
    message_timestamp_after_max_ms: int | None
    message_timestamp_type: str
    record_format: str
    cleanup_policy: str
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int | None
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    retention_pressure: bool

    def __init__(
        self,
        *,
        segment_bytes: int | str = 1 << 30,
        segment_ms: int | str | None = 7 * 24 * 3600 * 1000,
        segment_index_bytes: int | str = 10 << 20,
        index_interval_bytes: int | str = 4096,
        max_message_bytes: int | str = 128 << 20,
        flush_messages: int | None = None,
        flush_ms: int | str | None = None,
        retention_ms: int | str | None = None,
        retention_bytes: int | str | None = None,
        compression_type: str = "none",
        encoded_compression_type: str = "producer",
        message_timestamp_before_max_ms: int | str | None = None,
        message_timestamp_after_max_ms: int | str | None = 3600 * 1000,
        message_timestamp_type: str = "CreateTime",
        record_format: str = "columnar",
        cleanup_policy: str = "delete",
        min_compaction_lag_ms: int | str = 0,
        max_compaction_lag_ms: int | str | None = None,
        delete_retention_ms: int | str = 24 * 3600 * 1000,
        min_cleanable_dirty_ratio: float | str = 0.5,
        retention_pressure: bool = False,
        **unknown: Never,
    ) -> None:
        self._take(locals(), unknown)
        if self.record_format == "columnar" and self.compression_type in ("gzip", "snappy"):
            raise ValueError(
                f"compression_type={self.compression_type!r} needs record_format='kafka'; "
                "columnar batches take 'lz4' or 'zstd'"
            )
        if self.record_format == "columnar" and self.encoded_compression_type != "producer":
            raise ValueError(
                f"encoded_compression_type={self.encoded_compression_type!r} needs "
                "record_format='kafka'; columnar batches keep the codec of their producer"
            )
        if self.retention_pressure and self.cleanup_policy == "compact":
            raise ValueError(
                "retention_pressure=True drops whole segments, but cleanup_policy='compact' "
                "keeps the latest record of each key: set cleanup_policy to 'delete' or "
                "'compact,delete'"
            )

    @property
    def is_compacted(self) -> bool:
        """Whether compaction keeps only the latest record of each key."""
        return self.cleanup_policy != "delete"

    @property
    def is_retained(self) -> bool:
        """Whether `retention_ms` or `retention_bytes` makes retention drop old segments."""
        has_limit = self.retention_ms is not None or self.retention_bytes is not None
        return has_limit and self.cleanup_policy != "compact"

    def to_dict(self) -> dict[str, Any]:
        """Return every setting as a plain JSON value."""
        return {name: getattr(self, name) for name in self._keys}

    def with_changes(self, changes: Mapping[str, Any], defaults: LogConfig) -> LogConfig:
        """Make a copy with some settings changed.

        Args:
            changes: the new value of each key. None resets a key to its default; -1 means no limit.
            defaults: the values for the keys that are reset.

        Raises:
            TypeError: a key is unknown, or a value has the wrong type.
            ValueError: a value is out of range, or two values contradict each other.
        """
        wanted = {
            name: getattr(defaults, name) if value is None and name in self._keys else value
            for name, value in changes.items()
        }
        return self.replace(**wanted)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> LogConfig:
        """Build a configuration from a result of `to_dict` of this or an earlier version.

        Equal dicts give the same object, because a store has thousands of partitions, but few
        different configurations.
        """
        written = repr(settings)
        found = _log_configs.get(written)
        if found is None:
            found = cls(**settings)
            if len(_log_configs) < LOG_CONFIGS_KEPT:
                _log_configs[written] = found
        return found


LOG_CONFIGS_KEPT = 256
_log_configs: dict[str, LogConfig] = {}


class StoreConfig(Config):
    """Configure a store with Kafka's broker keys; sizes are in bytes, durations in milliseconds.

    Args:
        broker_id: the number of this store among the brokers of a cluster. None or -1 means the
            number that the log dirs contain, or 0 for a new store. If the log dirs contain a
            number, a given value must equal that number.
        num_recovery_threads_per_data_dir: how many logs are recovered at the same time in each
            log dir.
        log_flush_scheduler_interval_ms: how often `flush_ms` is checked.
        log_flush_offset_checkpoint_interval_ms: how often recovery points are written.
        log_retention_check_interval_ms: how often retention runs.
        log_dir_suspect_ms: if a call to a log dir runs longer than this, the log dir is SUSPECT
            until the call returns. A call that waits for the disk to write may take three times as
            long, and a call that does long work may take 12 times as long.
        log_dir_probe_interval_ms: how often each log dir is probed.
        log_scrub_bytes_per_second: how fast the scrubber checks the batches of each log dir in the
            background; 0 turns the scrubber off.
        log_scrub_interval_ms: the pause between the end of one pass of the scrubber and the start
            of the next pass.
        log_cleaner_enable: whether to compact logs in the background, if their `cleanup_policy`
            asks for compaction.
        log_cleaner_backoff_ms: how often the store looks for a log to compact in each log dir.
        log_cleaner_dedupe_buffer_size: the memory for keys that compaction uses for each log dir.
            In Kafka, all cleaner threads together share memory of this size.
        log_cleaner_io_max_bytes_per_second: how many bytes per second compaction reads and writes
            in each log dir.
        max_open_files: how many segment files stay open besides the files in use.
        producer_id_expiration_ms: a log forgets a producer that has sent nothing for this time, and
            that has no open transaction.
        producers_max: how many producers a log remembers. If there are more producers, the log
            forgets the least recently used producers.
        read_cache_bytes: how many bytes of decoded batches stay in memory for point reads.
        record_expansion_bytes_max: the memory that one decoded record batch is allowed to need.
            Appends and reads refuse a batch that needs more memory, before they allocate memory for
            it. A compressed batch in Kafka's layout does not state its decoded size, so the check
            of such a batch may need up to twice this memory.
        index_cache_bytes: how many bytes of the indexes of sealed segments stay in memory.
        log_config: the configuration of partitions that are created without a configuration of
            their own.
    """

    __slots__ = (
        "broker_id",
        "index_cache_bytes",
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "log_cleaner_enable",
        "log_cleaner_io_max_bytes_per_second",
        "log_config",
        "log_dir_probe_interval_ms",
        "log_dir_suspect_ms",
        "log_flush_offset_checkpoint_interval_ms",
        "log_flush_scheduler_interval_ms",
        "log_retention_check_interval_ms",
        "log_scrub_bytes_per_second",
        "log_scrub_interval_ms",
        "max_open_files",
        "num_recovery_threads_per_data_dir",
        "producer_id_expiration_ms",
        "producers_max",
        "read_cache_bytes",
        "record_expansion_bytes_max",
    )
    _keys: ClassVar[dict[str, Key]] = {
        "broker_id": Key(0, 2**31 - 1, is_optional=True),
        "num_recovery_threads_per_data_dir": Key(1, 256),
        "log_flush_scheduler_interval_ms": Key(1, MS_MAX),
        "log_flush_offset_checkpoint_interval_ms": Key(1, MS_MAX),
        "log_retention_check_interval_ms": Key(1, MS_MAX),
        "log_dir_suspect_ms": Key(100, MS_MAX),
        "log_dir_probe_interval_ms": Key(100, MS_MAX),
        "log_scrub_bytes_per_second": Key(0, BYTES_MAX, is_size=True),
        "log_scrub_interval_ms": Key(0, MS_MAX),
        "log_cleaner_enable": Switch(),
        "log_cleaner_backoff_ms": Key(1, MS_MAX),
        "log_cleaner_dedupe_buffer_size": Key(1 << 20, 1 << 40, is_size=True),
        "log_cleaner_io_max_bytes_per_second": Key(1, BYTES_MAX, is_size=True, is_optional=True),
        "max_open_files": Key(1, 1 << 20),
        "producer_id_expiration_ms": Key(1, MS_MAX),
        "producers_max": Key(1, 1_000_000),
        "read_cache_bytes": Key(0, BYTES_MAX, is_size=True),
        "record_expansion_bytes_max": Key(4096, BYTES_MAX, is_size=True),
        "index_cache_bytes": Key(0, BYTES_MAX, is_size=True),
    }

    broker_id: int | None
    num_recovery_threads_per_data_dir: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    log_dir_suspect_ms: int
    log_dir_probe_interval_ms: int
    log_scrub_bytes_per_second: int
    log_scrub_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_max_bytes_per_second: int | None
    max_open_files: int
    producer_id_expiration_ms: int
    producers_max: int
    read_cache_bytes: int
    record_expansion_bytes_max: int
    index_cache_bytes: int
    log_config: LogConfig

    def __init__(
        self,
        *,
        broker_id: int | None = None,
        num_recovery_threads_per_data_dir: int = 2,
        log_flush_scheduler_interval_ms: int | str = 1000,
        log_flush_offset_checkpoint_interval_ms: int | str = 60_000,
        log_retention_check_interval_ms: int | str = 300_000,
        log_dir_suspect_ms: int | str = 5_000,
        log_dir_probe_interval_ms: int | str = 300_000,
        log_scrub_bytes_per_second: int | str = 4 << 20,
        log_scrub_interval_ms: int | str = 7 * 24 * 3600 * 1000,
        log_cleaner_enable: bool = True,
        log_cleaner_backoff_ms: int | str = 15_000,
        log_cleaner_dedupe_buffer_size: int | str = 64 << 20,
        log_cleaner_io_max_bytes_per_second: int | str | None = None,
        max_open_files: int = 512,
        producer_id_expiration_ms: int | str = 24 * 3600 * 1000,
        producers_max: int = 100_000,
        read_cache_bytes: int | str = 64 << 20,
        record_expansion_bytes_max: int | str = 2 << 30,
        index_cache_bytes: int | str = 64 << 20,
        log_config: LogConfig | None = None,
        **unknown: Never,
    ) -> None:
        if log_config is None:
            log_config = LogConfig()
        elif not isinstance(log_config, LogConfig):
            raise TypeError(f"log_config must be a LogConfig, not {log_config!r}")
        self._take(locals(), unknown)

    def to_dict(self) -> dict[str, Any]:
        """Return every setting as a plain JSON value."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in self._keys}
        return settings | {"log_config": self.log_config.to_dict()}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> StoreConfig:
        """Build a configuration from a result of `to_dict` of this or an earlier version."""
        return cls(**settings | {"log_config": LogConfig(**settings.get("log_config", {}))})
