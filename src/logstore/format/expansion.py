"""Bound what a record batch may expand to in memory, before anything is allocated for it.

A few bytes can stand for many records: cells of no size need no bytes in the columnar layout, and a
codec shrinks repetition without end. So what a batch needs once it is decoded is reckoned from its
header: its payload uncompressed, and a fixed size for each record and each record header.
"""

from __future__ import annotations

from logstore.errors import RecordExpansionError

# What a Record and its parts take beside their bytes: the tuple, offset, timestamp, key, value and
# their places in lists. Measured with tracemalloc over `read`.
RECORD_BYTES = 320
# The same of a record header: the pair, the name as text, the value.
RECORD_HEADER_BYTES = 256
# The default of the setting `record_expansion_bytes_max`.
EXPANSION_BYTES_MAX = 2 << 30


def expansion_bytes(payload_bytes: int, record_count: int, header_count: int = 0) -> int:
    """Reckon the memory that a batch needs once it is decoded."""
    return payload_bytes + RECORD_BYTES * record_count + RECORD_HEADER_BYTES * header_count


def too_much(size_bytes: int, expansion_bytes_max: int) -> RecordExpansionError:
    """Make the error for a batch that needs more memory than it may."""
    return RecordExpansionError(
        size_bytes=size_bytes, record_expansion_bytes_max=expansion_bytes_max
    )
