"""Read the batches of one replica in their order. At most one answer is in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError
from logstore import LogStoreError
from logstore.format.batch import Record
from logstore.format.kafka import record_batch as kafka
from logstore.format.prefix import walk

Content = tuple[int, bytes | None, bytes | None, Any]  # timestamp, key, value, headers
Fetch = Callable[[int], Any]  # gives the row of a Fetch response, for records from this offset
TRANSACTIONAL, CONTROL, DELETE_HORIZON, CODEC = 0x10, 0x20, 0x40, 0x07
KEY_BYTES_MAX = 16  # of a longer key, only a hash is kept
KEYS_MAX = 200_000


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

    @property
    def is_rewritten(self) -> bool:
        """Whether compaction has rewritten the batch: it lacks records, or has a delete horizon."""
        header = self._header
        span = header.last_offset - header.base_offset + 1
        return header.record_count < span or self.has_horizon

    @property
    def has_horizon(self) -> bool:
        """Whether compaction has decided when it removes the tombstones or the marker."""
        return bool(self._header.attributes & DELETE_HORIZON)

    @property
    def origin(self) -> tuple[int, ...]:
        """The fields of the header that compaction does not change."""
        one = self._header
        kept = one.attributes & ~(DELETE_HORIZON | CODEC)
        sent = one.producer_id, one.producer_epoch, one.base_sequence
        return one.base_offset, one.last_offset, one.leader_epoch, kept, *sent

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or is a marker."""
        return bool(self._header.attributes & (TRANSACTIONAL | CONTROL))

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker."""
        return bool(self._header.attributes & CONTROL)

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
        self.offset = self._start = offset
        self.size_bytes = 0
        self._fetch, self._end = fetch, end_offset
        self._batches: deque[Batch] = deque()

    def again(self) -> ReplicaReader:
        """Return a reader of the same range, which begins at its start."""
        return ReplicaReader(self._fetch, self._start, self._end)

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


def digest_of(key: bytes) -> bytes:
    """Return a key, or the hash of a long key."""
    return key if len(key) <= KEY_BYTES_MAX else blake2b(key, digest_size=KEY_BYTES_MAX).digest()


class Repeats:
    """Where a replica has two records of one key. Compaction leaves no such records in its range.

    If a replica has very many keys, only a sample of the keys is used.
    """

    def __init__(self, reader: ReplicaReader) -> None:
        """Read the whole range. If a batch cannot be read, use the batches before it."""
        self._firsts: dict[bytes, int | None] = {}
        self._mask = 0
        # By the offset of the second record: the smallest offset of a first record until there.
        self._seconds: list[int] = []
        self._smallest: list[int] = []
        try:
            while (batch := _next(reader)) is not None:
                self._note(batch)
        except (ClusterError, LogStoreError, ValueError):
            pass  # the comparison reports this batch
        self._firsts.clear()

    def has(self, first: int, second: int) -> bool:
        """Check for two records of one key: one until offset `first`, one until `second`."""
        place = bisect_right(self._seconds, second) - 1
        return place >= 0 and self._smallest[place] <= first

    def _note(self, batch: Batch) -> None:
        for offset, (_, key, _, _) in () if batch.is_control else batch.contents().items():
            if key is None:
                continue
            digest = digest_of(key)
            if self._mask and not self._is_in_sample(digest):
                continue
            first = self._firsts.get(digest, offset)
            if first is not None and first < offset:
                self._firsts[digest] = None  # only the first two records of a key matter
                if not self._smallest or first < self._smallest[-1]:
                    self._seconds.append(offset)
                    self._smallest.append(first)
            else:
                self._firsts[digest] = first
        while len(self._firsts) > KEYS_MAX:
            self._mask = self._mask * 2 + 1
            kept = {one: at for one, at in self._firsts.items() if self._is_in_sample(one)}
            self._firsts = kept

    def _is_in_sample(self, digest: bytes) -> bool:
        return not hash(digest) & self._mask


def _next(reader: ReplicaReader) -> Batch | None:
    while True:
        try:
            batch = reader.head()
        except LogStartMovedError as error:
            reader.seek(error.offset)
            continue
        if batch is not None:
            reader.take()
        return batch
