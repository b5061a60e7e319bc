"""Fetch the batches of a piece from the leader of its partition, as a consumer does.

A fetch names the topic by its id. So if the topic is deleted and created again under the same name,
the new topic is not read. If the leader changes or fails, this code asks for the new leader, and
continues after the last batch that it returned. Each fetch names the leader epoch, so that a broker
which leads an older epoch refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError, PeerError
from cluster.spark import bounds
from cluster.spark.bounds import Place, places_of
from cluster.spark.cluster_map import NotKnownYetError, cluster_map
from cluster.spark.fetched_batches import FetchedBatches
from cluster.spark.pieces import ClusterPiece
from cluster.tools.asking import Asked
from logstore.errors import (
    CorruptRecordBatchError,
    LogStoreError,
    RecordExpansionError,
    UnknownPartitionError,
)
from logstore.format.batch import RecordBatch
from logstore.spark.options import ReadOptions
from logstore.spark.read.offsets import Reached, short_id
from logstore.spark.read.read_plan import lost

FETCH = (1, 13)  # the first version that names topics by their ids
FETCH_BYTES = 8 << 20
WAIT_MS = 500


class TopicGoneError(ClusterError):
    """Report that a topic was deleted after the read was planned."""

    reason: str


class LeaderReading:
    """Read the rest of a piece from the leader.

    Attributes:
        offset: all records of the piece before this offset were returned.
    """

    def __init__(self, piece: ClusterPiece, options: ReadOptions, offset: int) -> None:
        """Read nothing yet."""
        self.offset = offset
        self._piece, self._options = piece, options
        self._leader: Place | None = None
        self._missing_since: float | None = None

    def batches(self) -> Iterator[RecordBatch]:
        """Yield checked batches, up to the end of the piece.

        Raises:
            OffsetOutOfRangeError: records of the piece are gone, and `failOnDataLoss` is set.
            ClusterError: no leader sent records for too long, or the topic was deleted.
            CorruptRecordBatchError: the leader sent a damaged batch several times in a row.
        """
        deadline, before = self._deadline(), self.offset
        with bounds.connected(self._piece.servers) as asked:
            while self.offset < self._piece.end:
                try:
                    yield from self._step(asked)
                    failure: LogStoreError = NotKnownYetError(
                        reason=f"{self._piece.key}: the leader has no records from {self.offset} on"
                    )
                    if self.offset == before:
                        self._leader = None  # the leader may be cut off
                except TopicGoneError:
                    if self._options.fails_on_data_loss:
                        raise
                    return
                except (PeerError, NotKnownYetError, CorruptRecordBatchError) as error:
                    failure, self._leader = error, None
                if self.offset > before:
                    deadline, before = self._deadline(), self.offset
                    continue
                if time.monotonic() > deadline:
                    raise failure
                time.sleep(bounds.PAUSE_SECONDS)

    @staticmethod
    def _deadline() -> float:
        return time.monotonic() + bounds.SECONDS_MAX

    def _step(self, asked: Asked) -> Iterator[RecordBatch]:
        """Fetch once, and yield the batches of the answer."""
        if self._leader is None:
            self._leader = self._find_leader()
        leader, epoch = self._leader.leader, self._leader.leader_epoch
        row = self._row(asked.ask(leader, FETCH, self._request(epoch)))
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leader = None
            self._skip_lost()
            return
        if code:
            raise bounds.error_of(self._piece.key, code)
        is_committed = self._options.is_committed
        reached = row.last_stable_offset if is_committed else row.high_watermark
        if not row.records and reached >= self._piece.end:
            self.offset = self._piece.end  # the last offsets have no records
            return
        aborted = row.aborted_transactions if is_committed else None
        found = FetchedBatches(row.records or b"", aborted or (), self.offset, self._piece.end)
        try:
            for batch in found.batches():
                yield batch
                self.offset = batch.last_offset + 1
            self.offset = found.offset
        except RecordExpansionError:
            raise
        except ValueError as error:
            reason = f"the leader of {self._piece.key} sent a damaged batch: {error}"
            raise CorruptRecordBatchError(
                path=f"{leader.host}:{leader.port}", position=0, reason=reason
            ) from error

    def _find_leader(self) -> Place:
        """Ask for the leader.

        Raises:
            TopicGoneError: the name now has another topic, or the partition is missing for some
                seconds.
        """
        key, now = self._piece.key, time.monotonic()
        places, missing = places_of(cluster_map(self._piece.servers, [key.topic]), [key])
        if missing:
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now <= self._missing_since + bounds.MISSING_SECONDS:
                raise NotKnownYetError(reason=f"no broker has {key}")
            raise self._gone("the topic was deleted")
        self._missing_since = None
        if places[key].topic_id != self._piece.topic_id:
            raise self._gone("the topic was deleted and created again")
        return places[key]

    def _gone(self, why: str) -> TopicGoneError:
        piece = self._piece
        return TopicGoneError(
            f"{piece.key}: offsets {self.offset}..{piece.end} were planned, and {why}. Call load() "
            "again, or set failOnDataLoss=false to continue without them",
            reason=why,
        )

    def _request(self, leader_epoch: int) -> Any:
        request, piece = m.FetchRequest, self._piece
        partition = request.FetchPartition(
            partition=piece.partition, current_leader_epoch=leader_epoch,
            fetch_offset=self.offset, partition_max_bytes=FETCH_BYTES,
        )  # fmt: skip
        topic = request.FetchTopic(topic_id=piece.topic_id, partitions=[partition])
        return request(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic],
            isolation_level=int(self._options.is_committed),
        )  # fmt: skip

    def _row(self, answer: Any) -> Any:
        """Return the row of the partition.

        If the row is missing, raise an error that allows a retry.
        """
        if answer.error_code:
            raise bounds.error_of(self._piece.key, ErrorCode(answer.error_code))
        for topic in answer.responses:
            for row in topic.partitions:
                is_mine = row.partition_index == self._piece.partition
                if is_mine and topic.topic_id == self._piece.topic_id:
                    return row
        raise NotKnownYetError(reason=f"{self._piece.key}: the answer does not have the partition")

    def _skip_lost(self) -> None:
        """Skip records that do not exist any more; raise an error if the options forbid the skip.

        If the log ends before the wanted offset, an old leader may have answered. So the question
        is repeated for some seconds (`bounds.look`).
        """
        key, piece = self._piece.key, self._piece
        options = self._options._replace(brokers=piece.servers)
        known = Reached({key: self.offset}, {key: short_id(piece.topic_id)})
        try:
            span = bounds.look([key], options, known).get(key)
        except UnknownPartitionError as error:
            raise self._gone("the topic was deleted") from error
        if span is None:
            raise self._gone("the topic was deleted")
        if span.log.topic_id != piece.topic_id:
            raise self._gone("the topic was deleted and created again")
        first, last = span.start, span.log.log_end_offset
        if first <= self.offset <= last:
            raise NotKnownYetError(reason=f"{key}: the leader has offset {self.offset} again")
        if self._options.fails_on_data_loss:
            raise lost(key, self.offset, first, last, "a task")
        self.offset = min(first, piece.end) if first > self.offset else piece.end


__all__ = ["LeaderReading", "TopicGoneError"]
