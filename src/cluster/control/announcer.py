"""Announce to all registered brokers each change that the controller sees.

A partition is announced as it is in the coordination store, with one exception: if its leader is
gone, it is announced without a leader. A topic is announced with all its partitions, even if some
partitions have no state. A client that saw only some of the partitions would send keys to the wrong
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cluster.control.announcements import Announced, Announcements, Place
from cluster.control.metadata_sender import MetadataSender
from cluster.pure.control_exchange import (
    ConnectionAccepted,
    ConnectionRefused,
    CreateTopic,
    DeleteTopic,
    RegistrationsRead,
    StateRead,
    Written,
)
from cluster.pure.controller import Controller
from cluster.pure.entry import Entry
from cluster.registration import NO_BROKER, NO_VERSION, Registration
from cluster.requests import RoleAnswer
from cluster.run.peer_connection import PeerConnection
from cluster.view import BrokerView, PartitionView
from cluster.wire.roles import Controlling
from cluster.wire.topic_ids import bytes_of
from cluster.znodes import BrokerNode, TopicNode


class Announcer:
    """Announce the changes of one reign of a controller.

    Threads: any thread may call `wait_known`. Only the controller's thread calls other methods.

    Attributes:
        brokers, topics: the brokers and topics that were read last; the controller sets both.
    """

    def __init__(
        self,
        sender: Controlling,
        room: Controller,
        connect: Callable[[int], PeerConnection],
        post: Callable[[Any], object],
    ) -> None:
        """Prepare; send nothing before `open`.

        Args:
            room: the rules of the controller, with the states of its partitions.
            connect: makes a new connection to a broker.
            post: queues events for the controller.
        """
        self._room, self._connect, self._post = room, connect, post
        self.brokers: Mapping[int, BrokerNode] = {}
        self.topics: Mapping[str, TopicNode] = {}
        self._announcements = Announcements(sender)
        self._seen: Mapping[int, Registration] = {}
        self._senders: dict[int, MetadataSender] = {}

    def open(self) -> None:
        """Begin to announce. Before this call, the caller must read all topics and brokers."""
        self._announcements.open()

    def close(self) -> None:
        """Ask the threads to end, without a wait for their end."""
        for sender in self._senders.values():
            sender.end()

    def wait_known(self, seconds: float) -> bool:
        """Wait until all live brokers know the present changes; return False if one does not."""
        return self._announcements.wait_known(seconds)

    def note(self, event: Any) -> None:
        """Announce the changes of an event. The rules must handle the event first."""
        match event:
            case StateRead(key) | Written(key) | CreateTopic(key) | DeleteTopic(key):
                self.announce([key])
            case RoleAnswer():
                self._note_answer(event)
            case RegistrationsRead() | ConnectionRefused() | ConnectionAccepted():
                self._announce_brokers()

    def _note_answer(self, answer: RoleAnswer) -> None:
        """Announce a partition, if an answer shows that a replica went offline or came back."""
        found = self._room.find(answer.topic, answer.partition)
        known = None if found is None else self._announcements.find(found[0])
        if found is None or known is None or known.view is None:
            return
        if answer.is_offline != (answer.broker in known.view.offline):
            self.announce([found[0]])

    def announce(self, places: Iterable[Place]) -> None:
        """Announce partitions, if they have changed."""
        self._announcements.announce([*self._rows(places)])

    def _announce_brokers(self) -> None:
        """Announce the live brokers. If a broker came or went, also announce all partitions."""
        registered, seen = self._room.registrations, self._room.seen
        if seen != self._seen:
            self._seen = dict(seen)
            self.announce([*self._room.entries])
        brokers = [
            BrokerView(broker, self.brokers[broker].endpoints, self.brokers[broker].rack)
            for broker in sorted(seen.keys() & self.brokers.keys())
        ]
        epochs = {broker: one.broker_epoch for broker, one in registered.items()}
        self._announcements.announce_brokers(brokers, epochs)
        for broker in self._senders.keys() - epochs.keys():
            self._senders.pop(broker).end()
        for broker in epochs.keys() - self._senders.keys():
            self._senders[broker] = MetadataSender(
                broker, self._announcements, self._connect(broker), self._post
            )

    def _rows(self, places: Iterable[Place]) -> Iterator[tuple[Place, Announced]]:
        for place in places:
            row = self._row(place)
            if row is not None:
                yield place, row

    def _row(self, place: Place) -> Announced | None:
        """Describe a partition: with its state, without a state, or as deleted."""
        entry, node = self._room.entries.get(place), self.topics.get(place[0])
        if entry is not None and entry.version != NO_VERSION:
            return Announced(bytes_of(entry.topic.topic_id), view_of(entry, self._room.seen))
        if node is not None and place[1] in node.partitions:
            replicas = node.partitions[place[1]]
            view = stateless_view_of(replicas, self._room.seen)
            return Announced(bytes_of(node.identity.topic_id), view)
        known = self._announcements.find(place)
        return None if known is None else known._replace(view=None)


def view_of(entry: Entry, seen: Mapping[int, Registration]) -> PartitionView:
    """Describe a partition, given the live brokers."""
    state = entry.state
    return PartitionView(
        state.leader if state.leader in seen else NO_BROKER,
        state.leader_epoch,
        state.replicas,
        tuple(state.isr),
        tuple([one for one in state.replicas if _is_offline(entry, one, seen)]),
        tuple([one for one in state.replicas if one in state.elr]) if state.elr else (),
        tuple([one for one in state.replicas if one in state.suspects]) if state.suspects else (),
    )


def _is_offline(entry: Entry, broker: int, seen: Mapping[int, Registration]) -> bool:
    """Report whether a replica's broker is gone, or has answered that the log dir failed."""
    registration, answer = seen.get(broker), entry.answers.get(broker)
    if registration is None:
        return True
    is_fresh = answer and answer.registration_epoch == registration.registration_epoch
    return bool(is_fresh and answer and answer.is_offline)


def stateless_view_of(replicas: tuple[int, ...], seen: Mapping[int, Registration]) -> PartitionView:
    """Describe a partition without a state, for example because none of its brokers runs."""
    offline = tuple([one for one in replicas if one not in seen])
    return PartitionView(NO_BROKER, 0, replicas, (), offline)
