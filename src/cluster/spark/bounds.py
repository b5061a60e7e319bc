"""Ask the leaders of partitions which offsets can be read.

    Metadata -> the leader of each partition -> ListOffsets: earliest, high watermark, last stable

A range ends at the high watermark. If only committed records are wanted, it ends at the last stable
offset. Right after an election, a leader does not know its high watermark yet. So if a question
gets a retriable error, it is asked again, with new metadata, for at most `SECONDS_MAX`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError, PeerError
from cluster.tools.asking import Asked, parse_servers
from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.read.read_plan import INTERNAL_TOPICS

LIST_OFFSETS = (2, 7)
EARLIEST, LATEST = -2, -1
UNCOMMITTED, COMMITTED = 0, 1
ANSWER_SECONDS = 10.0
SECONDS_MAX, PAUSE_SECONDS = 30.0, 0.1
OLD_LEADER_SECONDS = 10.0
NAMES_MAX = 10
NOTHING: PartitionOffsets = {}

Found = TypeVar("Found")


class NotKnownYetError(ClusterError):
    """Report that the leader or the offsets of a partition are not known now."""

    reason: str


class Place(NamedTuple):
    """The brokers of a partition, as the metadata of a broker says.

    Attributes:
        leader: the broker that leads the partition, as a row of the metadata; None if there is
            none.
        in_sync: the ids of the in-sync replicas, the leader first.
        replicas: the ids of all replicas.
    """

    topic_id: bytes
    leader: Any
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]


class RemoteLog(NamedTuple):
    """The log of a partition on its leader, at the time of the survey."""

    key: TopicPartition
    topic_id: bytes
    log_end_offset: int
    options: ReadOptions

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """Ask the leader for the first offset with a timestamp at or after `timestamp`."""

        def find(asked: Asked, places: Mapping[TopicPartition, Place]) -> int:
            level = COMMITTED if self.options.is_committed else UNCOMMITTED
            return offsets_at(asked, places, timestamp, level)[self.key]

        offset = repeated(self.options.brokers, [self.key], find)
        return None if offset < 0 else offset


class ClusterSpan(NamedTuple):
    """The range of a partition that could be read at the time of the survey, and its brokers."""

    log: RemoteLog
    start: int
    end: int
    place: Place


def survey(
    options: ReadOptions, known: PartitionOffsets = NOTHING
) -> dict[TopicPartition, ClusterSpan]:
    """Select partitions, and find their readable ranges; see `look`.

    Raises:
        LogStoreError: a partition does not exist or has no leader, or no broker answers.
    """
    with connected(options.brokers) as asked:
        keys = _selected(asked.metadata(), options)
    return look(keys, options, known)


def look(
    keys: Sequence[TopicPartition], options: ReadOptions, known: PartitionOffsets = NOTHING
) -> dict[TopicPartition, ClusterSpan]:
    """Find the present readable ranges of partitions.

    If the options accept data loss, partitions that do not exist are left out. If a leader was
    replaced and does not know this yet, it may answer with a high watermark that is too low. So if
    a log ends before an offset in `known`, the question is repeated for some seconds.
    """
    deadline = time.monotonic() + OLD_LEADER_SECONDS
    while True:
        spans = _look_once(keys, options)
        is_short = any(span.log.log_end_offset < known.get(key, 0) for key, span in spans.items())
        if not is_short or time.monotonic() > deadline:
            return spans
        time.sleep(PAUSE_SECONDS)


def _look_once(
    keys: Sequence[TopicPartition], options: ReadOptions
) -> dict[TopicPartition, ClusterSpan]:
    """Ask for the ranges until all leaders know them."""

    def find(
        asked: Asked, places: Mapping[TopicPartition, Place]
    ) -> dict[TopicPartition, ClusterSpan]:
        starts = offsets_at(asked, places, EARLIEST, UNCOMMITTED)
        ends = marks = offsets_at(asked, places, LATEST, UNCOMMITTED)
        if options.is_committed:
            ends = offsets_at(asked, places, LATEST, COMMITTED)
        return {
            key: ClusterSpan(
                RemoteLog(key, place.topic_id, marks[key], options),
                starts[key], max(ends[key], starts[key]), place,
            )
            for key, place in places.items()
        }  # fmt: skip

    return repeated(options.brokers, keys, find, is_strict=options.fails_on_data_loss)


def connected(servers: str) -> Asked:
    """Prepare questions to a cluster; raises ValueError if an address cannot be read."""
    return Asked(parse_servers(servers), ANSWER_SECONDS)


def repeated(
    servers: str,
    keys: Sequence[TopicPartition],
    find: Callable[[Asked, Mapping[TopicPartition, Place]], Found],
    *,
    is_strict: bool = True,
) -> Found:
    """Call `find` with the places of partitions, again and again while it raises NotKnownYetError.

    Args:
        is_strict: whether a partition that does not exist is an error.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with connected(servers) as asked:
                return find(asked, places_of(asked, keys, is_strict=is_strict))
        except (NotKnownYetError, PeerError):
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)


