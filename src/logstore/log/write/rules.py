"""Derive, from a configuration, the encoding, the sizes and the bounds that an append needs."""

from __future__ import annotations

from typing import NamedTuple

from logstore.config import LogConfig
from logstore.format import compression, layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.expansion import expansion_bytes
from logstore.log.write import encode

NEVER = 2**63


class Encoding(NamedTuple):
    """How the records of a batch are encoded; all fields come from one configuration."""

    codec_id: int
    is_log_append_time: bool
    magic: int


def require_layout(config: LogConfig, path: str) -> None:
    """Raise UnsupportedFormatError if a library that a configuration needs is not installed."""
    layout = layouts.layout_of(layouts.MAGICS[config.record_format], path)
    layout.require(compression.CODEC_IDS[config.compression_type])
    codec_id = _encoded_codec(config)
    if codec_id is not None:
        # Import the library now.
        # Later, when an append needs the library, the process may have no free descriptor.
        from logstore.format.kafka import recompress  # noqa: F401

        layout.require(codec_id)


def _encoded_codec(config: LogConfig) -> int | None:
    """Return the codec that encoded batches get; None if they keep their own codec."""
    name = config.encoded_compression_type
    if name == "producer":
        return None
    return 0 if name == "uncompressed" else compression.CODEC_IDS[name]


class AppendRules:
    """The rules of one configuration for appends; the object is replaced, and never changed.

    An append reads `encoding` once, and encodes its records before it takes the log's lock. When
    the append has the lock, the rules may belong to another configuration (see
    `appending.append_payload`).

    Attributes:
        segment_bytes, segment_ms: the size and the age at which the log rolls; the age may be
            NEVER.
        index_interval_bytes, index_entries_max: the limits of the active segment's index.
        encoding, magic, is_log_append_time: how records are encoded.
        encoded_codec_id: the codec that encoded batches get; None if they keep theirs.
        is_plain: whether `append_record` may encode a record itself, without `build`.
        requires_keys: whether records without a key are refused, because compaction needs keys.
        flush_messages: the number of unflushed records that triggers a flush, or NEVER.
        before_max_ms, after_max_ms: how far a timestamp in encoded batches may be from now. Without
            a limit, or with LogAppendTime, both values are None.
        max_message_bytes, expansion_bytes_max: the largest size of a batch, stored and in memory.
        gathered_bytes_max: how many bytes of small appends go into one batch. Each record counts as
            at least a sixteenth of the memory that the decoded record needs (`encode.size_max`). So
            no batch needs more than `expansion_bytes_max`.
        plain_bytes_max: the largest batch of one record without headers that is within both limits.
            If `is_plain` is False, the value is 0. So an append that began with other rules notices
            the change.
    """

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "encoded_codec_id",
        "encoding",
        "expansion_bytes_max",
        "flush_messages",
        "gathered_bytes_max",
        "index_entries_max",
        "index_interval_bytes",
        "is_log_append_time",
        "is_plain",
        "magic",
        "max_message_bytes",
        "plain_bytes_max",
        "requires_keys",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, config: LogConfig, record_expansion_bytes_max: int) -> None:
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms or NEVER
        self.index_interval_bytes = config.index_interval_bytes
        self.index_entries_max = config.segment_index_bytes // 8
        codec_id = compression.CODEC_IDS[config.compression_type]
        self.magic = layouts.MAGICS[config.record_format]
        self.is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = self.after_max_ms = None
        if not self.is_log_append_time:
            self.before_max_ms = config.message_timestamp_before_max_ms
            self.after_max_ms = config.message_timestamp_after_max_ms
        self.encoding = Encoding(codec_id, self.is_log_append_time, self.magic)
        self.encoded_codec_id = _encoded_codec(config)
        self.requires_keys = config.is_compacted
        self.is_plain = self.encoding == (0, False, columnar.MAGIC) and not self.requires_keys
        self.flush_messages = config.flush_messages or NEVER
        self.max_message_bytes = config.max_message_bytes
        self.expansion_bytes_max = record_expansion_bytes_max
        self.gathered_bytes_max = min(
            config.max_message_bytes - encode.BATCH_OVERHEAD_BYTES, self.expansion_bytes_max // 16
        )
        expanded_max = self.expansion_bytes_max - expansion_bytes(0, 1) + columnar.OVERHEAD_BYTES
        self.plain_bytes_max = min(config.max_message_bytes, expanded_max) * self.is_plain
