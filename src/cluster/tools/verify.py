"""Compare the replicas of partitions on several brokers, while the brokers run.

    Fetch (replica id -2) to each broker of a partition -> Comparison -> differences

Kafka defines this replica id for tools that compare replicas. A broker answers a Fetch of such a
tool from its own replica, even if the replica is a follower. The answer never waits, and ends at
the high watermark of that replica. A Fetch of such a tool does not count as the position of a
follower. The records below the smallest high watermark are on every replica, and do not change. So
appends and elections during a comparison do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FetchRequest
from cluster.errors import PeerError
from cluster.tools.asking import Asked, Place
from cluster.tools.comparison import Comparison, Difference
from cluster.tools.replica_reader import (
    LogStartMovedError,
    ReplicaFaultError,
    ReplicaReader,
)

COMPARING = -2
READ_BYTES_MAX = 1 << 20
BEYOND = 1 << 62  # no log has this offset, so the answer only says where the log begins and ends
DIFFERENCES_MAX = 100  # the limit of one partition; after it, the comparison ends
SAME, NOT_COMPARED = "same", "not compared"
CLEANUP, COMPACT = "cleanup.policy", "compact"


class Finding(NamedTuple):
    """The result for a partition, or for one place in it.

    Attributes:
        state: "same", "not compared", or the kind of the difference.
        offset: the place of the difference; if there is no difference, the first offset.
        end_offset: the end of the compared range; None for a difference.
        found: for each broker, its data, or the reason why its replica was not compared.
    """

    place: Place
    state: str
    offset: int | None
    end_offset: int | None
    found: Mapping[int, str]


class Pace:
    """Limit the bytes per second of all answers together."""

    def __init__(
        self,
        bytes_per_second: int | None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a wait; None means no limit."""
        self.size_bytes = 0
        self._rate, self._sleep, self._clock = bytes_per_second, sleep, clock
        self._free_at = clock()

    @property
    def read_bytes_max(self) -> int:
        """The bytes to ask for at once: at most the bytes of one second."""
        return READ_BYTES_MAX if self._rate is None else max(1, min(READ_BYTES_MAX, self._rate))

    def took(self, size_bytes: int) -> None:
        """Wait as long as the bytes need at the limited rate."""
        self.size_bytes += size_bytes
        if self._rate is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + size_bytes / self._rate
        if self._free_at > now:
            self._sleep(self._free_at - now)


class Verification:
    """Compare partitions, one after the other."""

    def __init__(self, asked: Asked, metadata: Any, pace: Pace) -> None:
        """Store the arguments.

        Args:
            metadata: the brokers, topics and partitions.
        """
        self._asked, self._metadata, self._pace = asked, metadata, pace
        self._brokers = {one.node_id: one for one in metadata.brokers}

    def places(self, topics: Sequence[str]) -> Iterator[tuple[Place, tuple[int, ...]]]:
        """List the partitions of some topics, or of all topics, with their replicas."""
        for topic in sorted(self._metadata.topics, key=lambda one: one.name):
            if not topics or topic.name in topics:
                for one in sorted(topic.partitions, key=lambda row: row.partition_index):
                    yield (topic.name, one.partition_index), tuple(one.replica_nodes)

    def compare(
        self,
        place: Place,
        replicas: Sequence[int],
        *,
        is_compacted: bool,
        show: Callable[[int, int], object] = lambda offset, end: None,
    ) -> Iterator[Finding]:
        """Compare the replicas of a partition.

        Args:
            show: gets the offset that was reached, and the end.
        """
        faults: dict[int, str] = {}
        bounds = self._bounds(place, replicas, faults)
        start = max((first for first, _ in bounds.values()), default=0)
        end = min((mark for _, mark in bounds.values()), default=0)
        readers = {
            broker: ReplicaReader(partial(self._row, place, broker), start, end)
            for broker in bounds
        }
        comparison = Comparison(readers, is_compacted=is_compacted)
        comparison.faults.update(faults)
        count = 0
        while len(comparison.readers) > 1 or len(comparison.readers) == len(replicas):
            found = _step(comparison)
            if found is None:
                break
            for one in found:
                count += 1
                yield Finding(place, one.kind, one.offset, None, one.found)
            if count >= DIFFERENCES_MAX:
                reason = f"after {count} differences, at offset {comparison.offset}"
                comparison.faults.update(dict.fromkeys(comparison.readers, f"stopped {reason}"))
                break
            show(comparison.offset, end)
        if comparison.faults:
            yield Finding(place, NOT_COMPARED, None, None, comparison.faults)
        elif start > end:
            ends = {
                broker: f"ends at {mark}, begins at {first}"
                for broker, (first, mark) in bounds.items()
            }
            yield Finding(place, NOT_COMPARED, start, end, ends)
        elif not count:
            yield Finding(place, SAME, start, end, dict.fromkeys(bounds, SAME))

    def _bounds(
        self, place: Place, replicas: Sequence[int], faults: dict[int, str]
    ) -> dict[int, tuple[int, int]]:
        """Ask each replica for its log start and its high watermark."""
        bounds = {}
        for broker in replicas:
            try:
                row = self._row(place, broker, BEYOND)
            except ReplicaFaultError as error:
                faults[broker] = error.reason
                continue
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and row.high_watermark >= 0:
                bounds[broker] = row.log_start_offset, row.high_watermark
            else:
                faults[broker] = ErrorCode(row.error_code).name
        return bounds

    def _row(self, place: Place, broker: int, offset: int) -> Any:
        """Fetch from a replica; return the row of the answer.

        Raises:
            ReplicaFaultError: the broker does not answer.
        """
        name, number = place
        known = self._brokers.get(broker)
        if known is None:
            raise ReplicaFaultError(reason="the broker is gone")
        size = self._pace.read_bytes_max
        partition = FetchRequest.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=size
        )
        request = FetchRequest(
            replica_id=COMPARING,
            max_bytes=size,
            topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition])],
        )
        try:
            answer = self._asked.fetch(known, request)
        except PeerError as error:
            raise ReplicaFaultError(reason=str(error)) from error
        if answer.error_code or not answer.responses:
            raise ReplicaFaultError(reason=ErrorCode(answer.error_code).name)
        row = answer.responses[0].partitions[0]
        self._pace.took(len(row.records or b""))
        return row


def _step(comparison: Comparison) -> list[Difference] | None:
    """Compare the next batches. If records were deleted meanwhile, continue after them."""
    while True:
        try:
            return comparison.step()
        except LogStartMovedError as error:
            comparison.seek(error.offset)
