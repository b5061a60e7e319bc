"""Every combination of what a start may find of one partition, and what has to come of it.

`expected` states the table a second time, in words of its own; it shares no line with the engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

LIVE = ("none", "one", "names the move", "two generations", "one generation twice", "two topics")
MOVE = ("none", "copying", "caught up", "of another move", "bare")
DELETE = ("none", "by the user", "superseded", "superseded, longer", "superseded later", "unknown")


class Case(NamedTuple):
    """What is found: live copies on disks 0 and 2, a `.move` on disk 1, a `.delete` on disk 0."""

    live: str
    move: str
    delete: str
    is_a_dir_bad: bool

    def __str__(self) -> str:
        bad = ", a dir is bad" if self.is_a_dir_bad else ""
        return f"live: {self.live}, move: {self.move}, delete: {self.delete}{bad}"


class Outcome(NamedTuple):
    """What has to come of it: how the partition is served, and what stands on the disks."""

    state: str  # "whole", "incomplete", "offline" or "gone"
    where: int  # the disk that serves it, or -1
    left: frozenset[tuple[int, str]]  # disk and kind of every directory afterwards
    is_move_kept: bool = False  # it is to be resumed, and marked as copying


def all_cases() -> Iterator[Case]:
    """Give every combination."""
    for case in itertools.product(LIVE, MOVE, DELETE, (False, True)):
        yield Case(*case)


def live_copies(case: Case) -> dict[int, tuple[str, int]]:
    """Give topic and generation of the live copies by disk."""
    one = {0: ("t", 1)}
    return {
        "none": {},
        "one": one,
        "names the move": one,
        "two generations": {**one, 2: ("t", 2)},
        "one generation twice": {**one, 2: ("t", 1)},
        "two topics": {**one, 2: ("u", 1)},
    }[case.live]


def expected(case: Case) -> Outcome:
    """Say what has to come of a case."""
    live = live_copies(case)
    left = {(disk, "live") for disk in live}
    left |= {(1, "move")} if case.move != "none" else set()
    left |= {(0, "delete")} if case.delete != "none" else set()
    is_move, is_delete = case.move not in ("none", "bare"), case.delete.startswith("superseded")
    if case.delete == "by the user":
        dead = {(disk, "live") for disk, copy in live.items() if copy == ("t", 1)}
        dead |= {(1, "move")} if is_move else set()
        live = {disk: copy for disk, copy in live.items() if copy != ("t", 1)}
        is_move = False
        if not case.is_a_dir_bad:
            left -= dead | {(0, "delete")}
    if live:
        return beside_live(case, live, left, is_move)
    if not is_move and not is_delete and case.delete != "unknown" and case.move != "bare":
        return Outcome("gone", -1, frozenset(left))
    if case.is_a_dir_bad:
        return Outcome("offline", -1, frozenset(left))
    if case.move == "bare":
        left -= {(1, "move")}
    if not is_move and not is_delete:
        is_left = case.delete == "unknown"  # its records can be read, and its user decides
        state, where = ("incomplete", 0) if is_left else ("gone", -1)
        return Outcome(state, where, frozenset(left))
    if case.move in ("caught up", "of another move") and case.delete == "superseded":
        return Outcome("whole", 1, frozenset({(1, "live")}))
    return Outcome("incomplete", 1 if is_move else 0, frozenset(left))


def beside_live(
    case: Case, live: dict[int, tuple[str, int]], left: set[tuple[int, str]], is_move: bool
) -> Outcome:
    """Say what has to come of a case with a live copy that its user did not delete."""
    if len(live) == 2 and case.live != "two generations":
        return Outcome("offline", -1, frozenset(left))
    where = max(live, key=lambda disk: live[disk][1])
    if len(live) == 2:
        left = left - {(0, "live")} | {(0, "stray")}
    is_named = case.live == "names the move" and case.move in ("copying", "caught up", "bare")
    if case.delete != "by the user" and not is_named:
        left -= {(1, "move")}
    if case.move == "bare" and not is_named:
        left -= {(1, "move")}
    if live[where] == ("t", 2) and case.delete == "superseded":
        left -= {(0, "delete")}
    return Outcome("whole", where, frozenset(left), is_named)
