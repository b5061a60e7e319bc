"""Define the fields and bits of the header of Kafka's record batch v2 (KIP-98, KIP-534)."""

from __future__ import annotations

import struct

import numpy as np

MAGIC = 2
HEADER = struct.Struct(
    ">"
    "q"  # base_offset
    "i"  # batch_length
    "i"  # leader_epoch
    "B"  # magic
    "I"  # crc
    "H"  # attributes
    "i"  # last_offset_delta
    "q"  # base_timestamp; with DELETE_HORIZON, the time from which to remove tombstones
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # record_count
)
HEADER_BYTES = 61
assert HEADER.size == HEADER_BYTES

CRC_END = 21
# The fields of the header as a NumPy type.
HEADER_FIELDS = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "u1"),
        ("crc", ">u4"),
        ("attributes", ">u2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER_FIELDS.itemsize == HEADER_BYTES

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
ATTRIBUTES_KNOWN = 0x7F

# One byte each: length, attributes, time delta, offset delta, key size, value size, header count.
RECORD_BYTES_MIN = 7
