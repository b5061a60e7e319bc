"""Read a large answer to a follower's fetch, and hand over its records in parts.

    header, errors ... | head of a partition | records            | tags | next partition ...
                                               part, part, ... part

While the follower appends a part, the leader sends the next part into the buffer of the socket. So
the leader and the follower work at the same time, and a fetcher needs memory for only one part. A
part consists of whole batches. The rest of the answer is small, and is decoded like any other
message.

The rules of the replica get each part as a separate answer, and check each part like any other
answer (P9). This is correct, because a part has the same records as the leader's answer to a fetch
that begins at the part's first offset. The records before this offset are in the earlier parts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from broker.wire.error_codes import ErrorCode
from broker.wire.frames import decode_response
from cluster.errors import BadRequestError
from cluster.requests import FetchAnswer, FollowerFetch
from cluster.wire.follower_fetches import API, MAY_LACK_OFFSETS, VERSION, PartitionId
from cluster.wire.topic_ids import text_of
from logstore.format import layouts
from logstore.format.prefix import BATCH_BYTES_MIN, LENGTH_OVERHEAD_BYTES

Read = Callable[[int], bytes]  # reads exactly this many bytes of the answer
PART_BYTES = 2 << 20
WINDOW_BYTES = 1 << 16  # one call reads this many bytes, except in large records
# if more bytes than this are missing from a batch, the read ends exactly where the batch ends
JOINED_BYTES = 1 << 18
# Partition, error, high watermark, last stable offset, log start.
HEAD = struct.Struct(">ihqqq")
ANSWER = struct.Struct(">ihi")  # throttle time, error, and fetch session
NUMBER = struct.Struct(">i")
TOPIC_ID_BYTES, ABORTED_BYTES = 16, 16
NO_RECORDS = b"\x01"  # the encoded length of records that are empty
BATCH_LENGTH = struct.Struct(">8xi")


class LargeAnswer:
    """An answer that is being read.

    Attributes:
        sizes: for each partition, how many bytes of records came in parts.
    """

    def __init__(
        self,
        read: Read,
        size_bytes: int,
        number: int,
        asked: Mapping[PartitionId, FollowerFetch],
        take: Callable[[FetchAnswer], object],
    ) -> None:
        """Prepare to read.

        Args:
            number: the correlation id of the request.
            take: is called with each part.
        """
        self._read, self._left, self._number = read, size_bytes, number
        self._asked, self._take = asked, take
        self._window = memoryview(b"")
        self._small = bytearray()  # the answer without large records
        self.sizes: dict[PartitionId, int] = {}

    def run(self) -> Any:
        """Read the answer to its end; return the message without the records of the parts.

        Raises:
            BadRequestError: the answer contradicts itself. Earlier parts were already handed over.
            WireError: the rest of the answer is not a message.
        """
        (found,) = NUMBER.unpack(self._keep(NUMBER.size))
        if found != self._number:
            raise BadRequestError(reason=f"the leader answered request {found}, not {self._number}")
        self._keep_tags()
        _, error, _ = ANSWER.unpack(self._keep(ANSWER.size))
        if error:
            raise BadRequestError(reason=f"the whole fetch was refused: {error}")
        for _ in range(self._count()):
            topic_id = text_of(bytes(self._keep(TOPIC_ID_BYTES)))
            for _ in range(self._count()):
                self._read_partition(topic_id)
            self._keep_tags()
        self._keep_tags()
        if self._left or self._window:
            raise BadRequestError(reason="bytes follow the end of the answer")
        _, message = decode_response(API, VERSION, self._small)
        return message

    def _read_partition(self, topic_id: str) -> None:
        number, error, high_watermark, stable, log_start = HEAD.unpack(self._keep(HEAD.size))
        for _ in range(self._count()):  # aborted transactions
            self._keep(ABORTED_BYTES)
            self._keep_tags()
        self._keep(NUMBER.size)  # the preferred replica
        key = topic_id, number
        size = max(self._varint() - 1, 0)
        if size > self._left + len(self._window):
            raise BadRequestError(reason=f"{size} bytes of records are declared, but fewer came")
        request = self._asked.get(key)
        if size < PART_BYTES or request is None or error != ErrorCode.NONE:
            self._small += _varint_of(size + 1)
            self._keep(size)
        else:
            if high_watermark < 0 or log_start < 0 or key in self.sizes:
                raise BadRequestError(reason=f"a leader's answer about {key} is out of its range")
            self._small += NO_RECORDS
            self.sizes[key] = size
            may_lack = stable == MAY_LACK_OFFSETS
            answer = FetchAnswer(request, high_watermark, None, None, log_start, may_lack)
            self._take_records(answer, size)
        self._keep_tags()

    def _take_records(self, answer: FetchAnswer, left: int) -> None:
        """Hand over records in parts; each part has only whole batches."""
        data = self._some(min(left, len(self._window)))
        left -= len(data)
        while True:
            last, end, missing = _last_batch(data)
            if end:
                part = answer._replace(records=memoryview(data)[:end])
                self._take(part)
                answer = answer._replace(request=_next(part, last))
                data = data[end:]
            if not left:
                break
            size = missing if missing > JOINED_BYTES else max(PART_BYTES - len(data), missing)
            more = self._some(min(size, left))
            left -= len(more)
            data = data + more if data else more
        if data:
            raise BadRequestError(reason="a leader's records end inside a batch")

    # --- bytes ------------------------------------------------------------------------------------

    def _some(self, size: int) -> bytes:
        """Return exactly this many bytes. Use the buffered bytes first."""
        if self._window:
            taken, self._window = bytes(self._window[:size]), self._window[size:]
            return taken if len(taken) == size else taken + self._some(size - len(taken))
        self._left -= size
        return self._read(size) if size else b""

    def _keep(self, size: int) -> memoryview:
        """Read bytes, and add them to the small answer."""
        lacking = size - len(self._window)
        if lacking > 0:
            if lacking > self._left:
                raise BadRequestError(reason="the answer ends inside a field")
            more = min(max(lacking, WINDOW_BYTES), self._left)
            self._left -= more
            self._window = memoryview(bytes(self._window) + self._read(more))
        taken, self._window = self._window[:size], self._window[size:]
        self._small += taken
        return taken

    def _varint(self) -> int:
        """Read an unsigned varint; do not add it to the small answer."""
        value, kept = 0, len(self._small)
        for shift in range(0, 35, 7):
            (byte,) = self._keep(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                del self._small[kept:]
                return value
        raise BadRequestError(reason="a number has more than five bytes")

    def _count(self) -> int:
        """Copy an array's length to the small answer, and return it; a null array has length 0."""
        value = self._varint()
        self._small += _varint_of(value)
        return max(value - 1, 0)

    def _keep_tags(self) -> None:
        tags = self._varint()
        self._small += _varint_of(tags)
        for _ in range(tags):
            for is_size in (False, True):
                value = self._varint()
                self._small += _varint_of(value)
                if is_size:
                    self._keep(value)


def _varint_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _last_batch(data: bytes) -> tuple[int, int, int]:
    """Return the start and end of the last whole batch, and the missing bytes of the next batch.

    This function checks only that a batch is not too short, because an append checks each batch.
    """
    last, at, end = 0, 0, len(data)
    while at + LENGTH_OVERHEAD_BYTES <= end:
        size = BATCH_LENGTH.unpack_from(data, at)[0] + LENGTH_OVERHEAD_BYTES
        if size < BATCH_BYTES_MIN:
            raise BadRequestError(reason=f"a leader sent a batch of {size} bytes")
        if at + size > end:
            return last, at, at + size - end
        last, at = at, at + size
    return last, at, 0


def _next(part: FetchAnswer, last: int) -> FollowerFetch:
    """Return the fetch that asks for the records after a part."""
    header = layouts.framed_header(part.records, last, len(part.records), 0)
    if header is None:
        raise BadRequestError(reason="a leader sent a batch without a whole header")
    return part.request._replace(offset=header.last_offset + 1, last_epoch=header.leader_epoch)
