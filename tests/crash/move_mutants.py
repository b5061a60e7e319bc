"""Make records of moves in which one sync or one order is missing; each has to be noticed.

An operation is named by what it does to which file, with ids left out, and by what came before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from support.crash_model import Op

MOVE, LIVE_A, LIVE_B = "b/orders-0.*.move", "a/orders-0", "b/orders-0"
DELETE = "a/orders-0.*.delete"


class Named(NamedTuple):
    """An operation, what it is called, and what the one before it is called."""

    op: Op
    name: str
    before: str


def plain(path: str) -> str:
    """Leave the ids out of a path."""
    path = re.sub(r"\.[0-9a-f]{32}\.", ".*.", path)
    return re.sub(r"\.[0-9a-f]{8}\.tmp", ".tmp", path)


def named(ops: list[Op]) -> Iterator[Named]:
    """Name the operations of a record; a file keeps the name it was made under.

    The metadata of a copy is written when the copy begins, and `again` with the mark.
    """
    made: dict[int, str] = {}
    begun: set[str] = set()
    again: set[str] = set()
    before = ""
    for op in ops:
        kind, target = op[0], op[1]
        if kind == "mark":
            yield Named(op, f"mark {target[0]}", before)
            continue
        if kind == "create":
            directory, _, file = target.rpartition("/")
            if directory.endswith(".move") and file.startswith("partition.metadata"):
                if directory in begun:
                    again.add(target)
                begun.add(directory)
            made[op[2]] = plain(target) + " again" * (target in again)
        words = [
            f"{plain(word)}{' again' * (word in again)}" for word in op[1:3] if type(word) is str
        ]
        name = f"{kind} {made[target] if isinstance(target, int) else ' -> '.join(words)}"
        yield Named(op, name, before)
        before = name


Mutant = Callable[[list[Op]], list[Op]]


def without(name: str, before: str = "") -> Mutant:
    """Leave out the operations of a name, or those that come right behind another."""

    def worse(ops: list[Op]) -> list[Op]:
        return [
            one.op
            for one in named(ops)
            if not (re.fullmatch(name, one.name) and re.search(before, one.before))
        ]

    return worse


def later(first: str, behind: str, before: str = "") -> Mutant:
    """Do an operation only behind another that ought to follow it, where one does."""

    def worse(ops: list[Op]) -> list[Op]:
        done: list[Op] = []
        waiting: list[Op] = []
        all_of_them = list(named(ops))
        left = sum(bool(re.fullmatch(behind, one.name)) for one in all_of_them)
        for one in all_of_them:
            if left and re.fullmatch(first, one.name) and re.search(before, one.before):
                waiting.append(one.op)
                continue
            done.append(one.op)
            if re.fullmatch(behind, one.name):
                done += waiting
                waiting = []
                left -= 1
        return done

    return worse


def text(name: str) -> str:
    """Take a name literally."""
    return re.escape(name)


RENAME_SOURCE = text(f"rename {LIVE_A} -> {DELETE}")
RENAME_TARGET = text(f"rename {MOVE} -> {LIVE_B}")
MARK = text(f"{MOVE}/partition.metadata.tmp again")
DATA_SYNC = text(f"sync {MOVE}/") + r"\d+\.log"
MARK_RENAME = text(f"rename {MOVE}/partition.metadata.tmp again -> {MOVE}/partition.metadata")

MUTANTS: dict[str, Mutant] = {
    # --- of the mover
    "no sync of copied data": without(DATA_SYNC),
    "no sync of copied data but early": without(DATA_SYNC),
    "no sync of the names in the copy": without(text(f"sync dir {MOVE}"), r"\.log$|index"),
    "no sync of any name in the copy": without(text(f"sync dir {MOVE}")),
    "no sync of the copy's own name": without(text("sync dir b"), text(f"mkdir {MOVE}")),
    "no sync of the mark": without("sync " + MARK),
    "no sync of the mark's name": without(text(f"sync dir {MOVE}"), MARK_RENAME),
    "no mark": without(f"(create|write|sync) {MARK}|{MARK_RENAME}"),
    "mark behind the source's rename": later(MARK_RENAME, RENAME_SOURCE),
    "mark behind the source's sync": later(MARK_RENAME, text("sync dir a"), MARK),
    "mark synced behind the source's rename": later("sync " + MARK, RENAME_SOURCE),
    "mark synced behind the source's sync": later("sync " + MARK, RENAME_TARGET),
    "data synced behind the source's sync": later(DATA_SYNC, RENAME_TARGET),
    "data synced behind the renames": later(DATA_SYNC, text("sync dir b")),
    "no sync of the source's rename": without(text("sync dir a"), RENAME_SOURCE),
    "no sync of the target's rename": without(text("sync dir b"), RENAME_TARGET),
    "no sync of either rename": without("sync dir [ab]", f"{RENAME_SOURCE}|{RENAME_TARGET}"),
    "target renamed first": later(RENAME_SOURCE, RENAME_TARGET),
    "target renamed and synced first": later(
        f"{RENAME_SOURCE}|sync dir a",
        text("sync dir b"),
        f"sync (dir )?{text(MOVE)}|{RENAME_SOURCE}",
    ),
    "intent behind the renames": later(
        text(f"rename {LIVE_A}/partition.metadata.tmp -> {LIVE_A}/partition.metadata"),
        RENAME_TARGET,
    ),
    "purge before the source's rename is synced": later(
        text("sync dir a"), text(f"remove {DELETE}/partition.metadata"), RENAME_SOURCE
    ),
    "purge before the target's rename is synced": later(
        text("sync dir b"), text(f"remove {DELETE}"), RENAME_TARGET
    ),
    # --- of the engine
    "no sync of appended data": without(r"sync a/orders-0/\d+\.log"),
    "no sync of new names": without("sync dir a/orders-0"),
    "no sync of the log's own name": without(text("sync dir a"), text(f"mkdir {LIVE_A}")),
    "no sync of metadata": without("sync [ab]/orders-0/partition.metadata.tmp"),
}
