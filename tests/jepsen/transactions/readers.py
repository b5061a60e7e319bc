"""Consumers of committed records while the run lasts, and the last reads of everything."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from jepsen.clients import COMMON, READING, SECONDS
from jepsen.history import History, Record
from jepsen.transactions.kinds import LAST
from jepsen.transactions.outcomes import Place
from jepsen.transactions.producers import Clock
from jepsen.transactions.transformers import consumer_of

ASK_SECONDS, PAUSE_SECONDS = 5.0, 0.2
LEVELS = {"committed": "read_committed", "uncommitted": "read_uncommitted"}


class Reader:
    """A consumer of some partitions from the first offset on, without a group.

    Attributes:
        ends: where each partition ended when the consumer was at its end.
    """

    def __init__(self, servers: str, topics: Mapping[str, int], level: str, rack: str = "") -> None:
        self.errors: set[str] = set()
        self.ends: dict[Place, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, **COMMON, **READING, "isolation.level": level,
                "enable.partition.eof": True, "client.rack": rack,
            }
        )  # fmt: skip
        self._consumer.assign(
            [
                TopicPartition(topic, one, 0)
                for topic, partitions in topics.items()
                for one in range(partitions)
            ]
        )

    def poll(self) -> dict[Place, list[Record]]:
        """Read some records of any partitions."""
        found: dict[Place, list[Record]] = defaultdict(list)
        for message in self._consumer.consume(500, 0.1):
            place, error = (message.topic() or "", message.partition() or 0), message.error()
            offset = message.offset() or 0
            if error is None:
                value = (message.value() or b"").decode(errors="replace")
                found[place].append((offset, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[place] = offset
            else:
                self.errors.add(str(error))
        return found

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


class SessionReader:
    """Reads committed records while the run lasts, again and again from the first offset on."""

    def __init__(
        self,
        servers: str,
        history: History,
        clock: Clock,
        topics: Mapping[str, int],
        number: int,
        seed: int,
    ) -> None:
        self._servers, self._history, self._clock, self._topics = servers, history, clock, topics
        self._name = f"r{number}"
        self._rng = random.Random(f"{seed} {self._name}")
        self.errors: list[str] = []

    def run(self, life_seconds: float) -> None:
        """Begin a new session after some time, until the run ends."""
        life = 0
        while not self._clock.is_over:
            rack = self._rng.choice(["", "", "r1", "r2", "r3"])
            reader = Reader(self._servers, self._topics, "read_committed", rack)
            name, begun = f"{self._name}.{life}", time.monotonic()
            while time.monotonic() - begun < life_seconds and not self._clock.is_over:
                for (topic, one), records in reader.poll().items():
                    self._history.add(name, "poll", "ok", one, records=records, topic=topic)
            reader.close()
            self.errors += [f"{name}: {error}" for error in reader.errors]
            life += 1


class Ends:
    """Asks for the ends of partitions."""

    def __init__(self, servers: str, topics: Mapping[str, int]) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, **COMMON})
        self._places = [(topic, one) for topic, count in topics.items() for one in range(count)]

    def all(self, level: IsolationLevel) -> dict[Place, int]:
        """Ask for the last stable offsets, or for the high watermarks; -1 if nobody answers."""
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._places}
        found = dict.fromkeys(self._places, -1)
        with suppress(KafkaException):
            answers = self._admin.list_offsets(
                asked, isolation_level=level, request_timeout=ASK_SECONDS
            )
            for one, answer in answers.items():
                with suppress(KafkaException):
                    found[one.topic, one.partition] = answer.result(2 * ASK_SECONDS).offset
        return found

    def settle(self) -> tuple[dict[Place, int], dict[Place, int]]:
        """Wait until each last stable offset is at its high watermark, and give both."""
        deadline = time.monotonic() + SECONDS
        while True:
            stable = self.all(IsolationLevel.READ_COMMITTED)
            high = self.all(IsolationLevel.READ_UNCOMMITTED)
            is_known = -1 not in (*stable.values(), *high.values())
            if (is_known and stable == high) or time.monotonic() > deadline:
                return stable, high
            threading.Event().wait(PAUSE_SECONDS)


def read_to(
    servers: str,
    topics: Mapping[str, int],
    level: str,
    ends: Mapping[Place, int],
    rack: str = "",
) -> dict[Place, list[Record]]:
    """Read all partitions to their ends.

    Args:
        level: committed or uncommitted.
        rack: where the replicas are to be read; "" reads from the leaders.
    """
    reader = Reader(servers, topics, LEVELS[level], rack)
    found: dict[Place, list[Record]] = {place: [] for place in ends}
    deadline = time.monotonic() + SECONDS
    try:
        while any(reader.ends.get(place, -1) < end for place, end in ends.items()):
            assert time.monotonic() < deadline, (
                f"cannot read {level} records to {ends}, only to {reader.ends}: {reader.errors}"
            )
            for place, records in reader.poll().items():
                found[place] += records
    finally:
        reader.close()
    return found


def read_everything(
    servers: str,
    topics: Mapping[str, int],
    history: History,
    ends: Mapping[Place, int],
    racks: list[str],
) -> None:
    """Read all partitions in both ways, from the leaders and from the replicas in each rack."""
    for rack in ("", *racks):
        for level in LEVELS:
            for (topic, one), records in read_to(servers, topics, level, ends, rack).items():
                name = f"{LAST} in {rack}" if rack else LAST
                history.add(name, level, "ok", one, records=records, topic=topic)


def group_offsets(
    servers: str, group: str, places: list[Place], seconds: float = ASK_SECONDS
) -> dict[Place, int]:
    """Ask for the committed offsets of the group of transformers; -1 if there is none.

    Args:
        seconds: how long to ask; then the result is empty.
    """
    consumer, deadline = consumer_of(servers, group), time.monotonic() + seconds
    asked = [TopicPartition(*place) for place in places]
    try:
        while True:
            with suppress(KafkaException):
                found = consumer.committed(asked, timeout=ASK_SECONDS)
                return {(one.topic, one.partition): max(-1, one.offset) for one in found}
            if time.monotonic() > deadline:
                return {}
    finally:
        consumer.close()
