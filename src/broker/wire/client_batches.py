"""Check the header of a record batch that a client sends.

The log checks the whole batch. The checks in this module are about fields that a client must not
set.
"""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from broker.wire.error_codes import ErrorCode

ZSTD_FROM = 7  # the first version in which batches are allowed to use zstd
PRODUCER_IDS_END = 2**62  # the ids that brokers give are smaller
# This struct reads the header of a record batch after its base offset.
# Its fields: length, leader epoch, magic, checksum, attributes, last offset delta,
# producer id, producer epoch, first sequence, count.
HEADER = struct.Struct(">8xiiBIHi16xqhii")
HEADER_BYTES, CHECKED_FROM, LENGTH_END, MAGIC = 61, 21, 12, 2
CODEC_MASK, ZSTD, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 4, 0x08, 0x10, 0x20

NOT_FOR_CLIENTS = "a client must not write control batches, or transactions without a producer"


def fault_of_batch(
    records: Any, version: int, *, is_transactional: bool
) -> tuple[ErrorCode, str] | None:
    """Check that a client may send a batch with this header; return the fault, or None."""
    reason = _fault_of_frame(records)
    if reason:
        return ErrorCode.INVALID_RECORD, reason
    _, _, _, _, attributes, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(records)
    if attributes & LOG_APPEND_TIME:
        return ErrorCode.INVALID_TIMESTAMP, "only a broker gives records the time of their append"
    if attributes & TRANSACTIONAL and not is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "the request has no transactional id"
    if attributes & (CONTROL | TRANSACTIONAL) and (
        attributes & CONTROL or min(producer_id, epoch, sequence) < 0
    ):
        return ErrorCode.INVALID_RECORD, NOT_FOR_CLIENTS
    if producer_id >= 0 and sequence < 0:
        return ErrorCode.INVALID_RECORD, f"a batch of the producer {producer_id} has no sequence"
    if producer_id >= PRODUCER_IDS_END:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return code, f"no broker has given the producer id {producer_id}"
    if attributes & CODEC_MASK == ZSTD and version < ZSTD_FROM:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later"
    return None


def _fault_of_frame(records: Any) -> str:
    """Check that a client sent one batch, and that its offsets are consecutive from 0 on."""
    if records is None or len(records) < HEADER_BYTES:
        return "the records are not one whole batch"
    length, _, magic, _, _, delta, _, _, _, count = HEADER.unpack_from(records)
    if magic != MAGIC:
        return f"a batch of magic {magic}, not {MAGIC}"
    if length != len(records) - LENGTH_END:
        return "a partition does not have exactly one batch"
    if count != delta + 1 or count < 1:
        return f"{count} records do not have the offsets from 0 to {delta}"
    return ""


def code_of_bytes(records: Any) -> ErrorCode:
    """Choose the code for refused records. After a wrong checksum, clients try again."""
    crc = HEADER.unpack_from(records)[3]
    if crc32c(records[CHECKED_FROM:]) != crc:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.INVALID_RECORD
