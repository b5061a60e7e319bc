"""Read the batches of one replica in their order. At most one answer is in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError
from logstore.format.batch import Record
from logstore.format.kafka import record_batch as kafka
from logstore.format.prefix import walk

Content = tuple[int, bytes | None, bytes | None, Any]  # timestamp, key, value, headers
Fetch = Callable[[int], Any]  # this gives the row of a Fetch response, for records from this offset


class BatchKey(NamedTuple):
    """The fields by which two batches are compared: if they are equal, the batches are the same.

    The checksum covers all bytes after itself. The base offset and the leader epoch are before it,
    so they are compared separately.
    """

    base_offset: int
    last_offset: int
    crc: int
    leader_epoch: int

    def __str__(self) -> str:
        return f"{self.base_offset}-{self.last_offset} crc {self.crc:08x} epoch {self.leader_epoch}"


class Batch:
    """One batch of an answer.

    Attributes:
        is_sound: whether the checksum matches the bytes.
    """

    def __init__(self, data: memoryview) -> None:
        """Read the header, and compute the checksum."""
        header = kafka.read_header(data, 0)
        self._data, self._header = data, header
        self.key = BatchKey(
            header.base_offset, header.last_offset, kafka.checksum(data, 0, len(data)),
            header.leader_epoch,
        )  # fmt: skip
        self.is_sound = (
            kafka.header_fault(data, 0, len(data)) is None
            and header.magic == kafka.MAGIC
            and kafka.checksum_holds(data, 0, len(data))
        )
        self._contents: Mapping[int, Content] | None = None

    def contents(self) -> Mapping[int, Content]:
        """Decode the records; return them by offset.

        Raises:
            ValueError: the records contradict each other.
            LogStoreError: the batch cannot be decoded here.
        """
        if self._contents is None:
            found: dict[int, Content] = {}
            if self._header.record_count:
                one: Record
                for one in kafka.decode_all(self._data, 0, self._header):
                    found[one.offset] = one.timestamp, one.key, one.value, tuple(one.headers)
            self._contents = found
        return self._contents


class ReplicaFaultError(ClusterError):
    """Report why a replica cannot be compared any more."""

    reason: str


class LogStartMovedError(ClusterError):
    """Report that records were deleted, so the comparison has to continue at a later offset."""

    offset: int


class UnreadableError(ClusterError):
    """Report that a broker cannot read a batch of its replica."""

    offset: int


class ReplicaReader:
    """Read a replica from an offset to an end. `head` is the next batch.

    Attributes:
        offset: the offset after the last batch that was taken.
        size_bytes: the bytes of all batches that were read.
    """

    def __init__(self, fetch: Fetch, offset: int, end_offset: int) -> None:
        """Read nothing yet. Batches that end at or after `end_offset` will be left out."""
        self.offset = offset
        self.size_bytes = 0
        self._fetch, self._end = fetch, end_offset
        self._batches: deque[Batch] = deque()

    def head(self) -> Batch | None:
        """Return the next batch; None at the end.

        Raises:
            LogStartMovedError: the next records were deleted.
            UnreadableError: the broker cannot read the next batch.
            ReplicaFaultError: the replica cannot be read now.
        """
        if not self._batches and self.offset < self._end:
            self._read()
        return self._batches[0] if self._batches else None

    def take(self) -> None:
        """Step to the batch after the head."""
        last_offset = self._batches.popleft().key.last_offset
        self.offset = max(self.offset, last_offset + 1)  # a damaged header may contain any offset

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self._batches.clear()
        self.offset = offset

    def _read(self) -> None:
        row = self._fetch(self.offset)
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and row.log_start_offset > self.offset:
            raise LogStartMovedError(offset=row.log_start_offset)
        if code is ErrorCode.CORRUPT_MESSAGE:
            raise UnreadableError(offset=self.offset)
        if code:
            raise ReplicaFaultError(reason=f"{code.name} at offset {self.offset}")
        if row.high_watermark <= self.offset:
            raise ReplicaFaultError(reason=f"its high watermark went back to {row.high_watermark}")
        data = memoryview(row.records or b"")
        self.size_bytes += len(data)
        for place in walk(data):
            batch = Batch(data[place.position : place.position + place.size_bytes])
            if batch.key.last_offset >= self._end:
                break
            if batch.key.last_offset >= self.offset:
                self._batches.append(batch)
        if not self._batches:
            self.offset = self._end  # there are no further records before the end
