"""Limit the memory of a decoded record batch, before any memory is allocated.

A few bytes can encode many records. Empty cells take no space in the columnar layout, and a codec
can compress repeated bytes almost to nothing. So the memory of a decoded batch is estimated from
its header. The estimate is the size of the uncompressed payload, plus a fixed size for each record
and each record header.
"""

from __future__ import annotations

from logstore.errors import RecordExpansionError

# Memory of a Record without the bytes of its key and value; tracemalloc measured this in `read`.
# It is for the tuple, for the offset, timestamp, key and value, and for their places in lists.
RECORD_BYTES = 320
# Memory of a record header: the pair, the name as text, and the value.
RECORD_HEADER_BYTES = 256
# The default of the setting `record_expansion_bytes_max`.
EXPANSION_BYTES_MAX = 2 << 30


def expansion_bytes(payload_bytes: int, record_count: int, header_count: int = 0) -> int:
    """Estimate the memory that a batch needs when it is decoded."""
    return payload_bytes + RECORD_BYTES * record_count + RECORD_HEADER_BYTES * header_count


def too_much(size_bytes: int, expansion_bytes_max: int) -> RecordExpansionError:
    """Create the error for a batch that needs more memory than allowed."""
    return RecordExpansionError(
        size_bytes=size_bytes, record_expansion_bytes_max=expansion_bytes_max
    )
