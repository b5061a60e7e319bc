"""Answer the Fetch of a follower: count its position, then send records or a divergence.

    count positions -> read each partition -> enough? -> answer
                             ^                   |
                             +-- a log changes <-+

The position of a follower is counted once, when its request comes. While the request waits for
records, the logs are read again, but the position is not counted again: the follower has not
confirmed more records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from broker.machines.exchange import Answer, Pending
from broker.requests.failures import code_of
from broker.requests.fetch import SentRange
from broker.wire.error_codes import ErrorCode
from broker.wire.fetch import FileRange, split_response
from broker.wire.messages import FetchResponse
from cluster.requests import FollowerFetch
from cluster.run.hosted_replica import HostedReplica
from cluster.run.replica_exchange import Served
from cluster.throttle.replication_throttle import ReplicationThrottle, Side
from cluster.wire.follower_fetches import (
    MAY_LACK_OFFSETS,
    NO_STABLE_OFFSET,
    PartitionId,
    decode_fetches,
)
from cluster.wire.topic_ids import bytes_of
from logstore import FileRange as LogRange
from logstore import Log, LogStoreError, OffsetOutOfRangeError, Subscription

Find = Callable[[PartitionId], HostedReplica | None]
Data = FetchResponse.PartitionData


class Asked(NamedTuple):
    """A Fetch request of a follower: the message, and the facts that the answer must name."""

    message: Any
    version: int
    correlation_id: int


def answer(
    asked: Asked, find: Find, now: float, bytes_max: int, throttle: ReplicationThrottle
) -> Answer | Pending:
    """Answer the Fetch of a follower, or let the request wait for records.

    Args:
        find: finds this broker's replica of a partition.
        bytes_max: an answer has at most this size, unless it consists of one larger batch.

    Raises:
        BadRequestError: the request contradicts itself.
    """
    read = _FollowerRead(asked, find, bytes_max, throttle)
    if read.read():
        return read.encode()
    seconds = min(asked.message.max_wait_ms / 1000, read.throttled_seconds or math.inf)
    return _WaitingRead(read, now + seconds)


class _Place(NamedTuple):
    """A partition of a request, and the answer of the rules, or None if they refuse the fetch.

    Attributes:
        fault: an error if a thread hangs with the replica, so that the rules could not be asked.
    """

    fetch: FollowerFetch
    replica: HostedReplica | None
    served: Served | None
    bytes_max: int
    fault: ErrorCode = ErrorCode.NONE


def read_from(log: Log, offset: int, bytes_max: int) -> LogRange:
    """Read the batches that follow a follower's last batch.

    If the log begins inside the first of these batches, the follower still gets the whole batch.

    Raises:
        OffsetOutOfRangeError: records at this offset were deleted just now. When the follower
            fetches again, the rules know the new log start.
    """
    start = log.log_start_offset
    found = log.read_range(max(offset, start), bytes_max)
    if offset < start and not (found.size_bytes and found.first_offset <= offset):
        found.close()
        raise OffsetOutOfRangeError(
            offset=offset, log_start_offset=start, log_end_offset=log.log_end_offset
        )
    return found


class _FollowerRead:
    """A Fetch request of a follower, and the results of the latest read of the logs.

    Attributes:
        throttled_seconds: the time until a throttled partition may get records; 0.0 if the latest
            read found no throttled partition.
    """

    def __init__(
        self, asked: Asked, find: Find, bytes_max: int, throttle: ReplicationThrottle
    ) -> None:
        """Count the positions of the follower."""
        self._asked, self._throttle = asked, throttle
        self.throttled_seconds = 0.0
        self._bytes_max = min(asked.message.max_bytes, bytes_max)
        limits = [
            one.partition_max_bytes for topic in asked.message.topics for one in topic.partitions
        ]
        self._places = []
        for fetch, limit in zip(decode_fetches(asked.message), limits, strict=True):
            replica = find((fetch.topic.topic_id, fetch.partition))
            served, fault = None, ErrorCode.NONE
            try:
                served = None if replica is None else replica.serve(fetch)
            except LogStoreError as error:
                fault = code_of(error)
            self._places.append(_Place(fetch, replica, served, limit, fault))
        self._rows: list[tuple[str, Any]] = []

    def read(self) -> bool:
        """Read all partitions; return whether the request must be answered now."""
        self.forget()
        left, found_bytes, is_final = self._bytes_max, 0, False
        self.throttled_seconds = 0.0
        for place in self._places:
            row = self._row_of(place, left, is_first=not found_bytes)
            is_final = is_final or bool(row.error_code) or row.diverging_epoch.end_offset >= 0
            if isinstance(row.records, FileRange):
                left -= row.records.size_bytes
                found_bytes += row.records.size_bytes
            self._rows.append((place.fetch.topic.topic_id, row))
        message = self._asked.message
        is_enough = found_bytes >= max(message.min_bytes, 1) or message.max_wait_ms <= 0
        return is_final or is_enough or not self._places

    def _row_of(self, place: _Place, left: int, *, is_first: bool) -> Any:
        number = place.fetch.partition
        fault = place.fault or fault_of(place.fetch, place.replica, place.served)
        if fault:
            return Data(number, fault, -1, -1, -1, records=b"")
        assert place.served is not None
        log, limit = place.served.log, min(place.bytes_max, left)
        try:
            row = Data(
                number, ErrorCode.NONE, log.high_watermark, _stable_offset(log),
                log.log_start_offset, records=b"",
            )  # fmt: skip
            if place.served.diverging is not None:
                epoch, end = place.served.diverging
                diverging = FetchResponse.EpochEndOffset(epoch, end)
                start = place.served.log_start
                return row._replace(diverging_epoch=diverging, log_start_offset=start)
            if self._is_throttled(place):
                limit = min(limit, self._throttle.burst_bytes(Side.LEADER))
                seconds = self._throttle.wait_of(Side.LEADER)
                if seconds:
                    self.throttled_seconds = seconds
                    return row
            found = read_from(log, place.fetch.offset, max(limit, 1))
        except LogStoreError as error:
            return Data(number, code_of(error), -1, -1, -1, records=b"")
        if not found.size_bytes or (found.size_bytes > limit and not is_first):
            found.close()
            return row
        sent = FileRange(SentRange(log, found), found.position, found.size_bytes)
        return row._replace(records=sent)

    def _is_throttled(self, place: _Place) -> bool:
        replica, follower = place.replica, place.fetch.follower
        return replica is not None and self._throttle.sends(replica.name, replica.number, follower)

    def forget(self) -> None:
        """Release the files of the latest read."""
        for _, row in self._rows:
            if isinstance(row.records, FileRange):
                row.records.file.close()
        self._rows = []

    def encode(self) -> Answer:
        """Encode the results of the latest read. The sender closes the files."""
        for place, (_, row) in zip(self._places, self._rows, strict=True):
            if isinstance(row.records, FileRange) and self._is_throttled(place):
                self._throttle.take(Side.LEADER, row.records.size_bytes)
        topics = [
            FetchResponse.FetchableTopicResponse(
                topic_id=bytes_of(topic_id), partitions=[row for _, row in rows]
            )
            for topic_id, rows in groupby(self._rows, key=lambda one: one[0])
        ]
        self._rows = []
        response = FetchResponse(0, ErrorCode.NONE, 0, topics)
        return list(split_response(self._asked.version, self._asked.correlation_id, response))

    def watch(self, wake: Callable[[], None]) -> list[Subscription]:
        """Call `wake` when one of the logs changes."""
        subscriptions = []
        for place in self._places:
            if place.served is not None:
                try:
                    subscriptions.append(place.served.log.subscribe(lambda _: wake()))
                except LogStoreError:  # the log dir failed just now; the next read reports this
                    wake()
        return subscriptions


def _stable_offset(log: Log) -> int:
    """Return what an answer has in place of the last stable offset.

    To read the last stable offset, the broker would need a lock that the next append also needs.
    """
    return MAY_LACK_OFFSETS if log.may_lack_offsets else NO_STABLE_OFFSET


def fault_of(
    fetch: FollowerFetch, replica: HostedReplica | None, served: Served | None
) -> ErrorCode:
    """Return the error for a fetch; NONE if this broker can answer it."""
    if replica is None or not replica.topic.is_same(fetch.topic):
        return ErrorCode.UNKNOWN_TOPIC_ID
    if served is not None and replica.leads(fetch.leader_epoch):
        return ErrorCode.NONE
    if fetch.leader_epoch < replica.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if fetch.leader_epoch > replica.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


class _WaitingRead(Pending):
    """A follower's Fetch that waits for records."""

    def __init__(self, read: _FollowerRead, deadline: float) -> None:
        super().__init__(deadline)
        self._read = read
        self._subscriptions: list[Subscription] = []
        read.forget()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when one of the logs changes."""
        self._subscriptions = self._read.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        """Read again. Answer if there are records or a fault, or if the time is over."""
        if self._read.read() or is_last:
            return self._read.encode()
        self._read.forget()
        return None

    def close(self) -> None:
        """Stop watching, and release the files of the latest read."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()
        self._read.forget()
