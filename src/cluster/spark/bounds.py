"""Ask the leaders of partitions which offsets can be read.

    Metadata -> the leader of each partition -> ListOffsets: earliest, high watermark, last stable

Several brokers are asked for the metadata (`cluster_map`). Each question to a leader names the
leader epoch, so that a broker which leads an older epoch refuses it.

A range ends at the high watermark. If only committed records are wanted, the range ends at the last
stable offset. Right after an election, a leader does not know its high watermark yet. So a question
that gets a retriable error is repeated with new metadata, for at most `SECONDS_MAX`. A partition
counts as deleted only if it is missing for `MISSING_SECONDS`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError, PeerError
from cluster.spark.cluster_map import ANSWER_SECONDS, ClusterMap, NotKnownYetError, cluster_map
from cluster.tools.asking import Asked, parse_servers
from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.names import TopicPartition
from logstore.spark.options import ReadOptions
from logstore.spark.read.offsets import NOTHING, Reached, same, short_id
from logstore.spark.read.read_plan import INTERNAL_TOPICS

LOG = logging.getLogger("logstore")
LIST_OFFSETS = (2, 7)
EARLIEST, LATEST = -2, -1
UNCOMMITTED, COMMITTED = 0, 1
SECONDS_MAX, PAUSE_SECONDS = 30.0, 0.1
OLD_LEADER_SECONDS = MISSING_SECONDS = 10.0
NAMES_MAX = 10

Found = TypeVar("Found")


class Place(NamedTuple):
    """The brokers of a partition, as the metadata of a broker says.

    Attributes:
        leader: the broker that leads the partition, as a row of the metadata; None if there is
            none.
        leader_epoch: the number of the election; -1 if it is not known.
        in_sync: the ids of the in-sync replicas, the leader first.
        replicas: the ids of all replicas.
    """

    topic_id: bytes
    leader: Any
    leader_epoch: int
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


def survey(options: ReadOptions, known: Reached = NOTHING) -> dict[TopicPartition, ClusterSpan]:
    """Select partitions, and find their readable ranges; see `look`.

    Raises:
        LogStoreError: a partition does not exist or has no leader, or too few brokers answer.
    """

    def attempt(is_late: bool) -> list[TopicPartition]:
        found = cluster_map(options.brokers)
        try:
            keys = _selected(found, options)
            lacks = options.fails_on_data_loss and any(
                key not in keys and options.is_wanted(key) for key in known.offsets
            )
            is_complete = found.is_certain or (options.pattern is None and not lacks)
            if is_complete and (not lacks or is_late):
                return keys
        except UnknownPartitionError:
            if is_late and found.is_certain and found.codes.keys().isdisjoint(options.topics):
                raise
        raise NotKnownYetError(reason="the brokers do not know all wanted partitions")

    return look(retried(attempt), options, known)


def look(
    keys: Sequence[TopicPartition], options: ReadOptions, known: Reached = NOTHING
) -> dict[TopicPartition, ClusterSpan]:
    """Find the present readable ranges of partitions.

    If the options accept data loss, partitions that do not exist are left out. A replaced leader
    that does not know of its replacement may answer with a high watermark that is too low. So if a
    log ends before an offset in `known`, the question is repeated for some seconds.
    """
    deadline = time.monotonic() + OLD_LEADER_SECONDS
    while True:
        spans = _look_once(keys, options)
        ids = {key: short_id(span.log.topic_id) for key, span in spans.items()}
        offsets = same(known, ids)  # a topic that was created again may be shorter
        is_short = any(span.log.log_end_offset < offsets.get(key, 0) for key, span in spans.items())
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
    """Prepare questions to a cluster. Raises ValueError if an address cannot be read."""
    return Asked(parse_servers(servers), ANSWER_SECONDS)


def repeated(
    servers: str,
    keys: Sequence[TopicPartition],
    find: Callable[[Asked, Mapping[TopicPartition, Place]], Found],
    *,
    is_strict: bool = True,
) -> Found:
    """Repeat `find` with the places of partitions while it raises NotKnownYetError.

    Args:
        is_strict: whether a partition that does not exist is an error.
    """
    topics = sorted({key.topic for key in keys})

    def attempt(is_late: bool) -> Found:
        places: dict[TopicPartition, Place] = {}
        missing: list[TopicPartition] = []
        if keys:
            places, missing = places_of(cluster_map(servers, topics), keys)
        if missing and not is_late:
            raise NotKnownYetError(reason=f"no broker has {missing[0]}")
        if missing and is_strict:
            raise UnknownPartitionError(topic=missing[0].topic, partition=missing[0].partition)
        for key in missing:
            LOG.warning("%s does not exist any more, and is left out", key)
        with connected(servers) as asked:
            return find(asked, places)

    return retried(attempt)


def retried(attempt: Callable[[bool], Found]) -> Found:
    """Repeat `attempt` while it raises NotKnownYetError or PeerError.

    Args:
        attempt: gets True if a partition counts as deleted when no broker has it now.
    """
    begun = time.monotonic()
    while True:
        try:
            return attempt(time.monotonic() > begun + MISSING_SECONDS)
        except (NotKnownYetError, PeerError):
            if time.monotonic() > begun + SECONDS_MAX:
                raise
        time.sleep(PAUSE_SECONDS)


def places_of(
    found: ClusterMap, keys: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Place], list[TopicPartition]]:
    """Find the leaders and replicas of partitions; also return the partitions that do not exist.

    Raises:
        NotKnownYetError: a partition has no leader now, or may exist although no broker has it.
        ClusterError: a broker refuses to describe a topic.
    """
    places: dict[TopicPartition, Place] = {}
    missing = []
    for key in keys:
        code, row = found.codes.get(key.topic), found.row_of(key)
        if code:
            raise error_of(key, code)
        if row is None and not found.is_certain:
            raise NotKnownYetError(reason=f"{key}: too few brokers know the controller")
        if row is None:
            missing.append(key)
            continue
        leader = found.brokers.get(row.leader_id)
        if leader is None:
            raise NotKnownYetError(reason=f"{key} has no leader that lives")
        others = [one for one in row.isr_nodes if one != row.leader_id]
        places[key] = Place(
            found.topics[key.topic].topic_id, leader, row.leader_epoch,
            (row.leader_id, *others), tuple(row.replica_nodes),
        )  # fmt: skip
    return places, missing


def error_of(key: TopicPartition, code: ErrorCode) -> LogStoreError:
    """Make the error for a code; NotKnownYetError if the same question may succeed later."""
    reason = f"{key}: the broker answers {code.name}"
    if code.is_retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return NotKnownYetError(reason=reason)
    return ClusterError(reason)


def offsets_at(
    asked: Asked, places: Mapping[TopicPartition, Place], timestamp: int, level: int
) -> dict[TopicPartition, int]:
    """Ask the leaders for the offsets at a timestamp, `EARLIEST` or `LATEST`; -1 if there is none.

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
        answer = asked.ask(leader, LIST_OFFSETS, _request(keys, places, timestamp, level))
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


def _request(
    keys: Iterable[TopicPartition],
    places: Mapping[TopicPartition, Place],
    timestamp: int,
    level: int,
) -> Any:
    request = m.ListOffsetsRequest
    rows: dict[str, list[Any]] = {}
    for key in keys:
        epoch = places[key].leader_epoch
        one = request.ListOffsetsPartition(key.partition, epoch, timestamp)
        rows.setdefault(key.topic, []).append(one)
    topics = [request.ListOffsetsTopic(name, some) for name, some in rows.items()]
    return request(replica_id=-1, isolation_level=level, topics=topics)


def _selected(found: ClusterMap, options: ReadOptions) -> list[TopicPartition]:
    """List, in sorted order, the partitions that the options select.

    Raises:
        UnknownPartitionError: a topic or partition in the options does not exist.
    """
    there = sorted(
        TopicPartition(name, partition)
        for name, topic in found.topics.items()
        if not (options.pattern is not None and (topic.is_internal or name in INTERNAL_TOPICS))
        for partition in topic.partitions
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
