"""Encode Kafka's indexes of aborted transactions: `.txnindex` files (docs/FORMAT.md, section 10).

    u16 version 0 | i64 producer id | i64 first offset | i64 last offset | i64 last stable offset

An entry has 34 bytes, big-endian. `files.aborted_entries` reads entries. A segment's file has an
entry for each abort marker in the segment, in the order of the markers. So a file grows only at its
end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logstore.format.kafka.files import ABORTED_ENTRY, AbortedEntry

ENTRY = np.dtype(
    [
        ("version", ">u2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
assert ENTRY.itemsize == ABORTED_ENTRY.size


def encode_aborted(aborted: Sequence[AbortedEntry]) -> bytes:
    """Write the entries of aborted transactions, in the order of their markers."""
    entries = np.zeros(len(aborted), ENTRY)
    for number, name in enumerate(AbortedEntry._fields):
        entries[name] = [entry[number] for entry in aborted]
    return entries.tobytes()
