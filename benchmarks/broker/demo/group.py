"""Consume the flights in a group of confluent-kafka's consumers, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.broker.demo.ledger import Received
from benchmarks.broker.demo.load import TOPIC
from logstore.cli.demo.flights import Flights

GROUP = "departures"
TAKE_RECORDS = 2000
WAIT_SECONDS = 0.05
CATCH_UP_SECONDS_MAX = 60.0


class Group:
    """Hold the members of the group, and the records that all members got.

    Attributes:
        received: compares each record that a member got with its flight.
        commits: for each partition, the last offset whose commit was acknowledged.
        shares: the number of records that each member got.
        assigned: the number of partitions that each member has.
        rebalances: how often partitions were given to a member.
    """

    def __init__(self, address: str, parts: Sequence[Flights]) -> None:
        self._address = address
        self._stop = threading.Event()
        self._is_abandoned = False
        self._members: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self.received = Received(parts)
        self.commits = [0] * len(parts)
        self.shares: list[int] = []
        self.assigned: list[int] = []
        self.rebalances = 0

    def start(self, count: int) -> None:
        """Start some members."""
        self._stop.clear()
        self.shares, self.assigned = [0] * count, [0] * count
        self._members = [
            threading.Thread(target=self._consume, args=(number,), daemon=True)
            for number in range(count)
        ]
        for member in self._members:
            member.start()

    def stop(self) -> None:
        """Let all members leave the group."""
        self._stop.set()
        for member in self._members:
            member.join()
        self._members.clear()

    def wait_assigned(self) -> None:
        """Wait until all partitions are assigned, and each member has at least one partition."""
        self._wait(
            lambda: all(self.assigned) and sum(self.assigned) == len(self.commits),
            lambda: f"the members have {self.assigned} of {len(self.commits)} partitions",
        )

    def wait_for(self, ends: Sequence[int]) -> None:
        """Wait until the group has committed all records below `ends`."""
        self._wait(
            lambda: self.commits == list(ends),
            lambda: f"the group committed {self.commits} of {list(ends)} only",
        )

    def _wait(self, is_over: Callable[[], bool], complaint: Callable[[], str]) -> None:
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while not is_over():
            if self._errors:
                raise self._errors[0]
            if time.monotonic() > deadline:
                raise RuntimeError(complaint())
            time.sleep(0.005)

    def abandon(self) -> None:
        """Tell the members to end, and do not wait for them, because the broker may be gone."""
        self._is_abandoned = True
        self._stop.set()

    def committed(self) -> list[int]:
        """Ask the broker for the offsets that the group has committed."""
        consumer = Consumer(settings(self._address))
        try:
            places = [TopicPartition(TOPIC, number) for number in range(len(self.commits))]
            return [max(place.offset, 0) for place in consumer.committed(places, 20)]
        finally:
            consumer.close()

    def _consume(self, number: int) -> None:
        consumer = Consumer(settings(self._address))
        try:

            def note_assigned(_: object, places: list[TopicPartition]) -> None:
                self.assigned[number] = len(places)
                self.rebalances += bool(places)

            def note_revoked(_: object, places: list[TopicPartition]) -> None:
                self.assigned[number] = 0

            consumer.subscribe([TOPIC], on_assign=note_assigned, on_revoke=note_revoked)
            unsaved: dict[int, int] = {}
            while not self._stop.is_set() or (unsaved and not self._is_abandoned):
                messages = [
                    message
                    for message in consumer.consume(TAKE_RECORDS, WAIT_SECONDS)
                    if message.error() is None  # without the broker, some messages are errors
                ]
                unsaved |= self.received.take(messages)
                self.shares[number] += len(messages)
                if unsaved and self._commit(consumer, unsaved):
                    unsaved = {}
        except BaseException as error:
            self._errors.append(error)
            raise
        finally:
            consumer.close()

    def _commit(self, consumer: Any, ends: dict[int, int]) -> bool:
        places = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
        try:
            rows = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if self._stop.is_set() or not is_passing(error):
                raise
            return False  # the broker is down; the next turn commits again
        if any(row.error is not None for row in rows):
            return False
        for partition, end in ends.items():
            self.commits[partition] = end
        return True


def is_passing(error: KafkaException) -> bool:
    """Report whether an error only means that the broker is down for a moment."""
    return bool(error.args[0].retriable()) or error.args[0].code() < 0


def settings(address: str) -> dict[str, Any]:
    """Return the configuration of a member."""
    return {
        "bootstrap.servers": address,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 5,  # by default, a full queue stops the fetches for a second
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,  # the demo kills the broker, so errors are expected
    }
