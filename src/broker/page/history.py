"""Store the rates of the last hour, in memory of a fixed size. No I/O.

A sample is taken every `INTERVAL_SECONDS`. A rate is the difference of two samples of a counter,
divided by the time between them. A curve is the list of the samples of one kind of rate. There are
curves for all topics together, and for each of at most `TOPICS_MAX` topics. The curves of a topic
begin with its first traffic. If `TOPICS_MAX` topics already have curves, a topic that had no
traffic for an hour loses its curves. If every topic with curves had traffic, a new topic gets no
curves.

One value takes 8 bytes, so the curves take at most
8 bytes * SAMPLES_MAX * (5 + 4 * TOPICS_MAX) = 2.3 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

INTERVAL_SECONDS = 10.0
SAMPLES_MAX = 360
TOPICS_MAX = 200


class Rates(NamedTuple):
    """Rates per second, or counters of all traffic since the start of the broker.

    Attributes:
        records_in: the records that clients have appended. There is no count of sent records,
            because the broker sends batches without reading them.
        requests: for a topic, the appends to its partitions and the reads from its partitions.
            For the whole broker, the requests of all APIs.
    """

    bytes_in: float = 0.0
    records_in: float = 0.0
    bytes_out: float = 0.0
    requests: float = 0.0


class Curves(NamedTuple):
    """Rates of the last hour, the oldest first. The last value of each list is for `times[-1]`."""

    times: list[float]
    rates: list[Rates]


class _Ring:
    """The rates of one topic, or of all topics together."""

    def __init__(self) -> None:
        self.values = [array("d") for _ in Rates._fields]

    def add(self, rates: Rates) -> None:
        for values, value in zip(self.values, rates, strict=True):
            values.append(value)
            if len(values) > SAMPLES_MAX:
                values.pop(0)

    @property
    def is_idle(self) -> bool:
        return bool(self.values[0]) and not any(map(any, self.values))

    def rates(self) -> list[Rates]:
        return [Rates(*each) for each in zip(*self.values, strict=True)]


class History:
    """The rates of the last hour. Only one thread at a time may call a method."""

    def __init__(self) -> None:
        self._times = array("d")
        self._all = _Ring()
        self._topics: dict[str, _Ring] = {}
        self._before: tuple[float, Rates, Mapping[str, Rates]] | None = None
        self._now: dict[str, Rates] = {}

    def take(self, now: float, total: Rates, topics: Mapping[str, Rates]) -> None:
        """Take a sample of the counters.

        Args:
            now: the time in seconds since the epoch. If this time is not later than the time of
                the last call, no sample is stored.
            topics: the counters of each topic. If a counter is smaller than before, it has begun
                again at 0.
        """
        before, self._before = self._before, (now, total, topics)
        if before is None or now <= before[0]:
            return
        seconds = now - before[0]
        self._times.append(now)
        if len(self._times) > SAMPLES_MAX:
            self._times.pop(0)
        self._all.add(_rates(before[1], total, seconds))
        none = Rates()
        self._now = {
            name: _rates(before[2].get(name, none), counters, seconds)
            for name, counters in topics.items()
        }
        for name in [name for name in self._topics if name not in topics]:
            del self._topics[name]  # the topic was deleted
        for name, rates in self._now.items():
            if any(rates) and name not in self._topics:
                self._begin(name)
        for name, ring in self._topics.items():
            ring.add(self._now[name])

    def _begin(self, name: str) -> None:
        if len(self._topics) >= TOPICS_MAX:
            idle = next((one for one, ring in self._topics.items() if ring.is_idle), None)
            if idle is None:
                return
            del self._topics[idle]
        self._topics[name] = _Ring()

    @property
    def latest(self) -> Rates:
        """The rates of all topics together over the last interval."""
        return Rates(*[values[-1] if values else 0.0 for values in self._all.values])

    def latest_of(self, topic: str) -> Rates:
        """Return the rates of a topic over the last interval."""
        return self._now.get(topic, Rates())

    def curves(self) -> Curves:
        """Return the rates of all topics together."""
        return Curves(list(self._times), self._all.rates())

    def topic_curves(self) -> dict[str, Curves]:
        """Return the rates of the topics that have curves."""
        found = {}
        for name, ring in self._topics.items():
            rates = ring.rates()
            found[name] = Curves(list(self._times[len(self._times) - len(rates) :]), rates)
        return found


def _rates(before: Rates, after: Rates, seconds: float) -> Rates:
    return Rates(
        *[
            (new - old if new >= old else new) / seconds
            for old, new in zip(before, after, strict=True)
        ]
    )
