"""Producers and consumers that record what they do, and what becomes of it."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from jepsen.history import History, Record

SECONDS = 90.0
IN_FLIGHT_MAX = 500
POLL_SECONDS = 0.01
COMMON = {
    "log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.interval.ms": 1_000, "socket.connection.setup.timeout.ms": 1_500,
    "socket.timeout.ms": 10_000,
}  # fmt: skip
PRODUCING = {
    "acks": "all", "enable.idempotence": True, "linger.ms": 5, "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200, "message.timeout.ms": 600_000,
    "debug": "eos", "log_level": 7,  # which sequences were sent again, and why
}  # fmt: skip
READING = {
    "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50,
}  # fmt: skip
names = itertools.count()


class Writer:
    """One producer; its values are its name and numbers that rise.

    Threads: one thread calls the methods.
    """

    def __init__(
        self, servers: str, topic: str, history: History, name: str, **settings: object
    ) -> None:
        self.name, self.in_flight = name, 0
        self.acknowledged, self.failed = 0, 0
        self.errors: dict[str, int] = defaultdict(int)
        self._topic, self._history = topic, history
        self._numbers = itertools.count()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, **COMMON, **PRODUCING, **settings}
        )

    def send(self, partition: int) -> None:
        """Send the next value."""
        value = f"{self.name}:{next(self._numbers)}"
        self._history.add(self.name, "send", "invoke", partition, value)
        self.in_flight += 1

        def told(error: Any, message: Any) -> None:
            self._end(partition, value, error, message)

        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=told)

    def _end(self, partition: int, value: str, error: Any, message: Any) -> None:
        self.in_flight -= 1
        if error is None:
            self.acknowledged += 1
            offset = message.offset()  # None if an earlier try was written, and its answer lost
            offset = -1 if offset is None else offset
            self._history.add(self.name, "send", "ok", partition, value, offset)
            return
        self.failed += 1
        self.errors[error.name()] += 1
        # Also what waits for its next try may have been written by an earlier one.
        self._history.add(self.name, "send", "info", partition, value)

    def poll(self, seconds: float = POLL_SECONDS) -> None:
        """Hear of what has ended."""
        self._producer.poll(seconds)

    def settle(self, seconds: float) -> bool:
        """Wait until each value has ended; return whether all have."""
        return not self._producer.flush(seconds)

    def give_up(self) -> None:
        """Forget what has not ended, as a client that dies does."""
        self._producer.purge()
        self._producer.flush(SECONDS)


class Load:
    """Writers and readers in threads, for as long as a run lasts.

    Each thread has one client after another: some writers die, and readers begin again at the
    first offset.
    """

    def __init__(
        self, servers: str, topic: str, partitions: int, history: History, rate: float
    ) -> None:
        self._servers, self._topic = servers, topic
        self._partitions, self._history, self._rate = partitions, history, rate
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.unsettled: list[str] = []
        self.errors: list[str] = []

    def start(self, writers: int, readers: int, life_seconds: float) -> None:
        """Start the threads.

        Args:
            life_seconds: after which time a reader, and the first writer, are replaced.
        """
        for number in range(writers):
            life = life_seconds if number == 0 else float("inf")
            self._threads.append(
                threading.Thread(target=self._write_on, args=(f"w{number}", life), daemon=True)
            )
        for number in range(readers):
            self._threads.append(
                threading.Thread(target=self._read, args=(f"r{number}", life_seconds), daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def _write_on(self, name: str, life_seconds: float) -> None:
        """Note a fatal error of a producer: its broker refused what it must not refuse."""
        try:
            self._write(name, life_seconds)
        except confluent_kafka.KafkaException as error:
            self.unsettled.append(f"{name}: {error}")

    def _write(self, name: str, life_seconds: float) -> None:
        for life in itertools.count():
            writer = Writer(self._servers, self._topic, self._history, f"{name}.{life}")
            begun, sent = time.monotonic(), 0
            while not self._ended.is_set() and time.monotonic() - begun < life_seconds:
                due = (time.monotonic() - begun) * self._rate
                while sent < due and writer.in_flight < IN_FLIGHT_MAX:
                    writer.send(sent % self._partitions)
                    sent += 1
                sent = max(sent, int(due))
                writer.poll()
            if self._ended.is_set():
                if not writer.settle(SECONDS):
                    self.unsettled.append(f"{writer.name}: {writer.in_flight} values")
                self.errors += [f"{writer.name}: {key} {n}" for key, n in writer.errors.items()]
                return
            writer.give_up()

    def _read(self, name: str, life_seconds: float) -> None:
        for life in itertools.count():
            reader = Reader(self._servers, self._topic, self._partitions)
            begun = time.monotonic()
            while time.monotonic() - begun < life_seconds and not self._ended.is_set():
                for partition, records in reader.poll().items():
                    self._history.add(f"{name}.{life}", "poll", "ok", partition, records=records)
            reader.close()
            self.errors += [f"{name}.{life}: {error}" for error in reader.errors]
            if self._ended.is_set():
                return

    def finish(self) -> None:
        """Send no more, and wait until each value has ended."""
        self._ended.set()
        for thread in self._threads:
            thread.join()


class Reader:
    """A consumer of all partitions from the first offset on, without a group."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.errors: set[str] = set()
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, **COMMON, **READING}
        )
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])

    def poll(self) -> dict[int, list[Record]]:
        """Read some records of any partitions."""
        found: dict[int, list[Record]] = defaultdict(list)
        for message in self._consumer.consume(500, 0.1):
            if message.error() is not None:
                self.errors.add(str(message.error()))
                continue
            value = (message.value() or b"").decode(errors="replace")
            found[message.partition()].append((message.offset(), value))
        return found

    def end(self, topic: str, partition: int) -> int:
        """Ask for the high watermark; -1 if nobody answers."""
        with suppress(confluent_kafka.KafkaException):
            asked = TopicPartition(topic, partition)
            return int(self._consumer.get_watermark_offsets(asked, timeout=5.0)[1])
        return -1

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def read_all(servers: str, topic: str, partitions: int, history: History) -> None:
    """Read all partitions to their ends, as the last read of a history."""
    reader = Reader(servers, topic, partitions)
    deadline = time.monotonic() + SECONDS
    ends = dict.fromkeys(range(partitions), -1)
    found: dict[int, list[Record]] = defaultdict(list)
    while -1 in ends.values():
        assert time.monotonic() < deadline, f"no end of a partition: {ends}"
        ends = {one: reader.end(topic, one) for one in ends}
    while any(
        len(found[one]) == 0 or found[one][-1][0] < end - 1 for one, end in ends.items() if end
    ):
        assert time.monotonic() < deadline, f"cannot read to {ends}: {reader.errors}"
        for partition, records in reader.poll().items():
            found[partition] += records
    reader.close()
    for partition in range(partitions):
        history.add("last", "read", "ok", partition, records=found[partition])


