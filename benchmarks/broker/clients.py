"""Run one client of confluent-kafka in a process: it produces, produces at a rate, or consumes.

Run as `python -m benchmarks.broker.clients COMMAND '{"address": ..., ...}'`; the answer is one line
of JSON. Clients measure their own time, so their start is not part of a figure.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any

from benchmarks.workload import RECORD_BYTES, equal_values

CALL_RECORDS = 1000
FULL_SECONDS = 0.005
WAIT_SECONDS_MAX = 300.0
WARM_SHARE = 0.2


def settings(address: str) -> dict[str, Any]:
    """Return the settings that all clients have in common."""
    return {"bootstrap.servers": address, "broker.address.family": "v4", "log_level": 0}


class Counter:
    """Count delivery reports, and keep the latency of each."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.seconds: list[float] = []

    def note(self, error: Any, message: Any) -> None:
        """Record one delivery report."""
        if error is not None:
            self.failed.append(str(error))
        else:
            self.seconds.append(message.latency())

    def check(self) -> None:
        """Raise an error unless each record was acknowledged."""
        if self.failed:
            raise RuntimeError(f"{len(self.failed):,} records failed: {self.failed[0]}")


def produce(
    address: str, topic: str, partitions: int, records: int, batch_bytes: int, linger_ms: int
) -> dict[str, float]:
    """Produce records of 100 bytes with acks=all, some to each partition in turn."""
    from confluent_kafka import Producer

    producer = Producer(
        settings(address)
        | {
            "acks": "all",
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = CALL_RECORDS if partitions == 1 else 10
    rows = [{"value": value} for value in equal_values()[0][:count]]
    producer.list_topics(topic, 30)
    left, partition, failed = records, 0, Counter()
    started = time.perf_counter()
    while left > 0:
        wanted = rows[: min(left, count)]
        queued = producer.produce_batch(topic, wanted, partition=partition)
        left -= queued
        if queued < len(wanted):
            producer.poll(FULL_SECONDS)  # the queue is full
        else:
            partition = (partition + 1) % partitions
    if producer.flush(WAIT_SECONDS_MAX):
        failed.failed.append("not acknowledged")
    seconds = time.perf_counter() - started
    failed.check()
    return {"records": records, "seconds": seconds}


def produce_paced(address: str, topic: str, rate: int, seconds: float) -> dict[str, float]:
    """Produce at a rate with acks=all and without linger; return latencies in ms."""
    from confluent_kafka import Producer

    producer = Producer(settings(address) | {"acks": "all", "linger.ms": 0})
    value, counter = bytes(RECORD_BYTES), Counter()
    producer.list_topics(topic, 30)
    started = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = started + number / rate
        while (now := time.perf_counter()) < due:
            producer.poll(0)
            time.sleep(min(due - now, 0.0005))
        producer.produce(topic, value, partition=0, on_delivery=counter.note)
    if producer.flush(WAIT_SECONDS_MAX):
        counter.failed.append("not acknowledged")
    counter.check()
    cuts = quantiles(counter.seconds[int(len(counter.seconds) * WARM_SHARE) :], n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def consume(address: str, topic: str, records: int) -> dict[str, float]:
    """Consume a partition from its first record; the time begins when the first records come."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        settings(address)
        | {
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default, a full queue of 100,000 records stops the fetches for a second.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    most = min(10_000, records // 5)
    taken = first = 0
    started = 0.0
    while taken < records:
        taken += sum(1 for each in consumer.consume(most, 1.0) if each.error() is None)
        if not first and taken:
            first, started = taken, time.perf_counter()
        if time.monotonic() > deadline:
            raise RuntimeError(f"got {taken:,} of {records:,} records")
    seconds = time.perf_counter() - started
    consumer.close()
    return {"records": taken - first, "seconds": seconds}


COMMANDS: dict[str, Callable[..., object]] = {
    "produce": produce,
    "produce_paced": produce_paced,
    "consume": consume,
}


def main(name: str, facts: dict[str, Any]) -> None:
    """Run a command and print its answer."""
    if name in COMMANDS:
        command = COMMANDS[name]
    else:
        from benchmarks.broker import sockets  # it imports the broker, which takes half a second

        command = getattr(sockets, name)
    print(json.dumps(command(**facts)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
