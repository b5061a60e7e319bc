"""Number the changes of the metadata, so that each broker gets only changes that it lacks.

The newest state of each partition is kept once, for all brokers, in the order of the changes. So a
slow broker gets only the newest state of each partition. A broker that knows nothing gets all
partitions.

The deletion of a partition is kept, too. If there are too many deletions, the oldest deletions are
dropped. If a broker does not know a dropped deletion, it gets all partitions. If a topic is deleted
and created again, both the new topic and the deletion of the old topic are kept. The reason is that
the new topic may be deleted, too, while a broker still has the old topic. A broker that has the old
topic must learn that the old topic was deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cluster.view import BrokerView, PartitionView, TopicUpdate
from cluster.wire.metadata_updates import Update
from cluster.wire.roles import Controlling

DELETED_MAX = 10_000  # the largest number of deleted partitions that are kept

Place = tuple[str, int]  # topic name and partition
Key = tuple[Place, bytes]  # the key also has the topic id


class Announced(NamedTuple):
    """The announced state of a partition; its view is None if the partition was deleted."""

    topic_id: bytes
    view: PartitionView | None


class Heard(NamedTuple):
    """The last change that a broker knows, and the broker epoch in which it got the change."""

    broker_epoch: int
    last_change: int


NOTHING = Heard(-1, -1)


class Announcements:
    """The changes that one controller announces, and the brokers that must get them.

    Threads: any thread may call any method.
    """

    def __init__(self, sender: Controlling) -> None:
        """Begin without a change. Before `open`, no broker gets an update."""
        self._sender = sender
        lock = threading.Lock()  # guards everything below
        self._changed = threading.Condition(lock)
        self._confirmed = threading.Condition(lock)
        self._heard: dict[int, Heard] = {}  # what each broker has confirmed
        self._is_open = False
        self._last_change = self._dropped = 0
        self._changes: dict[Key, tuple[int, Announced]] = {}  # in the order of their numbers
        self._deleted: dict[Key, int] = {}  # in the order of their numbers
        self._newest: dict[Place, bytes] = {}  # the topic id that was announced last
        self._brokers: tuple[BrokerView, ...] = ()
        self._epochs: Mapping[int, int] = {}

    def open(self) -> None:
        """Let brokers get updates from now on. Before this call, all partitions must be known."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake all waiting threads, so that they check whether they must end."""
        with self._changed:
            self._changed.notify_all()

    def find(self, place: Place) -> Announced | None:
        """Return the last announced state of a partition."""
        found = self._changes.get((place, self._newest.get(place, b"")))
        return None if found is None else found[1]

    def announce(self, rows: Iterable[tuple[Place, Announced]]) -> None:
        """Announce partitions in one step. Leave out partitions that have not changed."""
        with self._changed:
            before = self._last_change
            for place, announced in rows:
                self._add(place, announced)
            if self._last_change != before:
                self._changed.notify_all()

    def announce_brokers(self, brokers: Sequence[BrokerView], epochs: Mapping[int, int]) -> None:
        """Announce the live brokers, if they have changed.

        Args:
            epochs: the broker epoch of each broker that must get the changes.
        """
        with self._changed:
            if tuple(brokers) != self._brokers:
                self._last_change += 1
            self._brokers, self._epochs = tuple(brokers), dict(epochs)
            self._changed.notify_all()
            self._confirmed.notify_all()  # a broker that came or went

    def wait(
        self, broker: int, heard: Heard, is_ended: Callable[[], bool], seconds: float | None = None
    ) -> bool:
        """Wait until a broker lacks a change, or the time is over; return False if `is_ended`."""
        with self._changed:
            self._changed.wait_for(lambda: is_ended() or self._is_news(broker, heard), seconds)
            return not is_ended()

    def confirm(self, broker: int, heard: Heard) -> None:
        """Note that a broker has confirmed a change, and all changes before it."""
        with self._changed:
            self._heard[broker] = heard
            self._confirmed.notify_all()

    def wait_known(self, seconds: float) -> bool:
        """Wait until all live brokers know the present changes; return False if one does not."""
        with self._changed:
            wanted = self._last_change
            return self._confirmed.wait_for(lambda: self._is_known(wanted), seconds)

    def _is_known(self, change: int) -> bool:
        """Check that all live brokers have confirmed a change in their present broker epochs."""
        for one in self._brokers:
            heard = self._heard.get(one.id, NOTHING)
            if heard.broker_epoch != self._epochs.get(one.id) or heard.last_change < change:
                return False
        return True

    def has_news(self, broker: int, heard: Heard) -> bool:
        """Report whether there is a change that a broker lacks."""
        with self._changed:
            return self._is_news(broker, heard)

    def news(self, broker: int, heard: Heard) -> Update | None:
        """Return the changes that a broker lacks; None if there are none."""
        with self._changed:
            if not self._is_news(broker, heard):
                return None
            epoch = self._epochs[broker]
            is_full = heard.broker_epoch != epoch or heard.last_change < self._dropped
            after = 0 if is_full else heard.last_change
            return Update(
                self._sender,
                epoch,
                is_full,
                after,
                self._last_change,
                self._brokers,
                _by_topic(self._all() if is_full else self._after(after)),
            )

    def _is_news(self, broker: int, heard: Heard) -> bool:
        epoch = self._epochs.get(broker)
        is_known = heard == Heard(epoch or 0, self._last_change)
        return self._is_open and epoch is not None and not is_known

    def _add(self, place: Place, announced: Announced) -> None:
        topic_id = announced.topic_id
        newest = self._newest.get(place, topic_id)
        if announced.view is not None and newest != topic_id:  # the topic was created again
            self._put(place, Announced(newest, None))
        if announced.view is not None or newest == topic_id:
            self._newest[place] = topic_id
        self._put(place, announced)

    def _put(self, place: Place, announced: Announced) -> None:
        key = place, announced.topic_id
        known = self._changes.get(key)
        if known is not None and known[1] == announced:
            return
        self._last_change += 1
        self._changes.pop(key, None)  # the key moves to the end of the order
        self._changes[key] = self._last_change, announced
        self._deleted.pop(key, None)
        if announced.view is None:
            self._deleted[key] = self._last_change
        if len(self._deleted) > DELETED_MAX:
            self._drop(next(iter(self._deleted)))

    def _drop(self, key: Key) -> None:
        """Forget a deletion."""
        self._dropped = self._deleted.pop(key)
        del self._changes[key]
        place, topic_id = key
        if self._newest.get(place) == topic_id:
            del self._newest[place]

    def _all(self) -> Iterator[tuple[Place, Announced]]:
        """Yield all partitions that exist."""
        for (place, _), (_, announced) in self._changes.items():
            if announced.view is not None:
                yield place, announced

    def _after(self, number: int) -> Iterator[tuple[Place, Announced]]:
        """Yield the partitions whose last change has a larger number than `number`."""
        for (place, _), (changed_at, announced) in reversed(self._changes.items()):
            if changed_at <= number:
                return
            yield place, announced


def _by_topic(rows: Iterable[tuple[Place, Announced]]) -> list[TopicUpdate]:
    """Group partitions by topic. If a topic was created again, there are two groups."""
    topics: dict[tuple[str, bytes], dict[int, PartitionView | None]] = {}
    for (name, number), (topic_id, view) in rows:
        topics.setdefault((name, topic_id), {})[number] = view
    return [TopicUpdate(name, topic_id, one) for (name, topic_id), one in topics.items()]
