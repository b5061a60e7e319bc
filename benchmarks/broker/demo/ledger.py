"""Record which flights were acknowledged and which the group got; compare each with its flight.

The producer is idempotent and keeps the order of each partition. So flight `n` of an airport must
be at offset `n` of the airport's partition, even after a kill of the broker.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import xxhash

from logstore.cli.demo.flights import Flights


class Ledger:
    """Record the answers that the producer's thread got.

    Attributes:
        acknowledged: for each partition, the number of flights that were acknowledged, in order.
        misplaced: acknowledged flights whose offset is not their number.
        errors: the errors of failed deliveries.
        first_after: when the first flight was acknowledged after `watch` was called.
    """

    def __init__(self, parts: Sequence[Flights]) -> None:
        self.parts = parts
        self.acknowledged = [0] * len(parts)
        self.misplaced = 0
        self.errors: list[str] = []
        self.first_after: float | None = None

    def note(self, error: Any, message: Any) -> None:
        """Record one delivery report."""
        if error is not None:
            self.errors.append(str(error))
            return
        partition = message.partition()
        self.misplaced += message.offset() != self.acknowledged[partition]
        self.acknowledged[partition] += 1
        if self.first_after is None:
            self.first_after = time.perf_counter()

    def watch(self) -> None:
        """Record the time of the next acknowledgement."""
        self.first_after = None

    @property
    def total(self) -> int:
        """The number of acknowledged flights."""
        return sum(self.acknowledged)


class Received:
    """Compare received records with their flights; all consumers of a group share this object.

    Attributes:
        places: for each partition, the offset of the next record.
        sums: for each key, the sum of the checksums of its values.
        repeated, skipped, wrong: records before the next offset; offsets that did not come; records
            that differ from their flight.
    """

    def __init__(self, parts: Sequence[Flights]) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self.places = [0] * len(parts)
        self.sums: Counter[bytes] = Counter()
        self.records = self.repeated = self.skipped = self.wrong = 0

    def take(self, messages: Iterable[Any]) -> dict[int, int]:
        """Compare records; return the next offset of each partition with such records."""
        with self._lock:
            ends = {}
            for message in messages:
                partition, offset = message.partition(), message.offset()
                self._compare(partition, offset, message)
                ends[partition] = offset + 1
            return ends

    def _compare(self, partition: int, offset: int, message: Any) -> None:
        flights = self._parts[partition]
        self.records += 1
        self.repeated += offset < self.places[partition]
        self.skipped += max(offset - self.places[partition], 0)
        self.places[partition] = max(self.places[partition], offset + 1)
        key, value = message.key(), message.value()
        self.sums[key] += xxhash.xxh3_64_intdigest(value)
        found = (value, key, message.timestamp()[1])
        if offset >= len(flights.values) or found != (
            flights.values[offset],
            flights.keys[offset],
            flights.timestamps[offset],
        ):
            self.wrong += 1

    @property
    def is_good(self) -> bool:
        """Report whether each record came once and in order, and equals its flight."""
        return self.repeated == self.skipped == self.wrong == 0


def checksums_by_key(parts: Sequence[Flights], ends: Sequence[int]) -> Counter[bytes]:
    """For each key, sum up the checksums of the values of all flights below `ends`."""
    sums: Counter[bytes] = Counter()
    for flights, end in zip(parts, ends, strict=True):
        for key, value in zip(flights.keys[:end], flights.values[:end], strict=True):
            sums[key] += xxhash.xxh3_64_intdigest(value)
    return sums
