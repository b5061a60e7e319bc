"""Send the controller's requests to one broker.

The requests that wait are sent together. For each partition, only the newest request is sent. If a
request cannot be sent, it is dropped. The controller repeats each request until the broker has
answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.wire.byte_cursor import WireError
from cluster.errors import BadRequestError, PeerError, PeerGoneError
from cluster.pure.control_exchange import ConnectionAccepted, ConnectionRefused
from cluster.requests import LeaderAndIsr, StopReplica
from cluster.run.peer_connection import PeerConnection
from cluster.wire import roles, stops
from cluster.wire.roles import Controlling, NamedRole
from cluster.wire.stops import NamedStop

LOG = logging.getLogger("cluster")
ANSWER_SECONDS = 10.0
BACKOFF_SECONDS = 0.2
BATCH_MAX = 1000  # the largest number of partitions in one message

Place = tuple[str, int]  # topic name or id, and partition
Addresses = Mapping[int, tuple[str, int]]


class BrokerSender:
    """A thread with a connection to one broker.

    Threads: any thread may call any method.
    """

    def __init__(
        self,
        broker: int,
        sender: Controlling,
        connection: PeerConnection,
        addresses: Callable[[], Addresses],
        post: Callable[[Any], object],
    ) -> None:
        """Start the thread.

        Args:
            addresses: returns the host and the port of each registered broker.
            post: queues events for the controller, without waiting.
        """
        self._broker, self._sender = broker, sender
        self._connection, self._addresses, self._post = connection, addresses, post
        self._changed = threading.Condition()  # guards the next three fields
        self._roles: dict[Place, NamedRole] = {}
        # The key has the topic id, because several deleted topics may have the same name.
        self._stops: dict[Place, NamedStop] = {}
        self._is_ended = False
        self._is_refused = False  # only the sender's thread uses this field
        self._thread = threading.Thread(target=self._run, name=f"control-{broker}", daemon=True)
        self._thread.start()

    def send(self, name: str, request: LeaderAndIsr | StopReplica) -> None:
        """Queue a request. The new request replaces a queued request about the same partition.

        If the replaced request says that the topic is new, the later request says so, too.
        If the later request did not say so, a broker with a bad log dir would never create the
        replica (P17).
        """
        with self._changed:
            if isinstance(request, LeaderAndIsr):
                place = name, request.partition
                earlier = self._roles.get(place)
                if earlier is not None and _is_same_replica(earlier.role, request):
                    request = request._replace(is_new=request.is_new or earlier.role.is_new)
                self._roles[place] = NamedRole(name, request)
            else:
                place = request.topic.topic_id, request.partition
                self._stops[place] = NamedStop(name, request)
            self._changed.notify_all()

    def end(self) -> None:
        """Ask the thread to end. A running request is interrupted."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._connection.close()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                self._send_stops(batch[1])
                self._send_roles(batch[0])
                if self._is_refused:
                    self._is_refused = False
                    self._post(ConnectionAccepted(self._broker))
            except PeerGoneError as error:
                LOG.info("%s", error)
                self._is_refused = True
                self._post(ConnectionRefused(self._broker))
                self._pause()
            except (PeerError, WireError, BadRequestError) as error:
                LOG.info("a request of the controller was not answered: %s", error)
                self._pause()
            except Exception:  # the controller asks again
                LOG.exception("a request of the controller to broker %d failed", self._broker)
                self._pause()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended, BACKOFF_SECONDS)

    def _take(self) -> tuple[list[NamedRole], list[NamedStop]] | None:
        """Take the requests for the newest broker epoch. Return None when the thread must end."""
        with self._changed:
            self._changed.wait_for(lambda: self._roles or self._stops or self._is_ended)
            if self._is_ended:
                return None
            waiting = [*self._roles.values()][:BATCH_MAX]
            for one in waiting:
                del self._roles[one.name, one.role.partition]
            stopping = _oldest(self._stops.values())
            for stop in stopping:
                del self._stops[stop.stop.topic.topic_id, stop.stop.partition]
        epochs = [one.role.broker_epoch for one in waiting]
        epochs += [one.stop.broker_epoch for one in stopping]
        newest = max(epochs)  # a broker obeys only requests for its newest epoch
        return (
            [one for one in waiting if one.role.broker_epoch == newest],
            [one for one in stopping if one.stop.broker_epoch == newest],
        )

    def _send_roles(self, waiting: list[NamedRole]) -> None:
        if not waiting:
            return
        message = roles.encode_roles(self._sender, waiting, self._addresses())
        answer = self._connection.ask(roles.API, roles.VERSION, message, ANSWER_SECONDS)
        for one in roles.decode_role_answers(answer, self._broker):
            self._post(one)

    def _send_stops(self, stopping: list[NamedStop]) -> None:
        if stopping:
            message = stops.encode_stops(self._sender, stopping)
            answer = self._connection.ask(stops.API, stops.VERSION, message, ANSWER_SECONDS)
            for one in stops.decode_stop_answers(answer, stopping, self._broker):
                self._post(one)


def _is_same_replica(one: LeaderAndIsr, other: LeaderAndIsr) -> bool:
    return one.topic.is_same(other.topic) and one.broker_epoch == other.broker_epoch


def _oldest(stops: Iterable[NamedStop]) -> list[NamedStop]:
    """Choose one deletion for each topic name and partition: the deletion of the oldest topic.

    The deletions are sent in one message. The answer to this message has names of topics, but no
    ids, so the message must not have two topics with the same name. The oldest topic is chosen for
    another reason. While a broker has a replica of an older topic, the broker does not know whether
    it has a replica of a newer topic with the same name.
    """
    chosen: dict[Place, NamedStop] = {}
    for one in sorted(stops, key=lambda one: one.stop.topic.created):
        chosen.setdefault((one.name, one.stop.partition), one)
    return [*chosen.values()]