class Placed(NamedTuple):
    """Where a partition is: its leader, the ISR and all replicas; lists rise."""

    leader: int
    isr: list[int]
    replicas: list[int]


class Admin:
    """Creates the topic, and asks for leaders and ISRs."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, **COMMON})

    def create(
        self, topic: str, partitions: int, replicas: list[list[int]] | None = None, **settings: str
    ) -> None:
        """Create a topic with three replicas of each partition, where the brokers place them.

        Args:
            replicas: the brokers of each partition, if they are chosen here; the first one leads.
        """
        config = {key.replace("_", "."): value for key, value in settings.items()}
        placed = {"replica_assignment": replicas} if replicas else {"replication_factor": 3}
        new = NewTopic(topic, partitions, config=config, **placed)
        deadline, pause = time.monotonic() + SECONDS, threading.Event()
        while True:
            try:
                self._admin.create_topics([new])[topic].result(SECONDS)
                return
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                assert time.monotonic() < deadline, error
                pause.wait(0.2)

    def partitions(self, topic: str) -> dict[int, Placed]:
        """Ask where each partition is; empty if nobody answers."""
        with suppress(confluent_kafka.KafkaException):
            found = self._admin.list_topics(topic, timeout=5.0).topics[topic]
            return {
                number: Placed(one.leader, sorted(one.isrs), sorted(one.replicas))
                for number, one in found.partitions.items()
            }
        return {}

    def wait_in_sync(self, topic: str, partitions: int, seconds: float = SECONDS) -> None:
        """Wait until each partition has three replicas, all are in sync, and one of them leads."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while True:
            found = self.partitions(topic)
            good = [
                one.leader >= 0 and len(one.isr) == len(one.replicas) == 3 for one in found.values()
            ]
            if len(good) == partitions and all(good):
                return
            assert time.monotonic() < deadline, f"not all replicas are in sync: {found}"
            pause.wait(0.05)
