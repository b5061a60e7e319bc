"""A wall clock jumps in a running process, and the monotonic clock does not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from jepsen.clocks import Clock, compile_library, why_not
from support.broker_process import SERVE
from support.layers import demand
from support.places import environment
from support.zookeeper_process import ZooKeeperProcess

SECONDS = 60.0
STEPS = (0.0, 60.0, -60.0, 12.5, 0.0)
# Between two looks at clocks, a crowded machine may do something else for some seconds.
NEAR_SECONDS = 10.0
WATCH = """
import queue, sys, time
for line in sys.stdin:
    begun = time.monotonic()
    try:
        queue.Queue().get(timeout=0.05)
    except queue.Empty:
        took = time.monotonic() - begun
    print(time.time(), time.monotonic(), took, flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile what shifts clocks."""
    demand("clocks that jump", why_not())
    return compile_library(tmp_path_factory.mktemp("library"))


@contextmanager
def child(code: str, clock: Clock, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run an interpreter with a clock of its own, until its input ends."""
    running = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**environment(), **clock.environment}, text=True,
    )  # fmt: skip
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def test_only_the_wall_clock_jumps(library: Path, tmp_path: Path) -> None:
    """Monotonic time goes on as outside, and a wait takes as long as it was meant to."""
    clock = Clock(tmp_path / "clock", library)
    with child(WATCH, clock) as watch:
        assert watch.stdin is not None and watch.stdout is not None
        for offset in STEPS:
            clock.set(offset)
            before = time.time(), time.monotonic()
            print("look", file=watch.stdin, flush=True)
            wall, monotonic, took = map(float, watch.stdout.readline().split())
            after = time.time(), time.monotonic()
            assert before[0] <= wall - offset <= after[0]
            assert before[1] <= monotonic <= after[1]
            assert 0.05 <= took < NEAR_SECONDS
            assert clock.is_seen and clock.offset_seconds == offset and clock.looks > 0


def test_the_clock_of_a_running_broker_jumps(library: Path, tmp_path: Path) -> None:
    """The broker gives records the time of its own clock, and they are further apart than real."""
    clock = Clock(tmp_path / "clock", library)
    with child(SERVE, clock, str(tmp_path / "a"), str(tmp_path / "b")) as broker:
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
        topic = NewTopic("times", 1, config={"message.timestamp.type": "LogAppendTime"})
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([topic])["times"].result(SECONDS)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        for offset in STEPS:
            clock.set(offset)
            begun = time.time()
            shifted = append_time_ms(producer) / 1000 - offset
            assert begun - 0.001 <= shifted <= time.time()
            assert clock.is_seen


def append_time_ms(producer: Producer) -> int:
    """Produce a record, and give the time that the broker gave it."""
    told: list[Message] = []
    producer.produce("times", b"x", on_delivery=lambda error, message: told.append(message))
    assert producer.flush(SECONDS) == 0
    assert told[0].error() is None
    return int(told[0].timestamp()[1])


def test_the_clock_of_a_running_zookeeper_jumps(library: Path, tmp_path: Path) -> None:
    """ZooKeeper gives znodes the time of its own clock, and sessions live on."""
    clock = Clock(tmp_path / "clock", library)
    process = ZooKeeperProcess(tmp_path, environment=clock.environment)
    process.start()
    client = KazooClient(process.hosts, timeout=SECONDS)
    try:
        client.start()
        session = client.client_id
        for number, offset in enumerate(STEPS):
            clock.set(offset)
            begun = time.time()
            client.create(f"/{number}")
            created = client.get(f"/{number}")[1].ctime / 1000 - offset
            assert begun - 0.001 <= created <= time.time() + 0.001
        assert client.client_id == session
    finally:
        client.stop()
        client.close()
        process.kill()
