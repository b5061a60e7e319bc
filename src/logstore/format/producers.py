"""Set the producer of an encoded batch: the producer's id, and the first record's sequence number.

A log remembers which batches of a producer it has. By the producer's id and the sequence number,
the log recognizes a batch that is sent twice. Kafka's batches also have a producer id and a
sequence number. In every batch of a layout, the producer id has the same position, and so has the
sequence number (docs/FORMAT.md, sections 4 and 8).
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from logstore.format import layouts

SEQUENCE_MAX = 2**31 - 1
SEQUENCES = 2**31
# Ids from this number on are derived from names, and a log does not forget these producers.
# Brokers give out ids 0, 1, 2 and so on, and never reach this number.
EMBEDDED_ID_MIN = 2**62
# If a producer has this epoch, the log does not check the order of the producer's batches.
# The program that writes with this epoch must itself find which of its batches are in the log.
NO_EPOCH = -1


def producer_of(*names: object) -> int:
    """Derive a producer's id from names; the same names always give the same id."""
    return xxh3_64_intdigest("\0".join(map(str, names)).encode()) >> 1


def stamp(data: bytes, producer_id: int, base_sequence: int, epoch: int = NO_EPOCH) -> bytes:
    """Copy one batch, and give the copy another producer and a new checksum."""
    assert 0 <= base_sequence <= SEQUENCE_MAX
    stamped: bytes = layouts.layout_at(data).stamp(data, producer_id, epoch, base_sequence)
    return stamped
