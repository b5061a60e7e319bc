"""Plan a run, and turn the figures of its sessions into rows; nothing here starts a process.

A session is what is measured from the start of a cluster to its stop. Only one cluster runs at a
time. Each question gets one figure from a session: the median of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from benchmarks.report import Goal, Row, at_least, at_most

Figures = Mapping[str, Sequence[float]]  # all rounds of one session, by question
OURS, PEER = "ours", "peer"


@dataclass(frozen=True)
class Scale:
    """Define how much work is done.

    Attributes:
        sessions: how often each cluster is started.
        warm_records: how many records a new cluster gets before the first measurement. Java
            compiles while it runs, so its first seconds are slow.
        rounds: how often a session repeats a measurement of rates or latencies.
        kills: how often a session kills the leader of a single partition.
        client_timeout_ms: how long the client of a frozen leader waits for an answer; None for the
            client's own default, a minute.
        freezes: in how many sessions a leader is frozen.
    """

    sessions: int
    warm_records: int
    rounds: int
    partitions: tuple[int, ...]
    small_records: int  # in a round with batches of 16 KiB
    large_records: int  # in a round with batches of 1 MB
    paced_seconds: float
    kills: int
    many_partitions: int
    catch_ups: int  # how often a session lets a follower catch up
    behind_records: int  # that a follower misses while it is away
    freezes: int
    client_timeout_ms: int | None
    elected_partitions: int


SCALES = {
    "small": Scale(
        1, 200_000, 2, (1,), 100_000, 400_000, 3, 1, 100, 3, 3_000_000, 1, 5_000, 10_000
    ),
    "full": Scale(
        3, 300_000, 2, (1, 6), 200_000, 1_000_000, 5, 1, 1_000, 3, 3_000_000, 1, None, 100_000
    ),
}


class Turn(NamedTuple):
    """One session of the run: which cluster runs, and whether it is its first session."""

    side: str
    number: int


def turns(sessions: int) -> Iterator[Turn]:
    """Give the sessions in their order: the two clusters take turns to be first."""
    for number in range(sessions):
        order = (PEER, OURS) if number % 2 else (OURS, PEER)
        for side in order:
            yield Turn(side, number)


@dataclass(frozen=True)
class Question:
    """A line of the table.

    Attributes:
        key: the name of the figure in a session.
        is_absolute: whether the goal is for our figure alone; if so, no ratio is shown.
        against: the figure of the same session that ours is compared with; by default, the same
            figure of the peer.
    """

    key: str
    words: str
    unit: str
    goal: Goal | None = None
    is_absolute: bool = False
    against: str = ""
    against_name: str = ""


def questions(scale: Scale) -> list[Question]:
    """List all questions in the order of the table."""
    found = []
    for size, key in (("16 KiB", "small"), ("1 MB", "large")):
        for count in scale.partitions:
            words = f"acks=all, batches of {size}, {count} partition{'s' if count > 1 else ''}"
            name = rate_key(key, count)
            found.append(Question(name, words, "k records/s", at_least(1.5)))
            found.append(Question(f"{name} cpu", f"{words}: CPU", "s/GB", at_most(0.5)))
    many = f"{scale.many_partitions:,} partitions"
    return [
        *found,
        Question("resident", "resident memory after that", "MiB", at_most(0.3)),
        Question("p99", "2,000 records/s, acks=all: p99", "ms", at_most(1.0)),
        Question("p50", "2,000 records/s, acks=all: p50", "ms"),
        Question("kill", "kill -9 of a leader, 1 partition", "s", at_most(1.0), is_absolute=True),
        Question("kill many", f"kill -9 of a leader, {many}", "s", at_most(2.0), is_absolute=True),
        Question("kill many median", f"the same, {many}: half of them", "s"),
        Question("kill controller", "kill -9 of the controller, 1 partition", "s"),
        Question("freeze", "SIGSTOP of a leader, 1 partition", "s", at_most(1.0)),
        Question(
            "catch up", "a follower catches up", "MB/s", at_least(0.8), against="bare copy",
            against_name="bare copy",
        ),
        Question("catch up", "a follower catches up", "MB/s"),
        Question("create many", f"create {many}, and a record in each", "s"),
    ]  # fmt: skip


def rate_key(size: str, partitions: int) -> str:
    """Name the figure of a throughput."""
    return f"rate {size} {partitions}"


def rows_of(
    asked: Sequence[Question], ours: Sequence[Figures], peers: Sequence[Figures], peer_name: str
) -> list[Row]:
    """Make the rows for which there are figures; a session that failed has none."""
    rows = []
    for question in asked:
        mine, others = medians(ours, question.key), medians(peers, question.key)
        name = peer_name
        if question.against:
            others, name = medians(ours, question.against), question.against_name
        if mine:
            rows.append(row_of(question, mine, others, name))
    return rows


def row_of(question: Question, mine: list[float], others: list[float], name: str) -> Row:
    """Compare session by session: the ratio is the median of the ratios."""
    ratios = tuple(one / other for one, other in zip(mine, others, strict=False) if other)
    is_compared = ratios and not question.is_absolute
    return Row(
        question.words, question.unit, median(mine), name if others else "",
        median(others) if others else None, median(ratios) if is_compared else None,
        question.goal if ratios or question.is_absolute else None, rounds=ratios,
    )  # fmt: skip


def medians(sessions: Sequence[Figures], key: str) -> list[float]:
    """Give one figure of each session that has measured it."""
    return [median(one[key]) for one in sessions if one.get(key)]
