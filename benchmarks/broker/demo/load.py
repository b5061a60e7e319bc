"""Produce flights with confluent-kafka, idempotent and compressed; each airport has a partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Producer

from benchmarks.broker.demo.ledger import Ledger
from logstore.cli.demo.flights import Flights

TOPIC = "flights"
SLICE_RECORDS = 500
PACED_ROUNDS, PACE_SECONDS = 100, 0.01
FLUSH_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1  # Ctrl-C waits for this long, because a poll cannot be interrupted


class Load:
    """Produce the flights of each airport in turn, and record how many were sent."""

    def __init__(self, address: str, parts: Sequence[Flights], **settings: Any) -> None:
        """Make the producer.

        Args:
            settings: more settings of the producer; "_" stands for "." in their names.
        """
        self.parts = parts
        self.ledger = Ledger(parts)
        self.sent = [0] * len(parts)
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                # After the kill, the client tries again soon. The default is up to ten seconds.
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,  # the demo kills the broker, so errors are expected
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    def send(self, share: float) -> None:
        """Produce as fast as possible until a share (0 to 1) of each airport's flights is sent."""
        ends = self._ends(share)
        while self.sent != ends:
            for partition, end in enumerate(ends):
                self._send_slice(partition, min(self.sent[partition] + SLICE_RECORDS, end))
            self._producer.poll(0)

    def send_paced(self, share: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Produce as `send` does, in many rounds with a pause after each, and flush.

        Args:
            share: from 0 to 1.
            is_over: may end the load early.
        """
        ends = self._ends(share)
        slices = [
            max((end - sent) // PACED_ROUNDS, 1) for end, sent in zip(ends, self.sent, strict=True)
        ]
        while self.sent != ends and not is_over():
            for partition, end in enumerate(ends):
                self._send_slice(partition, min(self.sent[partition] + slices[partition], end))
            self._producer.poll(0)
            time.sleep(PACE_SECONDS)
        self.flush()

    def _ends(self, share: float) -> list[int]:
        return [round(len(flights.values) * share) for flights in self.parts]

    def _send_slice(self, partition: int, end: int) -> None:
        start, flights = self.sent[partition], self.parts[partition]
        if start >= end:
            return
        produce, note = self._producer.produce, self.ledger.note
        for number in range(start, end):
            produce(
                TOPIC, flights.values[number], flights.keys[number], partition, note,
                timestamp=flights.timestamps[number],
            )  # fmt: skip
        self.sent[partition] = end

    def flush(self) -> None:
        """Wait until every sent flight is acknowledged."""
        deadline = time.monotonic() + FLUSH_SECONDS_MAX
        while left := self._producer.flush(POLL_SECONDS):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{left:,} flights were not acknowledged for a minute")

    def stop(self) -> None:
        """End the producer; do not wait for flights that are not acknowledged."""
        self._producer.purge()
        self._producer.flush(0)
