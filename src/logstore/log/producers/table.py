"""Hold one row for each producer of a log, in one array that grows at its end.

A row is a few numbers at fixed places (`producer_file.ROW`), not an object. So 100,000 producers
need only 28 MB, and a snapshot of all producers is one copy of the array. A NumPy view of the array
exists only inside a method: the array cannot grow while a view of it exists.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.producer_file import BATCH_BYTES, ROW, ROW_BYTES, Rows, empty_rows
from logstore.format.producers import EMBEDDED_ID_MIN

ID_AT, MARKER_AT, EPOCH_AT, USED_AT, NEWEST_AT = 0, 16, 36, 40, 48
_EMPTY = empty_rows(1).tobytes()
_NO_BATCHES = _EMPTY[NEWEST_AT:]
_pack_id = struct.Struct("<q").pack_into
_pack_epoch = struct.Struct("<h").pack_into

# The parts of a producer's row.
# `take` reads a row's batches except the oldest, and writes them back after the new batch.
LAST = struct.Struct("<36xh26xi")  # epoch, last sequence
EPOCH_AND_BATCHES = struct.Struct(f"<36xh10x{ROW_BYTES - NEWEST_AT - BATCH_BYTES}s")
USED_AND_BATCHES = struct.Struct(f"<qqqiI{ROW_BYTES - NEWEST_AT - BATCH_BYTES}s")
MARKER = struct.Struct("<qqi")  # offset, timestamp, coordinator epoch
_MARKER_AND_USED = struct.Struct("<qqi4xq")
_pack_used = struct.Struct("<q").pack_into
_BATCHES = struct.Struct("<" + "qqiI" * 5)


class ProducerBatch(NamedTuple):
    """A batch that a producer sent; `last_sequence` is the sequence of its last record."""

    last_offset: int
    timestamp: int
    last_sequence: int
    offset_delta: int


class ProducerTable:
    """The rows of all producers.

    Attributes:
        rows: the array; free rows have the producer id -1.
        places: where the row of each producer id begins in `rows`.
    """

    def __init__(self, rows: Rows | None = None) -> None:
        self.rows = bytearray() if rows is None else bytearray(rows.data)
        ids = [] if rows is None else rows["producer_id"].tolist()
        places = range(0, len(self.rows), ROW_BYTES)
        self.places = dict(zip(ids, places, strict=True))
        self._free: list[int] = []
        if -1 in self.places:  # `rows` came from a table, not from a file
            del self.places[-1]
            self._free = [place for place, each in zip(places, ids, strict=True) if each < 0]

    def add(self, producer_id: int) -> int:
        """Give a new producer a row; return where the row begins."""
        if self._free:
            place = self._free.pop()
        else:
            place = len(self.rows)
            self.rows += _EMPTY
        _pack_id(self.rows, place, producer_id)
        self.places[producer_id] = place
        return place

    def remove(self, producer_ids: Iterable[int]) -> None:
        """Forget producers."""
        for producer_id in producer_ids:
            place = self.places.pop(producer_id)
            self.rows[place : place + ROW_BYTES] = _EMPTY
            self._free.append(place)

    def begin_epoch(self, place: int, epoch: int) -> bytes:
        """Set a producer's epoch and forget its batches; return the bytes of an empty list."""
        _pack_epoch(self.rows, place + EPOCH_AT, epoch)
        self.rows[place + NEWEST_AT : place + ROW_BYTES] = _NO_BATCHES
        return _NO_BATCHES[BATCH_BYTES:]

    def note_marker(
        self, place: int, offset: int, timestamp: int, coordinator_epoch: int, now_ms: int
    ) -> None:
        """Set the last marker of a producer, and the time when the producer was used."""
        MARKER.pack_into(self.rows, place + MARKER_AT, offset, timestamp, coordinator_epoch)
        _pack_used(self.rows, place + USED_AT, now_ms)

    def marker(self, place: int) -> tuple[int, int, int, int]:
        """Return the last marker's offset, timestamp and coordinator epoch, and then `used_ms`."""
        return _MARKER_AND_USED.unpack_from(self.rows, place + MARKER_AT)

    def batches(self, place: int) -> list[ProducerBatch]:
        """List the last batches of a producer, the newest first."""
        numbers = iter(_BATCHES.unpack_from(self.rows, place + NEWEST_AT))
        rows = map(ProducerBatch._make, zip(numbers, numbers, numbers, numbers, strict=True))
        return [batch for batch in rows if batch.last_offset >= 0]

    def idle_since(self, limit_ms: int, spared: Container[int], count_max: int) -> list[int]:
        """List the producers whose last use was at or before `limit_ms`, except `spared`."""
        view = np.frombuffer(self.rows, ROW)
        known = view["producer_id"]
        is_idle = (known >= 0) & (known < EMBEDDED_ID_MIN) & (view["used_ms"] <= limit_ms)
        ids: list[int] = view["producer_id"][is_idle].tolist()
        return [producer_id for producer_id in ids if producer_id not in spared][:count_max]

    def least_used(self, spared: Collection[int], count_max: int) -> list[int]:
        """List the least recently used producers, except the producers in `spared`."""
        view = np.frombuffer(self.rows, ROW)
        used = np.maximum(view["batches"]["last_offset"][:, 0], view["marker_offset"])
        known = view["producer_id"]
        used[(known < 0) | (known >= EMBEDDED_ID_MIN)] = np.iinfo(np.int64).max
        count = min(count_max + len(spared), len(self.places))
        oldest = np.argpartition(used, count - 1)[:count]
        oldest = oldest[np.argsort(used[oldest])]
        oldest = oldest[known[oldest] < EMBEDDED_ID_MIN]
        ids: list[int] = known[oldest].tolist()
        return [producer_id for producer_id in ids if producer_id not in spared][:count_max]

    def last_offsets(self) -> NDArray[np.int64]:
        """Return, for each producer, the last offset of its newest batch, or else of its marker."""
        view = np.frombuffer(self.rows, ROW)
        last, markers = view["batches"]["last_offset"][:, 0], view["marker_offset"]
        found = np.where(last >= 0, last, markers)
        return np.sort(found[found >= 0])

    def copy(self) -> Rows:
        """Copy all rows, including the free rows."""
        return np.frombuffer(bytearray(self.rows), ROW)
