"""Run the steps of the demo of the cluster; each returns its figures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker.demo.load import TOPIC, Load
from cluster import Cluster
from logstore import LogStore
from logstore.cli.demo.flights import Flights

BROKERS, LOG_DIRS = 3, 2
# The share of the flights that is produced before the end of each step.
LOADED, KILLED, FAILED, CUT, ALL = 0.4, 0.55, 0.7, 0.85, 1.0
WAIT_SECONDS = 60.0


class Loaded(NamedTuple):
    """Hold the figures of the load without a fault."""

    records: int
    value_bytes: int
    seconds: float


class Survived(NamedTuple):
    """Hold the figures of one fault.

    Attributes:
        broker: the broker that had the fault.
        leaders: how many partitions it led.
        gap_seconds: from the fault to the next acknowledgement of any partition that it led.
        acknowledged: how many flights were acknowledged during the step.
        caught_up_seconds: from the end of the fault until all replicas were in sync again.
    """

    broker: int
    leaders: int
    gap_seconds: float
    acknowledged: int
    caught_up_seconds: float


class Replica(NamedTuple):
    """Hold what was found in one replica after the end."""

    broker: int
    partition: int
    log_dir: str
    records: int
    wrong: int


def create(cluster: Cluster, partitions: int) -> None:
    """Create the topic with a replica on each broker.

    The records have timestamps of 2013, so a retention by time would delete them.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    settings = {"retention.ms": "-1", "min.insync.replicas": "2"}
    topic = NewTopic(TOPIC, partitions, BROKERS, config=settings)
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


def kill(cluster: Cluster, producing: Load) -> Survived:
    """Kill the broker that leads the first partition, and start it again."""

    def heal(broker: int) -> None:
        cluster.restart(broker)

    return survive(cluster, producing, KILLED, cluster.kill, heal)


def fail_disks(cluster: Cluster, producing: Load) -> Survived:
    """Take away the log dir with the broker's leaders, and give it back."""

    def fail(broker: int) -> None:
        for number in range(LOG_DIRS):
            cluster.fail_dir(broker, number)

    def heal(broker: int) -> None:
        for number in range(LOG_DIRS):
            cluster.return_dir(broker, number)

    return survive(cluster, producing, FAILED, fail, heal)


def cut(cluster: Cluster, producing: Load) -> Survived:
    """Cut a broker off from the others, and connect it again. Clients still reach it meanwhile."""

    def heal(_: int) -> None:
        cluster.heal()

    return survive(cluster, producing, CUT, cluster.cut, heal)


def survive(
    cluster: Cluster,
    producing: Load,
    share: float,
    fail: Callable[[int], object],
    heal: Callable[[int], object],
) -> Survived:
    """Let a broker have a fault while flights are produced, and wait until it has caught up."""
    ledger, partitions = producing.ledger, range(len(producing.parts))
    broker = cluster.wait_for_leader(TOPIC, 0)
    led = [one for one in partitions if cluster.wait_for_leader(TOPIC, one) == broker]
    before = ledger.total
    with loading(producing, share):
        wait_until(lambda: ledger.total > before)
        failed_at = time.perf_counter()
        fail(broker)
        for partition in led:
            cluster.wait_for_leader(TOPIC, partition, other_than=broker, timeout=WAIT_SECONDS)
        seen = {one: ledger.acknowledged[one] for one in led}
        wait_until(lambda: is_going_on(producing, seen, share))
        gap = time.perf_counter() - failed_at
    healed_at = time.perf_counter()
    heal(broker)
    for partition in partitions:
        cluster.wait_in_sync(TOPIC, partition, timeout=WAIT_SECONDS)
    caught_up = time.perf_counter() - healed_at
    return Survived(broker, len(led), gap, ledger.total - before, caught_up)


def is_going_on(producing: Load, seen: dict[int, int], share: float) -> bool:
    """Tell whether each partition has more acknowledged flights than before, or all of the step."""
    return all(
        producing.ledger.acknowledged[one] > before
        or before >= round(len(producing.parts[one].values) * share)
        for one, before in seen.items()
    )


@contextmanager
def loading(producing: Load, share: float) -> Iterator[None]:
    """Produce flights in a thread; at the end, all of this share are acknowledged."""
    thread = threading.Thread(target=producing.send_paced, args=(share,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def wait_until(is_done: Callable[[], bool]) -> None:
    """Wait for something that happens soon."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError("nothing was acknowledged for a minute")
        time.sleep(0.001)


def finish(producing: Load) -> None:
    """Produce the last flights."""
    producing.send(ALL)
    producing.flush()


def check(cluster: Cluster, parts: Sequence[Flights]) -> list[Replica]:
    """Read every replica from its log dirs, after the brokers have stopped."""
    found = []
    for broker in cluster.broker_ids:
        with LogStore.open(cluster.log_dirs(broker), read_only=True) as store:
            for partition, flights in enumerate(parts):
                log = store.log(TOPIC, partition)
                rows = [(one.value, one.key, one.timestamp) for one in log]
                expected = zip(flights.values, flights.keys, flights.timestamps, strict=True)
                wrong = sum(row != flight for row, flight in zip(rows, expected, strict=False))
                wrong += abs(len(rows) - len(flights.values))
                found.append(Replica(broker, partition, log.log_dir, len(rows), wrong))
    return found
