"""Feed a worker that transforms records in transactions, and judge what it has committed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.client_programs import compiled, demand_java, jars, small_java
from support.places import environment

WORKER = Path(__file__).with_name("exactly_once_worker.py")
JAVA_WORKER = Path(__file__).with_name("ExactlyOnceWorker.java")
PARTITIONS = 2
SECONDS = 120.0  # also a crowded machine is faster
FEED_SECONDS = 0.005


def create_topics(servers: str, replicas: int = 1, **settings: str) -> None:
    """Create `inputs` and `outputs`."""
    admin = AdminClient({"bootstrap.servers": servers})
    for name in ("inputs", "outputs"):
        topic = NewTopic(name, PARTITIONS, replicas, config=settings)
        admin.create_topics([topic])[name].result(SECONDS)


class Feeder:
    """Appends inputs from a thread, until it is stopped; all of them are acknowledged then.

    Attributes:
        limit: how many inputs there may be; a test raises it.
    """

    def __init__(self, servers: str, limit: int) -> None:
        self.limit = limit
        self._producer = Producer(
            {
                "bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0,
                "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 200, "linger.ms": 0,
            }
        )  # fmt: skip
        self._is_over = threading.Event()
        self.count = 0
        self.failures: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        def told(error: Any, _: Any) -> None:
            if error is not None:
                self.failures.append(error)

        while not self._is_over.wait(FEED_SECONDS):
            self._producer.poll(0)
            if self.count >= self.limit:
                continue
            value = str(self.count)
            self._producer.produce(
                "inputs", value, partition=self.count % PARTITIONS, on_delivery=told
            )
            self.count += 1

    def stop(self) -> int:
        """Stop; returns how many inputs there are."""
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(SECONDS) == 0 and not self.failures, self.failures
        return self.count


# How often the kill tests kill; with `make kill-transactions`, they also run with Java's client,
# which raises the epoch with each transaction.
KILLS_KEY = "LOGSTORE_TRANSACTION_KILLS"
CLIENTS = ["librdkafka", "java"] if KILLS_KEY in os.environ else ["librdkafka"]
JAVA_VERSION = "4.1.2"


def program_of(client: str, place: Path) -> list[str]:
    """Give the program that does transactions with a client; Java is compiled into `place`."""
    if client == "librdkafka":
        return [sys.executable, str(WORKER)]
    demand_java()
    libs = jars(f"clients-{JAVA_VERSION}", ("org.apache.kafka", "kafka-clients", JAVA_VERSION))
    return small_java(compiled([JAVA_WORKER], libs, place), "ExactlyOnceWorker")


class Worker:
    """A process that does transactions. A thread reads its lines."""

    def __init__(self, servers: str, name: str, seed: object, program: Sequence[str] = ()) -> None:
        program = program or program_of("librdkafka", Path())
        self.process = subprocess.Popen(
            [*program, servers, name, str(seed), str(PARTITIONS)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        self.done = 0
        self.failures: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("done"):
                self.done += 1
            else:
                self.failures[line.strip()] += 1

    def wait_for_progress(self) -> None:
        """Wait until one more transaction was committed."""
        before, deadline = self.done, time.monotonic() + SECONDS
        while self.done == before:
            is_late = time.monotonic() > deadline
            if is_late or self.process.poll() is not None:
                raise AssertionError(f"{self.failures}, {self._where()}")
            threading.Event().wait(0.005)

    def _where(self) -> str:
        """Ask the process where it hangs, and end it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
            threading.Event().wait(0.5)
        self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def kill(self) -> None:
        """End the process as SIGKILL does."""
        self.process.kill()
        self.process.wait()
        self._thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def worker(servers: str, name: str, seed: object, program: Sequence[str] = ()) -> Iterator[Worker]:
    """Run a worker, and kill it at the end; see `program_of`."""
    made = Worker(servers, name, seed, program)
    try:
        yield made
    finally:
        made.kill()


def _reader(servers: str, level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers, "group.id": "judges", "isolation.level": level,
            "enable.auto.commit": False, "log_level": 0, "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )  # fmt: skip


def read_all(servers: str, topic: str, level: str) -> list[list[str]]:
    """Read each partition of a topic up to its end, in an isolation level."""
    reader = _reader(servers, level)
    try:
        reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[list[str]] = [[] for _ in range(PARTITIONS)]
        ended: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} has no end"
            for one in reader.consume(500, 0.2):
                if one.error():
                    ended.add(one.partition())
                else:
                    ended.discard(one.partition())
                    found[one.partition()].append(one.value().decode())
        return found
    finally:
        reader.close()


def wait_for_outputs(servers: str, count: int) -> None:
    """Wait until there are as many committed outputs as inputs; each of them may take its time."""
    reader = _reader(servers, "read_committed")
    found, deadline = 0, time.monotonic() + SECONDS
    try:
        reader.assign([TopicPartition("outputs", number, 0) for number in range(PARTITIONS)])
        while found < count:
            assert time.monotonic() < deadline, f"{found} of {count} inputs have an output"
            more = sum(one.error() is None for one in reader.consume(500, 0.1))
            if more:
                found, deadline = found + more, time.monotonic() + SECONDS
    finally:
        reader.close()


def judge(servers: str, count: int) -> dict[str, int]:
    """Each input has exactly one committed output, and no transaction is torn."""
    inputs = read_all(servers, "inputs", "read_committed")
    assert sum(map(len, inputs)) == count
    for number, values in enumerate(inputs):
        assert [int(one) for one in values] == list(range(number, count, PARTITIONS))
    outputs = [one for rows in read_all(servers, "outputs", "read_committed") for one in rows]
    sources = Counter(tuple(one.split(",")[2:]) for one in outputs)
    twice = [source for source, times in sources.items() if times > 1]
    assert not twice, f"{len(twice)} inputs have two committed outputs: {twice[:5]}"
    missing = count - len(sources)
    assert not missing, f"{missing} of {count} inputs have no committed output"
    sizes = Counter(one.split(",")[0] for one in outputs)
    for one in outputs:
        name, size, *_ = one.split(",")
        assert sizes[name] == int(size), f"the transaction {name} is torn"
    everything = read_all(servers, "outputs", "read_uncommitted")
    written = sum(map(len, everything))
    assert written >= count
    return {"inputs": count, "transactions": len(sizes), "aborted records": written - count}