def places_of(
    asked: Asked, keys: Sequence[TopicPartition], *, is_strict: bool = True
) -> dict[TopicPartition, Place]:
    """Ask for the leaders and replicas of partitions.

    Raises:
        UnknownPartitionError: `is_strict` is set, and a partition does not exist.
        NotKnownYetError: a partition has no leader now.
    """
    topics = sorted({key.topic for key in keys})
    metadata = asked.metadata(topics) if topics else None
    rows = {} if metadata is None else {one.name: one for one in metadata.topics}
    brokers = {} if metadata is None else {one.node_id: one for one in metadata.brokers}
    found = {}
    for key in keys:
        topic = rows.get(key.topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None:
            code = ErrorCode(topic.error_code)
        row = None if topic is None or code else _row_of(topic, key.partition)
        if topic is not None and row is not None:
            leader = brokers.get(row.leader_id)
            if leader is None:
                raise NotKnownYetError(reason=f"{key} has no leader that lives")
            others = [one for one in row.isr_nodes if one != row.leader_id]
            in_sync = (row.leader_id, *others)
            found[key] = Place(topic.topic_id, leader, in_sync, tuple(row.replica_nodes))
        elif code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise error_of(key, code)
        elif is_strict:
            raise UnknownPartitionError(topic=key.topic, partition=key.partition)
    return found


def _row_of(topic: Any, partition: int) -> Any:
    return next((one for one in topic.partitions if one.partition_index == partition), None)


def error_of(key: TopicPartition, code: ErrorCode) -> LogStoreError:
    """Make the error for a code; NotKnownYetError if the same question may succeed later."""
    reason = f"{key}: the broker answers {code.name}"
    if code.is_retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return NotKnownYetError(reason=reason)
    return ClusterError(reason)


def offsets_at(
    asked: Asked, places: Mapping[TopicPartition, Place], timestamp: int, level: int
) -> dict[TopicPartition, int]:
    """Ask the leaders for the offsets at a time, or at a special time; -1 if there is no offset.

    Args:
        level: the isolation level.

    Raises:
        NotKnownYetError: a leader cannot answer now.
    """
    found: dict[TopicPartition, int] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for key, place in places.items():
        by_leader.setdefault(place.leader.node_id, []).append(key)
    for keys in by_leader.values():
        leader = places[keys[0]].leader
        answer = asked.ask(leader, LIST_OFFSETS, _request(keys, timestamp, level))
        rows = {
            TopicPartition(topic.name, row.partition_index): row
            for topic in answer.topics
            for row in topic.partitions
        }
        for key in keys:
            row = rows.get(key)
            if row is None:
                raise NotKnownYetError(reason=f"the leader of {key} does not answer for it")
            if row.error_code:
                raise error_of(key, ErrorCode(row.error_code))
            found[key] = row.offset
    return found


def _request(keys: Iterable[TopicPartition], timestamp: int, level: int) -> Any:
    request = m.ListOffsetsRequest
    rows: dict[str, list[Any]] = {}
    for key in keys:
        one = request.ListOffsetsPartition(key.partition, -1, timestamp)
        rows.setdefault(key.topic, []).append(one)
    topics = [request.ListOffsetsTopic(name, some) for name, some in rows.items()]
    return request(replica_id=-1, isolation_level=level, topics=topics)


def _selected(metadata: Any, options: ReadOptions) -> list[TopicPartition]:
    """List, in sorted order, the partitions that the options select.

    Raises:
        UnknownPartitionError: a topic or partition in the options does not exist.
    """
    there = sorted(
        TopicPartition(topic.name, row.partition_index)
        for topic in metadata.topics
        if not (options.pattern is not None and _is_internal(topic))
        for row in topic.partitions
    )
    topics = {key.topic for key in there}
    for topic in options.topics:
        if topic not in topics:
            names = ", ".join(sorted(topics)[:NAMES_MAX]) or "none"
            raise UnknownPartitionError(
                f"there is no topic {topic!r} in this cluster; it has {names}",
                topic=topic,
                partition=-1,
            )
    for key in options.assigned:
        if key not in there and options.fails_on_data_loss:
            raise UnknownPartitionError(topic=key.topic, partition=key.partition)
    return [key for key in there if options.is_wanted(key)]


def _is_internal(topic: Any) -> bool:
    return bool(topic.is_internal) or topic.name in INTERNAL_TOPICS
