"""Say what is asked of the disks: a case is one phase with its sizes; a plan is a list of them."""

from __future__ import annotations

from typing import NamedTuple

FLUSH_MS = 100


class Case(NamedTuple):
    """One measurement.

    Attributes:
        phase: append, read, point-read, recover, move, or beside (one disk in trouble).
        sync: none (one flush at the end, timed with the rest), interval (`flush_ms`), durable.
        writers: threads that append.
        seconds: how long one round is meant to take.
        detail: what the phase needs besides: a move's throttle, a disk's trouble.
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
        """Name it within its phase, for tables and keys."""
        words = [f"{self.record_bytes}B", f"batch{self.batch_records}", self.sync]
        words.append(f"{self.writers}w")
        if self.detail:
            words.append(self.detail)
        return "-".join(words)

    @property
    def batch_bytes(self) -> int:
        """Give the bytes of values in one append."""
        return self.record_bytes * self.batch_records


class Plan(NamedTuple):
    """The cases of one run, and how long a throttled disk is to be busy with each."""

    name: str
    cases: tuple[Case, ...]


TROUBLES = ("slow", "full", "failed")
MOVES = ("throttled", "auto")


def _cases(seconds: float, rounds: int, is_full: bool) -> tuple[Case, ...]:
    append = [
        Case("append", seconds=seconds, rounds=rounds),
        Case("append", 1024, 100, "interval", 4, seconds, rounds),
        Case("append", 100, 100, "durable", 8, seconds, rounds),
    ]
    if is_full:
        append += [
            Case("append", size, batch, sync, writers, seconds, rounds)
            for size, batch in ((100, 1000), (10_240, 50))
            for sync in ("none", "interval", "durable")
            for writers in (1, 2, 4, 8)
        ]
    return (
        *dict.fromkeys(append),
        Case("read", seconds=seconds, rounds=rounds),
        Case("point-read", batch_records=100, seconds=seconds / 2, rounds=rounds),
        Case("recover", seconds=seconds, rounds=rounds),
    )


SHORT = Plan("short", _cases(seconds=0.7, rounds=2, is_full=False))
FULL = Plan("full", _cases(seconds=2.0, rounds=5, is_full=True))
QUICK = Plan("quick", tuple(case._replace(seconds=0.05, rounds=1) for case in SHORT.cases))
PLANS = {plan.name: plan for plan in (QUICK, SHORT, FULL)}


def moves(plan: Plan) -> tuple[Case, ...]:
    """Give the cases with a move in the background; they need two log dirs."""
    seconds = max(case.seconds for case in plan.cases) * 2
    return tuple(Case("move", 100, 100, "interval", 1, seconds, 1, throttle) for throttle in MOVES)


def troubles(plan: Plan) -> tuple[Case, ...]:
    """Give the cases with one disk in trouble; they need disks that can be put into it."""
    seconds = max(case.seconds for case in plan.cases) * 2
    return tuple(Case("beside", 100, 100, "durable", 1, seconds, 1, what) for what in TROUBLES)
