"""Let a caller limit the memory of the batches that its thread decompresses.

    begin(lease)
    log.append_encoded(...)        a decompression reserves memory, and `settle` gives it back
    end(lease)

    the size is in the frame       reserve it, decompress
    the size is not known          reserve 16 times the compressed size, decompress; if the records
                                   are larger, reserve the whole limit, and decompress again

The decoders take no lease as an argument: the lease belongs to the thread. If a thread has no
lease, only `record_expansion_bytes_max` limits the memory of its batches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from logstore.errors import LogStoreError, RecordExpansionError
from logstore.format.expansion import expansion_bytes

# When a client compresses records, they rarely shrink to less than a sixteenth.
RATIO_USUAL = 16
ROOM_BYTES_MIN = 64 << 10
# For a short time, a codec uses up to twice as much memory as its result.
CODEC_FACTOR = 2


class Lease(Protocol):
    """The memory that one thread may use for decompressed batches.

    Attributes:
        batch_bytes_max: the memory that one batch is allowed to need.
    """

    batch_bytes_max: int

    def reserve(self, size_bytes: int) -> None:
        """Give back the lease's memory, and then reserve `size_bytes`; 0 reserves nothing.

        Raises:
            LogStoreError: the wait for free memory took too long.
        """

    def lessen(self, size_bytes: int) -> None:
        """Give back the reserved memory except `size_bytes`; this never waits."""

    def too_large(self, size_bytes: int) -> LogStoreError:
        """Create the error for a batch that needs `size_bytes` or more."""


class _Thread(threading.local):
    lease: Lease | None = None


_thread = _Thread()


def begin(lease: Lease) -> None:
    """Use a lease for all batches that this thread decompresses from now on, until `end`."""
    assert _thread.lease is None, "a thread has one lease at a time"
    _thread.lease = lease


def end(lease: Lease) -> None:
    """End the use of the lease, and give its memory back."""
    _thread.lease = None
    lease.reserve(0)


def settle() -> None:
    """Give back the memory of this thread's lease, after the last use of a decompressed batch.

    An append calls this before it writes, and a search calls this before each read of the disk. So
    no memory of the lease stays reserved if the disk hangs.
    """
    lease = _thread.lease
    if lease is not None:
        lease.reserve(0)


@contextmanager
def suspended() -> Iterator[None]:
    """Decompress without the lease of this thread in the `with` block.

    Use this block for batches that need little memory, and are read while the thread holds a lock
    or reads the disk. With a lease, the thread could wait for memory, and the memory could stay
    reserved while the disk hangs.
    """
    lease, _thread.lease = _thread.lease, None
    try:
        yield
    finally:
        _thread.lease = lease


def count_decoded(record_count: int) -> None:
    """Reserve the memory for the decoded records of a batch that is not compressed."""
    lease = _thread.lease
    if lease is not None:
        lease.reserve(expansion_bytes(0, record_count))


def expand(codec_id: int, data: bytes, record_count: int, expansion_bytes_max: int) -> bytes:
    """Decompress the records of a batch. Raises the errors of `codecs.decompress`.

    Raises:
        LogStoreError: the lease of this thread refuses the batch.
    """
    from logstore.format.kafka import codecs

    lease = _thread.lease
    if lease is None:
        return codecs.decompress(codec_id, data, expansion_bytes_max)
    decoded_bytes = expansion_bytes(0, record_count)
    limit = min(expansion_bytes_max, lease.batch_bytes_max) - decoded_bytes
    known = codecs.size_in_frame(codec_id, data)
    if limit <= 0 or known > limit:
        raise lease.too_large(decoded_bytes + max(known, 0))
    usual = max(ROOM_BYTES_MIN, RATIO_USUAL * len(data))
    room = min(usual if known < 0 else max(known, 1), limit)
    while True:
        lease.reserve(CODEC_FACTOR * room + decoded_bytes)
        with suppress(RecordExpansionError):
            records = codecs.decompress(codec_id, data, room)
            lease.lessen(len(records) + decoded_bytes)
            return records
        if room == limit:
            raise lease.too_large(decoded_bytes + limit + 1)
        room = limit  # a frame can be larger than the size that it claims
