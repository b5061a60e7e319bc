"""Measure one running cluster: rates, memory, latency, a follower that catches up, and faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.broker.bench import client_of
from benchmarks.broker.cases import LARGE_BATCH_BYTES, RATE, SMALL_BATCH_BYTES
from benchmarks.cluster.bench.clusters import Cluster
from benchmarks.cluster.bench.copying import bare_copy, growth_rate, log_bytes, use_memory
from benchmarks.cluster.bench.plan import Scale, rate_key
from benchmarks.cluster.bench.watcher import Watcher
from benchmarks.workload import RECORD_BYTES

Show = Callable[[str], object]
BATCHES = {"small": (SMALL_BATCH_BYTES, 5), "large": (LARGE_BATCH_BYTES, 100)}  # with linger in ms
TOPICS_MAX = 30


class Measured:
    """The figures of one session, by question; several rounds give several figures."""

    def __init__(self, cluster: Cluster, scale: Scale, number: int) -> None:
        """Measure nothing yet.

        Args:
            number: how many sessions of this cluster came before.
        """
        self.cluster, self.scale, self.number = cluster, scale, number
        self.figures: dict[str, list[float]] = {}

    def note(self, **figures: float) -> None:
        """Keep the figures of a round; `_` stands for a space."""
        for key, figure in figures.items():
            self.figures.setdefault(key.replace("_", " "), []).append(figure)


def rates(session: Measured) -> None:
    """Produce with acks=all: batches of 16 KiB and of 1 MB. The first round is not counted."""
    cluster, scale = session.cluster, session.scale
    with cluster.topic("warm"):
        produce(cluster, "warm", 1, "small", scale.warm_records)
    for size, records in (("small", scale.small_records), ("large", scale.large_records)):
        for partitions in scale.partitions:
            topic, key = f"rate-{size}-{partitions}", rate_key(size, partitions)
            with cluster.topic(topic, partitions):
                produce(cluster, topic, partitions, size, records)
                for _ in range(scale.rounds):
                    before = cluster.usage().cpu_seconds
                    rate = produce(cluster, topic, partitions, size, records)
                    used = cluster.usage().cpu_seconds - before
                    gigabytes = records * RECORD_BYTES / 1e9
                    session.note(**{key: rate, f"{key} cpu": used / gigabytes})


def produce(cluster: Cluster, topic: str, partitions: int, size: str, records: int) -> float:
    """Produce, and return the rate in thousand records a second."""
    batch_bytes, linger_ms = BATCHES[size]
    answer = client_of(
        "produce", cluster.address, topic=topic, partitions=partitions, records=records,
        batch_bytes=batch_bytes, linger_ms=linger_ms,
    )  # fmt: skip
    return answer["records"] / answer["seconds"] / 1e3


def memory(session: Measured) -> None:
    """Read the memory of all processes, after the load of `rates`."""
    session.note(resident=session.cluster.usage().resident_mib)


def latency(session: Measured) -> None:
    """Produce 2,000 records a second with acks=all to one partition."""
    cluster, seconds = session.cluster, session.scale.paced_seconds
    with cluster.topic("paced"):
        for _ in range(session.scale.rounds):
            answer = client_of(
                "produce_paced", cluster.address, topic="paced", rate=RATE, seconds=seconds
            )
            session.note(p50=answer["p50_ms"], p99=answer["p99_ms"])


def catch_up(session: Measured) -> None:
    """Let a follower miss records, and measure how fast it gets them, beside bare copies."""
    for number in range(session.scale.catch_ups):
        with session.cluster.topic(f"behind-{number}"):
            _catch_up(session, f"behind-{number}")


def _catch_up(session: Measured, topic: str) -> None:
    cluster, spare = session.cluster, session.cluster.place / "copy"
    leader, controller = cluster.leaders(topic)[0], cluster.controller()
    away = next(one for one in cluster.servers if one not in (leader, controller))
    cluster.kill(away)
    produce(cluster, topic, 1, "large", session.scale.behind_records)
    directory, follower = replica_of(cluster, leader, topic), replica_of(cluster, away, topic)
    segment = max(directory.glob("*.log"), key=lambda path: path.stat().st_size)
    size = log_bytes(directory)
    rates = []
    for turn in range(2):
        use_memory(spare, size)
        rates.append(bare_copy(segment, spare))
        if not turn:
            use_memory(spare, size)
            cluster.servers[away].spawn()
            session.note(catch_up=growth_rate(lambda: log_bytes(follower), size))
            cluster.wait_in_sync(topic)
    session.note(bare_copy=sum(rates) / len(rates))


def replica_of(cluster: Cluster, broker: int, topic: str) -> Path:
    """Give the directory of a broker's replica of a topic's first partition."""
    return Path(cluster.servers[broker].log_dirs[0]) / f"{topic}-0"


@contextmanager
def led_topic(cluster: Cluster, name: str, *, by_controller: bool) -> Iterator[tuple[str, int]]:
    """Create a topic of one partition that the controller leads, or another broker; give both."""
    controller = cluster.controller()
    for number in range(TOPICS_MAX):
        with cluster.topic(f"{name}-{number}"):
            leader = cluster.leaders(f"{name}-{number}")[0]
            if (leader == controller) is by_controller:
                yield f"{name}-{number}", leader
                return
    raise RuntimeError(f"none of {TOPICS_MAX} topics has the wanted leader")


def kills(session: Measured) -> None:
    """Kill the leader of one partition: another broker than the controller, then the controller."""
    cluster = session.cluster
    for number in range(session.scale.kills + 1):
        is_last = number == session.scale.kills
        with led_topic(cluster, f"killed-{number}", by_controller=is_last) as (topic, leader):
            _, seconds = seconds_after(cluster, topic, [0], lambda: cluster.kill(leader))
            session.note(**{"kill controller" if is_last else "kill": seconds})
            cluster.restart(leader, topic)


def kill_many(session: Measured) -> None:
    """Kill a leader of a third of many partitions: when has each one acknowledged a record?"""
    cluster, count = session.cluster, session.scale.many_partitions
    started = time.monotonic()
    with cluster.topic("many", count):
        Watcher(cluster.address, "many", range(count)).close()
        session.note(create_many=time.monotonic() - started)
        leaders, controller = cluster.leaders("many"), cluster.controller()
        broker = next(one for one in cluster.servers if one != controller)
        led = [number for number, leader in leaders.items() if leader == broker]
        half, last = seconds_after(cluster, "many", led, lambda: cluster.kill(broker))
        session.note(kill_many=last, kill_many_median=half)
        cluster.restart(broker, "many")


def freeze(session: Measured) -> None:
    """Stop the process of a leader without ending it; the cluster is not used any more then."""
    if session.number >= session.scale.freezes:
        return
    cluster, wait_ms = session.cluster, session.scale.client_timeout_ms
    more: dict[str, Any] = {}
    if wait_ms is not None:
        more = {"request.timeout.ms": wait_ms, "socket.timeout.ms": wait_ms}
    controller = cluster.controller()
    for number in range(TOPICS_MAX):
        topic = f"frozen-{number}"
        cluster.create(topic, 1)
        leader = cluster.leaders(topic)[0]
        if leader != controller:
            break
    _, seconds = seconds_after(cluster, topic, [0], lambda: cluster.freeze(leader), **more)
    session.note(freeze=seconds)


def seconds_after(
    cluster: Cluster, topic: str, partitions: list[int], fail: Callable[[], object], **more: Any
) -> tuple[float, float]:
    """Cause a fault; give the seconds until half of the partitions, and all, acknowledge again."""
    watcher = Watcher(cluster.address, topic, partitions, **more)
    try:
        return watcher.seconds_after(fail)
    finally:
        watcher.close()


STEPS: dict[str, Callable[[Measured], None]] = {
    "rates": rates,
    "memory": memory,
    "latency": latency,
    "catch-up": catch_up,
    "kills": kills,
    "kill-many": kill_many,
    "freeze": freeze,
}


def measure(session: Measured, names: list[str], show: Show) -> None:
    """Measure the named steps; a step that fails costs its own figures, and those after it."""
    for name, step in STEPS.items():
        if name in names:
            show(name)
            step(session)
