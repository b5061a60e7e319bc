"""Check and decode the batches of a Fetch response, and leave out aborted transactions. No I/O.

With `read_committed`, a response lists the aborted transactions that overlap with its range: for
each one, the producer and the offset of its first record. From this offset on, the batches of this
producer are left out, up to the marker that ends the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logstore.errors import UnsupportedFormatError
from logstore.format import layouts
from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.format.prefix import walk
from logstore.log.read.transactions import ABORT, CONTROL, TRANSACTIONAL, marker_of

Run = list[tuple[int, BatchHeader]]


class AbortedProducers:
    """The producers that have an aborted transaction at the present place in the log."""

    def __init__(self, aborted: Sequence[Any]) -> None:
        """Take rows with `producer_id` and `first_offset`, in any order."""
        self._waiting = sorted(aborted, key=lambda one: -one.first_offset)
        self._present: set[int] = set()

    def is_aborted(self, data: memoryview, position: int, header: BatchHeader) -> bool:
        """Step to the next batch; report whether its records are aborted."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._present.add(self._waiting.pop().producer_id)
        if header.attributes & CONTROL:
            if marker_of(data, position, header) == ABORT:
                self._present.discard(header.producer_id)
            return False
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._present


class FetchedBatches:
    """The batches of an answer that are in a range of offsets.

    Attributes:
        offset: all records before this offset were yielded or left out.
    """

    def __init__(self, data: bytes, aborted: Sequence[Any], offset: int, end: int) -> None:
        """Decode nothing yet."""
        self.offset = offset
        self._data, self._aborted, self._end = memoryview(data), AbortedProducers(aborted), end

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the batches that have records in the range. Raises ValueError for a damaged batch.

        Raises:
            RecordExpansionError, UnsupportedFormatError: a batch cannot be decoded here.
        """
        start, (wanted, following) = self.offset, self._checked()
        if wanted:
            decode = layouts.run_decoder_of(self._data, wanted[0][0], "a fetched batch")
            for (_, header), batch in zip(wanted, decode(self._data, wanted), strict=True):
                if header.base_offset < start or header.last_offset >= self._end:
                    batch = batch.slice(batch.index_of(start), batch.index_of(self._end))
                if batch.count:
                    yield batch
        self.offset = max(start, min(following, self._end))

    def _checked(self) -> tuple[Run, int]:
        """Check the whole batches of the answer; return the batches that have wanted records.

        Also return an offset: the answer has all records before this offset.
        """
        wanted: Run = []
        following = 0
        for place in walk(self._data):
            position = place.position
            if place.magic != layouts.KAFKA_MAGIC:
                reason = f"magic {place.magic} is not the magic of Kafka's record batches"
                raise UnsupportedFormatError(
                    path="a fetched batch", version=place.magic, reason=reason
                )
            reason = layouts.fault(self._data, position, None) or ""
            header = layouts.read_header(self._data, position)
            if not reason and header.base_offset < following:
                reason = f"the batch at {header.base_offset} begins before offset {following}"
            if reason:
                raise ValueError(reason)
            if header.base_offset >= self._end:
                return wanted, self._end
            following = header.last_offset + 1
            is_aborted = self._aborted.is_aborted(self._data, position, header)
            is_before = header.last_offset < self.offset
            if not (is_before or is_aborted or header.attributes & CONTROL):
                wanted.append((position, header))
        return wanted, following


__all__ = ["AbortedProducers", "FetchedBatches"]
