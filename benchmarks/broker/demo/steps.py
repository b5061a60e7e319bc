"""Run the steps of the demo; each returns its figures."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks.broker import raw
from benchmarks.broker.demo.group import Group, settings
from benchmarks.broker.demo.ledger import Received, checksums_by_key
from benchmarks.broker.demo.load import TOPIC, Load
from benchmarks.broker.server import BrokerProcess, Usage
from logstore import LogStore
from logstore.cli.demo.flights import Flights

MOVE_SECONDS = 1.5  # the rate makes the move take this long, so that a person can watch it
RATE_MIN = 1 << 16
LOOK_SECONDS = 0.02
MOVE_SECONDS_MAX = 30.0
READ_SECONDS_MAX = 30.0
# The share of the flights that is produced before the end of each step.
LOADED, KILL_AT, KILLED, ALL = 0.6, 0.8, 0.97, 1.0


class Loaded(NamedTuple):
    """Hold the figures of the first load, which the group consumes meanwhile."""

    records: int
    value_bytes: int
    seconds: float
    consumed_seconds: float
    shares: list[int]
    used: Usage  # the processor time is that of this step alone


class Moved(NamedTuple):
    """Hold the figures of the move."""

    partition: int
    source: str
    target: str
    size_bytes: int
    rate: int
    seconds: float
    appended_meanwhile: int
    is_done: bool


class Killed(NamedTuple):
    """Hold the figures of the kill, and of the start after it."""

    acknowledged: int
    unanswered: int
    used: Usage
    exit_code: int | None
    first_record_seconds: float
    producer_seconds: float
    commits: list[int]
    commits_found: list[int]
    rebalances: int

    @property
    def has_commits(self) -> bool:
        """Report whether the broker knows every commit that it acknowledged before the kill."""
        return all(
            found >= known for known, found in zip(self.commits, self.commits_found, strict=True)
        )


class Checked(NamedTuple):
    """Hold the result of the last step, which reads every record again."""

    received: Received
    seconds: float
    keys: int
    wrong_sums: int
    problems: int
    dirs: list[tuple[str, list[int], int]]  # path, partitions, bytes


def load(server: BrokerProcess, producing: Load, group: Group) -> Loaded:
    """Produce the first flights while a group of two consumes them."""
    group.start(2)
    group.wait_assigned()
    before = server.usage
    started = time.perf_counter()
    producing.send(LOADED)
    producing.flush()
    seconds = time.perf_counter() - started
    group.wait_for(producing.ledger.acknowledged)
    consumed_seconds = time.perf_counter() - started
    after = server.usage
    sent = zip(producing.parts, producing.sent, strict=True)
    return Loaded(
        records=producing.ledger.total,
        value_bytes=sum(len(value) for part, end in sent for value in part.values[:end]),
        seconds=seconds,
        consumed_seconds=consumed_seconds,
        shares=list(group.shares),
        used=after._replace(cpu_seconds=after.cpu_seconds - before.cpu_seconds),
    )


def move(
    server: BrokerProcess, producing: Load, show: Callable[[float, int, int], object]
) -> Moved:
    """Move the largest partition by AlterReplicaLogDirs, while flights are produced.

    Args:
        show: called with the part that is copied, the bytes of the copy, and the offset lag.
    """
    with raw.RawClient(server.address) as client:
        source, largest = max(raw.copies_of(client, TOPIC), key=lambda row: row[1].partition_size)
        partition, size = largest.partition_index, largest.partition_size
        target = next(path for path in reversed(server.log_dirs) if path != source)
        rate = max(round(size / MOVE_SECONDS), RATE_MIN)
        raw.limit_moves(client, rate)
        is_over = threading.Event()
        producer = threading.Thread(target=producing.send_paced, args=(KILL_AT, is_over.is_set))
        before = producing.ledger.acknowledged[partition]
        started = time.perf_counter()
        producer.start()
        try:
            raw.move_replica(client, TOPIC, partition, target)
            is_done = watch_move(client, partition, target, show)
            seconds = time.perf_counter() - started
            grown = producing.ledger.acknowledged[partition] - before
        finally:
            is_over.set()
            producer.join()
    return Moved(partition, source, target, size, rate, seconds, grown, is_done)


def watch_move(
    client: raw.RawClient,
    partition: int,
    target: str,
    show: Callable[[float, int, int], object],
) -> bool:
    """Watch a move until it ends; return whether the replica is in the target."""
    deadline, shown = time.monotonic() + MOVE_SECONDS_MAX, 0.0
    while time.monotonic() < deadline:
        rows = [
            (path, row)
            for path, row in raw.copies_of(client, TOPIC)
            if row.partition_index == partition
        ]
        copies = [row for _, row in rows if row.is_future_key]
        if not copies:
            return [path for path, _ in rows] == [target]
        size = max(row.partition_size for _, row in rows) or 1
        if time.monotonic() - shown > MOVE_SECONDS / 5:
            shown = time.monotonic()
            show(copies[0].partition_size / size, copies[0].partition_size, copies[0].offset_lag)
        time.sleep(LOOK_SECONDS)
    return False


def kill(server: BrokerProcess, producing: Load, group: Group) -> Killed:
    """Kill the broker under load and start it again; the clients are not restarted."""
    producing.send(KILL_AT)
    producing.flush()
    kill_at = producing.ledger.total + max(sum(producing.sent) // 10, 1)
    producer = threading.Thread(target=producing.send_paced, args=(KILLED,))
    rebalances = group.rebalances
    producer.start()
    try:
        while producing.ledger.total < kill_at and producer.is_alive():
            time.sleep(0.001)
        used, commits = server.usage, list(group.commits)
        server.kill()
        killed_at = time.perf_counter()
        acknowledged = producing.ledger.total
        unanswered = sum(producing.sent) - acknowledged
        producing.ledger.watch()
        first_seconds = server.start()
        commits_found = group.committed()
    finally:
        producer.join()
    first_after = producing.ledger.first_after
    group.wait_for(producing.ledger.acknowledged)
    return Killed(
        acknowledged=acknowledged,
        unanswered=unanswered,
        used=used,
        exit_code=server.exit_code,
        first_record_seconds=first_seconds,
        producer_seconds=(first_after or time.perf_counter()) - killed_at,
        commits=commits,
        commits_found=commits_found,
        rebalances=group.rebalances - rebalances,
    )


def go_on(producing: Load, group: Group) -> int:
    """Let the group's members leave, produce the last flights, and let a new member read them."""
    group.stop()
    before = group.received.records
    producing.send(ALL)
    producing.flush()
    group.start(1)
    group.wait_for(producing.ledger.acknowledged)
    group.stop()
    return group.received.records - before


