"""Run the steps of the demo of the cluster; each returns its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker.demo.load import TOPIC, Load
from benchmarks.cluster.processes import BROKERS, SESSION_MS, Brokers, wait_until
from benchmarks.cluster.pulse import Pulse
from logstore import LogStore
from logstore.cli.demo.flights import Flights

# The share of the flights that is produced before the end of each step.
LOADED, KILLED, FAILED, FROZEN, ALL = 0.4, 0.55, 0.7, 0.85, 1.0
WAIT_SECONDS = 60.0
SEGMENTS, SEGMENT_BYTES_MIN = 100, 1 << 16
FROZEN_SECONDS = 1.5 * SESSION_MS / 1000
OUTAGE_SECONDS = 0.5  # a dead broker is started again after this time


class Loaded(NamedTuple):
    """Hold the figures of the load without a fault."""

    records: int
    value_bytes: int
    seconds: float


class Survived(NamedTuple):
    """Hold the figures of one fault.

    Attributes:
        broker: the broker that had the fault.
        leaders: the partitions that it led, and that got other leaders.
        gap_seconds: from the fault to the next acknowledgement of the last of these partitions.
        acknowledged: how many flights were acknowledged during the step.
        caught_up_seconds: from the end of the fault until all replicas were in sync again.
        pulse: how many flights were acknowledged when.
    """

    broker: int
    leaders: int
    gap_seconds: float
    acknowledged: int
    caught_up_seconds: float
    pulse: Pulse


class Replica(NamedTuple):
    """Hold what was found in one replica after the end."""

    broker: int
    partition: int
    log_dir: str
    records: int
    wrong: int


def create(servers: str, parts: Sequence[Flights]) -> None:
    """Create the topic with a replica on each broker.

    The records have timestamps of 2013, so a retention by time would delete them. The segments are
    small, so that a broker soon notices that a disk is gone.
    """
    value_bytes = sum(len(value) for part in parts for value in part.values)
    settings = {
        "retention.ms": "-1", "min.insync.replicas": "2",
        "segment.bytes": str(max(value_bytes // len(parts) // SEGMENTS, SEGMENT_BYTES_MIN)),
    }  # fmt: skip
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic(TOPIC, len(parts), len(BROKERS), config=settings)
    admin.create_topics([topic])[TOPIC].result(WAIT_SECONDS)


def load(producing: Load) -> Loaded:
    """Produce the first flights."""
    started = time.perf_counter()
    producing.send(LOADED)
    producing.flush()
    seconds = time.perf_counter() - started
    sent = zip(producing.parts, producing.sent, strict=True)
    value_bytes = sum(len(value) for part, end in sent for value in part.values[:end])
    return Loaded(producing.ledger.total, value_bytes, seconds)


def kill(brokers: Brokers, producing: Load) -> Survived:
    """Kill a broker that leads, and start it again."""

    def heal(broker: int) -> None:
        time.sleep(OUTAGE_SECONDS)
        brokers[broker].start()
        wait_until(brokers[broker].is_serving, f"broker {broker} does not serve")

    return survive(
        brokers, producing, KILLED, lambda broker: brokers[broker].kill(), heal, is_silent=True
    )


def fail_disk(brokers: Brokers, producing: Load) -> Survived:
    """Take the disk of a leader away, and give the broker an empty one."""
    taken: list[int] = []

    def fail(broker: int) -> None:
        one = brokers[broker]
        holding = [(path / f"{TOPIC}-0").exists() for path in one.log_dirs]
        taken.append(holding.index(True))
        one.take_disk(taken[0])

    def heal(broker: int) -> None:
        brokers[broker].accept_empty_disk(taken[0])

    return survive(brokers, producing, FAILED, fail, heal, is_silent=False)


def freeze(brokers: Brokers, producing: Load) -> Survived:
    """Freeze a broker that leads for longer than its session lasts; it wakes up replaced."""

    def heal(broker: int) -> None:
        time.sleep(FROZEN_SECONDS)
        brokers[broker].thaw()

    return survive(
        brokers, producing, FROZEN, lambda broker: brokers[broker].freeze(), heal, is_silent=True
    )


def survive(
    brokers: Brokers,
    producing: Load,
    share: float,
    fail: Callable[[int], object],
    heal: Callable[[int], object],
    *,
    is_silent: bool,
) -> Survived:
    """Let a broker have a fault while flights are produced, and wait until it has caught up.

    Args:
        is_silent: the broker answers nobody during the fault.
    """
    ledger = producing.ledger
    wait_in_sync(brokers)
    rows = brokers.partitions(TOPIC)
    broker = int(rows[0].leader_id)
    led = {one for one, row in rows.items() if row.leader_id == broker}
    before = ledger.total
    with loading(producing, share), Pulse(lambda: ledger.total) as pulse:
        wait_until(lambda: ledger.total > before, "nothing was acknowledged")
        failed_at = time.perf_counter()
        pulse.mark()
        fail(broker)
        without = broker if is_silent else None
        replaced: dict[int, int] = {}

        def is_replaced() -> bool:
            """Wait for new leaders; a partition on the other disk keeps its leader."""
            for one, row in brokers.partitions(TOPIC, without).items():
                if one in led and one not in replaced and row.leader_id not in (broker, -1):
                    replaced[one] = ledger.acknowledged[one]
            return replaced.keys() >= (led if is_silent else {0})

        wait_until(is_replaced, f"broker {broker} is not replaced where it led")
        wait_until(lambda: is_going_on(producing, replaced, share), "nothing was acknowledged")
        gap = time.perf_counter() - failed_at
        heal(broker)
        healed_at = time.perf_counter()
        wait_in_sync(brokers)
        caught_up = time.perf_counter() - healed_at
    return Survived(broker, len(replaced), gap, ledger.total - before, caught_up, pulse)


def is_in_sync(brokers: Brokers) -> bool:
    """Tell whether all replicas of all partitions are in sync."""
    rows = brokers.partitions(TOPIC).values()
    return bool(rows) and all(set(row.isr_nodes) == set(BROKERS) for row in rows)


def is_going_on(producing: Load, seen: Mapping[int, int], share: float) -> bool:
    """Tell whether each partition has more acknowledged flights than before, or all of the step."""
    return all(
        producing.ledger.acknowledged[one] > before
        or before >= round(len(producing.parts[one].values) * share)
        for one, before in seen.items()
    )


@contextmanager
def loading(producing: Load, share: float) -> Iterator[None]:
    """Produce flights in a thread; at the end, all of this share are acknowledged."""
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producing.send_paced, share)
        yield
        sending.result()


def finish(producing: Load) -> None:
    """Produce the last flights."""
    producing.send(ALL)
    producing.flush()


def wait_in_sync(brokers: Brokers) -> None:
    """Wait until all replicas are in sync, and all brokers know it."""
    wait_until(lambda: is_in_sync(brokers), "a replica is not in sync")


def check(log_dirs: Mapping[int, Sequence[Path]], parts: Sequence[Flights]) -> list[Replica]:
    """Read every replica from the log dirs of each broker, after the brokers have stopped."""
    found = []
    for broker, paths in log_dirs.items():
        with LogStore.open(paths, read_only=True) as store:
            for partition, flights in enumerate(parts):
                log = store.log(TOPIC, partition)
                rows = [(one.value, one.key, one.timestamp) for one in log]
                expected = zip(flights.values, flights.keys, flights.timestamps, strict=True)
                wrong = sum(row != flight for row, flight in zip(rows, expected, strict=False))
                wrong += abs(len(rows) - len(flights.values))
                found.append(Replica(broker, partition, log.log_dir, len(rows), wrong))
    return found
