"""Define the measurements: a case is one phase with its sizes, and a plan is a list of cases."""

from __future__ import annotations

from typing import NamedTuple

FLUSH_MS = 100


class Case(NamedTuple):
    """Describe one measurement.

    Attributes:
        phase: append, read, point-read, recover, move, or beside (the other disks work while one
            disk is slow, full or dead).
        sync: "none" (one flush at the end, which is measured, too), "interval" (`flush_ms`), or
            "durable".
        writers: the number of threads that append.
        seconds: the intended time of one round.
        detail: for the phase move, the throttle; for the phase beside, the state of the first disk.
    """

    phase: str
    record_bytes: int = 100
    batch_records: int = 1000
    sync: str = "none"
    writers: int = 1
    seconds: float = 1.0
    rounds: int = 3
    detail: str = ""

    @property
    def name(self) -> str:
        """The name of the case within its phase, for tables and keys."""
        words = [f"{self.record_bytes}B", f"batch{self.batch_records}", self.sync]
        words.append(f"{self.writers}w")
        if self.detail:
            words.append(self.detail)
        return "-".join(words)

    @property
    def batch_bytes(self) -> int:
        """Bytes of values in one append."""
        return self.record_bytes * self.batch_records


class Plan(NamedTuple):
    """Hold the cases of one run."""

    name: str
    cases: tuple[Case, ...]


TROUBLES = ("healthy", "slow", "full", "failed")  # "healthy" is measured for comparison
MOVES = ("throttled", "auto")


BASE = (
    Case("append"),
    Case("append", 1024, 100, "interval", 4),
    Case("append", 100, 100, "durable", 8),
    Case("read"),
    Case("point-read", batch_records=100),
    Case("recover"),
)
GRID = tuple(
    Case("append", size, batch, sync, writers)
    for size, batch in ((100, 1000), (10_240, 50))
    for sync in ("none", "interval", "durable")
    for writers in (1, 2, 4, 8)
)


def _timed(cases: tuple[Case, ...], seconds: float, rounds: int) -> tuple[Case, ...]:
    return tuple(case._replace(seconds=seconds, rounds=rounds) for case in cases)


def _rest(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return tuple(case for case in cases if case not in BASE)


QUICK = Plan("quick", _timed(BASE, 0.05, 1))
SHORT = Plan("short", _timed(BASE, 0.8, 2))
FULL = Plan("full", (*_timed(BASE, 1.0, 5), *_timed(_rest(GRID), 1.0, 3)))
PLANS = {plan.name: plan for plan in (QUICK, SHORT, FULL)}


def moves(plan: Plan) -> tuple[Case, ...]:
    """Return the cases with a move in the background; they need two log dirs."""
    seconds = max(case.seconds for case in plan.cases) * 2
    return tuple(Case("move", 100, 100, "interval", 1, seconds, 1, throttle) for throttle in MOVES)


def troubles(plan: Plan) -> tuple[Case, ...]:
    """Return the cases that run while the first disk is healthy, slow, full or dead.

    All these cases need a first disk that this program can slow down and stop.
    """
    seconds = max(case.seconds for case in plan.cases) * 2
    return tuple(Case("beside", 100, 100, "durable", 1, seconds, 1, what) for what in TROUBLES)