def check(server: BrokerProcess, producing: Load) -> tuple[Checked, Usage]:
    """Read every record with a separate consumer, stop the broker, and verify its store."""
    started = time.perf_counter()
    received = read_all(server.address, producing.parts, producing.ledger.acknowledged)
    seconds = time.perf_counter() - started
    expected = checksums_by_key(producing.parts, producing.ledger.acknowledged)
    keys = expected.keys() | received.sums.keys()
    used = server.usage
    server.stop()
    with LogStore.open(server.log_dirs) as store:
        logs = [log for log in map(store.log, *zip(*store, strict=True)) if log.topic == TOPIC]
        dirs = [
            (
                path,
                [log.partition for log in logs if log.log_dir == path],
                sum(log.size_bytes for log in logs if log.log_dir == path),
            )
            for path in server.log_dirs
        ]
        problems = len(store.verify().problems)
    wrong_sums = sum(expected[key] != received.sums[key] for key in keys)
    return Checked(received, seconds, len(keys), wrong_sums, problems, dirs), used


def read_all(address: str, parts: Sequence[Flights], ends: Sequence[int]) -> Received:
    """Read all partitions from their first record to their end, even records beyond `ends`."""
    received = Received(parts)
    consumer = Consumer(settings(address) | {"group.id": f"check-{os.getpid()}"})
    try:
        places = [TopicPartition(TOPIC, number, 0) for number in range(len(parts))]
        tops = [consumer.get_watermark_offsets(place, 20)[1] for place in places]
        consumer.assign(places)
        deadline = time.monotonic() + READ_SECONDS_MAX
        wanted = sum(max(pair) for pair in zip(tops, ends, strict=True))
        while received.records < wanted and time.monotonic() < deadline:
            messages: list[Any] = consumer.consume(10_000, 0.2)
            received.take(message for message in messages if message.error() is None)
    finally:
        consumer.close()
    return received
