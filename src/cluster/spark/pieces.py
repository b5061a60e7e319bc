"""Cut ranges of offsets into pieces, each with the places of its replicas.

    DescribeLogDirs to each broker -> path and directory id of its log dirs, size of each replica

A piece names every in-sync replica, because any of these replicas may be on the machine of the
task. The path of a log dir alone proves nothing, because another machine may have another disk at
the same path. So a piece also has the directory ids, which are random and are stored on the disks.

Kafka's own brokers send no directory ids, so the tasks fetch all records of Kafka's brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from cluster.errors import PeerError
from cluster.spark.bounds import ClusterSpan, connected, retried
from cluster.spark.cluster_map import cluster_map
from cluster.tools.asking import Asked
from logstore.disk.documents.meta_properties import is_id
from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets, ReadOptions
from logstore.spark.read.read_plan import cut, piece_bytes_of

ASKED_AT_ONCE_MAX = 16


class Holder(NamedTuple):
    """A broker that has an in-sync replica.

    Attributes:
        log_dirs: for each working log dir of the broker, its path and directory id. The replica is
            in one of these log dirs, and may move to another one before a task reads it.
    """

    broker: int
    log_dirs: tuple[tuple[str, str], ...]


class DirsFound(NamedTuple):
    """The log dirs of a broker that work, and the sizes of its replicas in bytes."""

    log_dirs: tuple[tuple[str, str], ...]
    sizes: Mapping[TopicPartition, int]


@dataclass
class ClusterPiece(InputPartition):
    """The records that one task reads. This object can be pickled.

    Attributes:
        holders: the brokers with in-sync replicas, the leader first.
        is_sole: whether the partition has only one replica. All records in the log of a sole
            replica count as replicated.
        servers: the addresses of all brokers.
    """

    topic: str
    partition: int
    topic_id: bytes
    start: int
    end: int
    holders: tuple[Holder, ...]
    is_sole: bool
    servers: str

    def __post_init__(self) -> None:
        """Describe the piece for Spark."""
        super().__init__((self.topic, self.partition, self.start, self.end))

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def pieces_of(
    spans: Mapping[TopicPartition, ClusterSpan],
    starts: PartitionOffsets,
    ends: Mapping[TopicPartition, int],
    options: ReadOptions,
) -> list[ClusterPiece]:
    """Cut the ranges into pieces of similar size, at least as many as the options say."""
    wanted = [key for key in spans if starts[key] < ends[key]]
    if not wanted:
        return []
    brokers = sorted(
        retried(lambda is_late: cluster_map(options.brokers, [])).brokers.values(),
        key=lambda one: one.node_id,
    )
    found = dirs_of(brokers, spans, wanted)
    sizes = {key: _size_of(key, spans[key], found, ends[key] - starts[key]) for key in wanted}
    piece_bytes = piece_bytes_of(sum(sizes.values()), options)
    servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
    pieces = []
    for key in wanted:
        span, start, end = spans[key], starts[key], ends[key]
        holders = tuple(
            Holder(broker, found[broker].log_dirs)
            for broker in span.place.in_sync
            if options.uses_local_replicas and broker in found and key in found[broker].sizes
        )
        count = -(-sizes[key] // piece_bytes) or 1
        most = -(-(end - start) // count)
        if options.records_per_piece_max is not None:
            most = min(most, options.records_per_piece_max)
        is_sole = len(span.place.replicas) == 1
        pieces += [
            ClusterPiece(*key, span.log.topic_id, *part, holders, is_sole, servers)
            for part in cut(start, end, most)
        ]
    return pieces


def dirs_of(
    brokers: Sequence[Any],
    spans: Mapping[TopicPartition, ClusterSpan],
    keys: Sequence[TopicPartition],
) -> dict[int, DirsFound]:
    """Ask the brokers with in-sync replicas for their log dirs, several brokers at once.

    The result lacks a broker that does not answer. The tasks do not read the files of a broker that
    is not in the result.
    """
    wanted: dict[int, list[TopicPartition]] = {}
    for key in keys:
        for broker in spans[key].place.in_sync:
            wanted.setdefault(broker, []).append(key)
    asked = [one for one in brokers if one.node_id in wanted]

    def ask(broker: Any) -> DirsFound | None:
        server = f"{broker.host}:{broker.port}"
        try:
            with connected(server) as client:
                return _found(client, broker, wanted[broker.node_id])
        except PeerError:
            return None

    with ThreadPoolExecutor(min(max(len(asked), 1), ASKED_AT_ONCE_MAX)) as pool:
        answers = dict(zip((one.node_id for one in asked), pool.map(ask, asked), strict=True))
    return {broker: found for broker, found in answers.items() if found is not None}


def _found(client: Asked, broker: Any, keys: Sequence[TopicPartition]) -> DirsFound:
    """Ask one broker. Leave out log dirs without an id, and copies that moves make."""
    log_dirs, sizes = [], {}
    for row in client.log_dirs(broker, keys):
        if row.error_code:
            continue
        if is_id(row.directory_id) and row.log_dir.startswith("/"):
            log_dirs.append((row.log_dir, row.directory_id))
        for topic in row.topics:
            for one in topic.partitions:
                if not one.is_future_key:
                    key = TopicPartition(topic.name, one.partition_index)
                    sizes[key] = max(one.partition_size, 0)
    return DirsFound(tuple(log_dirs), sizes)


def _size_of(
    key: TopicPartition, span: ClusterSpan, found: Mapping[int, DirsFound], count: int
) -> int:
    """Estimate how many bytes are stored for this number of offsets."""
    sizes = [found[one].sizes.get(key, 0) for one in span.place.in_sync if one in found]
    whole = max(span.log.log_end_offset - span.start, 1)
    return max(sizes, default=0) * min(count, whole) // whole
