"""Send the markers of coordinators to other brokers.

For each broker there are two connections: one for markers, one for questions to the coordinators on
this broker (`coordinator_questions`). One thread at a time uses a connection.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from broker.catalog.leadership import NO_LEADER, NotServedError
from broker.transaction_coordinator.marker_routes import (
    HERE,
    Fenced,
    MarkerRow,
    Result,
    Told,
)
from broker.transactions.transaction import Place
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import WriteTxnMarkersRequest
from cluster.errors import PeerError
from cluster.run.metadata_cache import MetadataCache
from cluster.run.peer_connection import PeerConnection
from cluster.serve.cluster_leadership import NO_METADATA, ClusterLeadership

MARKERS, MARKERS_VERSION, MARKERS_SECONDS = 27, 1, 15.0
# How long a topic must be unknown before it counts as deleted.
# The previous coordinator of the transaction may have had newer metadata than this broker.
UNKNOWN_SECONDS = 10.0
FORGET_SECONDS = 60.0  # a marker is tried again much sooner, even if a broker does not answer

Connect = Callable[[int], PeerConnection]


class Peers:
    """One connection to each broker, for one kind of requests. Any thread may call `ask`."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # guards the next two fields
        self._is_closed = False
        self._known: dict[int, tuple[threading.Lock, PeerConnection]] = {}

    def ask(self, broker: int, key: int, version: int, message: Any, seconds: float) -> Any:
        """Send a request to a broker, and return its answer.

        Raises:
            PeerError, WireError: there was no valid answer in time.
        """
        with self._lock:
            if self._is_closed:
                raise PeerError(address=f"broker {broker}", reason="this broker stops")
            if broker not in self._known:
                self._known[broker] = threading.Lock(), self._connect(broker)
            lock, connection = self._known[broker]
        if not lock.acquire(timeout=seconds):
            raise PeerError(
                address=connection.address,
                reason="other requests wait for the connection to this broker",
            )
        try:
            return connection.ask(key, version, message, seconds)
        finally:
            lock.release()

    def close(self) -> None:
        """Close all connections. A running `ask` fails."""
        with self._lock:
            self._is_closed = True
            known = list(self._known.values())
        for _, connection in known:
            connection.close()


class ClusterRoutes:
    """Implement `MarkerRoutes` for a broker of a cluster."""

    def __init__(
        self,
        leadership: ClusterLeadership,
        metadata: MetadataCache,
        peers: Peers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._leadership, self._metadata, self._peers = leadership, metadata, peers
        self._lock = threading.Lock()
        # When a partition became unknown, and when a thread last asked about the partition. The
        # partition of the latest question is last. `_lock` guards it.
        self._unknown: OrderedDict[Place, tuple[float, float]] = OrderedDict()

    def route(self, place: Place) -> int | None:
        """Return the leader of a partition; None if its topic was deleted.

        Raises:
            NotServedError: no leader is known now.
        """
        view = self._metadata.view
        topic = view.topics.get(place[0])
        if not view.is_known:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            raise NotServedError(code=code, reason=f"{place}: {NO_METADATA}")
        if topic is None or place[1] not in topic.partitions:
            if self._is_deleted(place):
                return None
            raise NotServedError(
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=f"{place} is not known"
            )
        with self._lock:
            self._unknown.pop(place, None)
        leader = self._leadership.facts_of(*place).leader.id
        if leader == NO_LEADER:
            raise NotServedError(
                code=ErrorCode.LEADER_NOT_AVAILABLE, reason=f"no broker leads {place}"
            )
        return HERE if leader == self._leadership.broker_id else leader

    def _is_deleted(self, place: Place) -> bool:
        """Report whether a partition that is not known now counts as deleted.

        If no thread has asked for a partition for `FORGET_SECONDS`, the earlier questions are
        forgotten, because the partition may have been known in between.
        """
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            since, _ = self._unknown.pop(place, (now, now))
            if now - since > UNKNOWN_SECONDS:
                return True
            self._unknown[place] = since, now
            return False

    def _forget_old(self, now: float) -> None:
        """Forget the partitions that no thread has asked for; the caller holds `_lock`."""
        while self._unknown:
            first, (_, asked_at) = next(iter(self._unknown.items()))
            if now - asked_at <= FORGET_SECONDS:
                return
            del self._unknown[first]

    def send(self, broker: int, rows: Sequence[MarkerRow], told: Told) -> None:
        """Send markers to another broker. Call `told` with the result of each marker."""
        numbers = {(row.producer_id, row.place): number for number, row in enumerate(rows)}
        try:
            answer = self._peers.ask(
                broker, MARKERS, MARKERS_VERSION, _markers(rows), MARKERS_SECONDS
            )
        except (PeerError, WireError):
            return  # the caller sends markers again if they have no result
        for marker in answer.markers:
            for topic in marker.topics:
                for one in topic.partitions:
                    place = str(topic.name), one.partition_index
                    number = numbers.get((marker.producer_id, place))
                    if number is not None:
                        told(number, _result_of(one))


def _markers(rows: Sequence[MarkerRow]) -> Any:
    Marker = WriteTxnMarkersRequest.WritableTxnMarker  # noqa: N806 - a class
    Topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic  # noqa: N806 - a class
    by_producer: dict[tuple[int, int, bool, int, bool], dict[str, list[int]]] = {}
    for row in rows:
        topics = by_producer.setdefault((*row[:4], row.is_raised), {})
        topics.setdefault(row.place[0], []).append(row.place[1])
    return WriteTxnMarkersRequest(
        [
            Marker(
                producer_id, epoch, is_commit, [Topic(*one) for one in topics.items()],
                coordinator_epoch, is_raised,
            )
            for (producer_id, epoch, is_commit, coordinator_epoch, is_raised), topics
            in by_producer.items()
        ]
    )  # fmt: skip


def _result_of(row: Any) -> Result:
    code = code_of(row.error_code)
    if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return Fenced(row.coordinator_epoch)
    return code


def code_of(number: int) -> ErrorCode:
    """Read an error code of another broker; an unknown code counts as an unexpected error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
