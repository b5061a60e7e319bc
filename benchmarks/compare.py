"""Run the engine and its peers in alternating rounds, and keep medians of figures and of ratios.

In each round, a side is prepared, run and finished. Only `run` is timed. The first round of each
side is not counted. pytest-benchmark times the rounds of the engine, and its `setup` runs the peers
before each of these rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.report import Goal, Row


@dataclass(frozen=True, slots=True)
class Unit:
    """Define how to compute a figure from an amount and seconds: a rate, or a time per item."""

    label: str
    scale: float
    is_rate: bool = True

    def figure(self, amount: float, seconds: float) -> float:
        """Compute the figure of one round."""
        rate = amount / seconds if self.is_rate else seconds / amount
        return rate * self.scale


MILLION_RECORDS = Unit("M records/s", 1e-6)
APPENDS = Unit("appends/s", 1)
GIGABYTES = Unit("GB/s", 1e-9)
MICROSECONDS = Unit("us each", 1e6, is_rate=False)
SECONDS = Unit("s", 1, is_rate=False)
# The labels of units in which a smaller figure is better. The engine is better if its ratio is low.
LESS_IS_BETTER = {each.label for each in (MICROSECONDS, SECONDS)}


def _nothing(*_: Any) -> None:
    return None


@dataclass(slots=True)
class Side:
    """Describe the engine or a peer in one question.

    Attributes:
        run: the timed work; its argument is the result of `prepare`.
        amount: how many records (or bytes) one run handles.
        goal: for a peer, the goal for the ratio of the engine's figure to the peer's figure.
        seconds: the measured time of each round.
    """

    name: str
    run: Callable[[Any], object]
    amount: float
    prepare: Callable[[], Any] = _nothing
    finish: Callable[[Any], object] = _nothing
    goal: Goal | None = None
    note: str = ""
    seconds: list[float] = field(default_factory=list)

    def time_one(self) -> float:
        """Run one round; return the time of `run` alone."""
        state = self.prepare()
        try:
            started = time.perf_counter()
            self.run(state)
            return time.perf_counter() - started
        finally:
            self.finish(state)


def alternate(
    benchmark: BenchmarkFixture, engine: Side, peers: Sequence[Side], rounds: int
) -> None:
    """Measure all sides round by round; append each time to the `seconds` of its side."""
    for side in (engine, *peers):
        side.time_one()

    def between() -> tuple[tuple[Any], dict[str, Any]]:
        for peer in peers:
            peer.seconds.append(peer.time_one())
        gc.collect()
        return (engine.prepare(),), {}

    def timed(state: Any) -> None:
        started = time.perf_counter()
        engine.run(state)
        engine.seconds.append(time.perf_counter() - started)

    pedantic: Any = benchmark.pedantic  # this function has no type annotations
    pedantic(timed, setup=between, teardown=engine.finish, rounds=rounds)


def rows_of(question: str, unit: Unit, engine: Side, peers: Sequence[Side]) -> list[Row]:
    """Build one row for each peer; without peers, build one row for the engine."""
    figures = [unit.figure(engine.amount, seconds) for seconds in engine.seconds]
    if not peers:
        return [Row(question, unit.label, median(figures), goal=engine.goal, note=engine.note)]
    rows = []
    for peer in peers:
        others = [unit.figure(peer.amount, seconds) for seconds in peer.seconds]
        ratios = tuple(ours / theirs for ours, theirs in zip(figures, others, strict=True))
        rows.append(
            Row(
                question, unit.label, median(figures), peer.name, median(others), median(ratios),
                peer.goal, peer.note, ratios,
            )
        )  # fmt: skip
    return rows
