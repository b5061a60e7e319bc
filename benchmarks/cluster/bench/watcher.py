"""Produce to partitions whose leader is about to die, and measure when they acknowledge again.

Run as `python -m benchmarks.cluster.bench.watcher '{"address": ...}'`. The process sends a record
to each partition. When all are acknowledged, it prints a line and waits for a line of its parent:
the time of the fault. Then it sends one more record to each partition. It prints the seconds from
the fault to these acknowledgements: of half of the partitions, and of all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.broker.bench import client_environment
from benchmarks.broker.clients import settings
from benchmarks.workload import RECORD_BYTES

READY = "ready\n"
WAIT_SECONDS_MAX = 280.0


class Watcher:
    """The process that produces, as its parent sees it."""

    def __init__(self, address: str, topic: str, partitions: Sequence[int], **more: Any) -> None:
        """Start the process, and wait until each partition has acknowledged a record.

        Args:
            more: settings of the producer, beside those of all clients.
        """
        facts = {"address": address, "topic": topic, "partitions": [*partitions], "more": more}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster.bench.watcher", json.dumps(facts)],
            env=client_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._child.stdout is not None
        try:
            if self._child.stdout.readline() != READY:
                raise RuntimeError("the watcher got no acknowledgement before the fault")
        except BaseException:
            self.close()
            raise

    def seconds_after(self, fail: Callable[[], object]) -> tuple[float, float]:
        """Cause the fault; give the seconds until half of the partitions, and all, acknowledge."""
        at = time.monotonic()  # both processes read the same clock
        fail()
        answer, _ = self._child.communicate(f"{at}\n", timeout=WAIT_SECONDS_MAX + 20)
        half, last = json.loads(answer)
        return half, last

    def close(self) -> None:
        """End the process if it still runs."""
        self._child.kill()
        self._child.wait()


def watch(address: str, topic: str, partitions: list[int], more: dict[str, Any]) -> list[float]:
    """Send, wait for the fault, send again; the first send tells the client who leads."""
    from confluent_kafka import Producer

    producer = Producer(settings(address) | {"acks": "all", "linger.ms": 0} | more)
    send(producer, topic, partitions)
    sys.stdout.write(READY)
    sys.stdout.flush()
    at = float(sys.stdin.readline())
    seconds = [moment - at for moment in send(producer, topic, partitions)]
    return [median(seconds), max(seconds)]


def send(producer: Any, topic: str, partitions: list[int]) -> list[float]:
    """Send a record to each partition; give the times of the acknowledgements."""
    times, errors, value = [], [], bytes(RECORD_BYTES)

    def note(error: Any, message: Any) -> None:
        times.append(time.monotonic())
        if error is not None:
            errors.append(str(error))

    for partition in partitions:
        producer.produce(topic, value, partition=partition, on_delivery=note)
    if producer.flush(WAIT_SECONDS_MAX) or errors:
        raise RuntimeError(f"not acknowledged: {errors[:3]}")
    return times


if __name__ == "__main__":
    print(json.dumps(watch(**json.loads(sys.argv[1]))))
