"""Say what may happen to one partition on three disks while its store runs, step by step.

Each step is one durable change: an append, a truncation, one step of a move, a deletion, a creation
anew, a purge. `history_model` adds stops, disk failures and starts to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from logstore.log.metadata import CAUGHT_UP, COPYING, MoveRecord, Moving, Superseded
from logstore.store.start.startup_table import Decision, ReplicaFacts, decide, is_covered

DISKS = 3
APPENDS_MAX, EVENTS_MAX = 2, 3


class Dir(NamedTuple):
    """One directory of the partition; a record is a number that is given once."""

    kind: str
    generation: int
    topic_id: str
    records: tuple[int, ...]
    moving: Moving | None = None
    record: MoveRecord | None = None
    superseded_by: Superseded | None = None
    is_deleted_by_user: bool = False


class Disk(NamedTuple):
    """One log dir."""

    directory_id: str
    dirs: frozenset[Dir]


class World(NamedTuple):
    """All that is, and what the user knows: the topic id and the records, or None: deleted."""

    disks: tuple[Disk, ...]
    bad: frozenset[int]
    is_running: bool
    truth: tuple[str, tuple[int, ...]] | None
    next_id: int
    move_id: str  # of the move that a mover works at; empty: none
    appends: int
    events: int
    disk_events: int
    was_disk_lost: bool


Table = Callable[..., list[Decision]]
Step = tuple[str, World]

BEGINNING = World(
    tuple(
        Disk(f"d{n}", frozenset([Dir("live", 1, "t0", ())] if n == 0 else [])) for n in range(DISKS)
    ),
    frozenset(), True, ("t0", ()), 1, "", 0, 0, 0, False,
)  # fmt: skip


class Rules:
    """The rules under test: the real ones, or one of them changed."""

    def __init__(self) -> None:
        self.decide: Table = decide
        self.is_covered: Callable[[ReplicaFacts, ReplicaFacts], bool] = is_covered


RULES = Rules()


@lru_cache(1 << 16)
def facts_of(number: int, directory_id: str, one: Dir, is_open: bool = False) -> ReplicaFacts:
    """Tell the table what it would find."""
    unique = one.record.move_id if one.record else f"{one.generation:032x}"
    name = "orders-0" if one.kind == "live" else f"orders-0.{unique}.{one.kind}"
    return ReplicaFacts(
        f"/{number}", name, "orders", 0, one.kind, one.topic_id, one.is_deleted_by_user,
        one.generation, directory_id, one.moving, one.record, one.superseded_by,
        len(one.records), is_open,
    )  # fmt: skip


def found(world: World, kind: str) -> list[tuple[int, Dir]]:
    """List the directories of a kind on good disks."""
    return [
        (number, one)
        for number, disk in enumerate(world.disks)
        if number not in world.bad
        for one in disk.dirs
        if one.kind == kind
    ]


def changed(world: World, number: int, old: Dir | None, new: Dir | None) -> World:
    """Replace a directory of one disk."""
    disk = world.disks[number]
    dirs = (disk.dirs - {old}) | ({new} if new else set())
    disks = list(world.disks)
    disks[number] = disk._replace(dirs=frozenset(dirs))
    return world._replace(disks=tuple(disks))


# --- life while the store runs --------------------------------------------------------------------


def steps(world: World) -> Iterator[Step]:
    """Give everything that may happen next while the store runs."""
    live = found(world, "live")
    moves = [(n, m) for n, m in found(world, "move") if m.record and m.record.move_id]
    if len(live) == 1:
        number, copy = live[0]
        moves = [(n, m) for n, m in moves if m.record and m.record.move_id == world.move_id]
        yield from of_the_user(world, number, copy, moves)
        yield from of_the_mover(world, number, copy, moves)
        yield from of_the_purger(world, number, copy)
    elif not live:
        yield from second_rename(world)
        if world.truth is None and not world.bad and world.events < EVENTS_MAX + 1:
            topic_id = f"t{world.next_id}"
            anew = changed(world, 2, None, Dir("live", 1, topic_id, ()))
            yield (
                "create anew",
                anew._replace(
                    truth=(topic_id, ()), next_id=world.next_id + 1, events=world.events + 1
                ),
            )
    yield "stop", world._replace(is_running=False, bad=frozenset(), move_id="")


def is_locked(moves: Iterable[tuple[int, Dir]]) -> bool:
    """Tell whether a swap holds the log's lock."""
    return any(move.record and move.record.is_caught_up for _, move in moves)


def of_the_user(
    world: World, number: int, copy: Dir, moves: list[tuple[int, Dir]]
) -> Iterator[Step]:
    """Append, truncate, delete."""
    if world.appends < APPENDS_MAX and not is_locked(moves):
        records = (*copy.records, world.next_id)
        after = changed(world, number, copy, copy._replace(records=records))
        yield (
            "append",
            after._replace(
                truth=(copy.topic_id, records), next_id=world.next_id + 1, appends=world.appends + 1
            ),
        )
    if copy.records and world.appends < APPENDS_MAX + 1 and not moves:
        records = copy.records[:-1]
        after = changed(world, number, copy, copy._replace(records=records, moving=None))
        yield (
            "truncate",
            after._replace(truth=(copy.topic_id, records), appends=world.appends + 1, move_id=""),
        )
    if world.events < EVENTS_MAX and not is_locked(moves):
        gone = copy._replace(kind="delete", is_deleted_by_user=True)
        yield (
            "delete",
            changed(world, number, copy, gone)._replace(
                truth=None, move_id="", events=world.events + 1
            ),
        )


def of_the_mover(
    world: World, number: int, copy: Dir, moves: list[tuple[int, Dir]]
) -> Iterator[Step]:
    """Begin a move, copy, mark, note the intent, rename the source; or cancel."""
    source_id = world.disks[number].directory_id
    taken = {target for target, _ in found(world, "move")}
    for target, disk in enumerate(world.disks):
        if target == number or target in world.bad or target in taken or world.move_id:
            continue
        move_id = f"{world.next_id:032x}"
        moving = copy._replace(moving=Moving(move_id, disk.directory_id))
        record = MoveRecord(move_id, source_id, COPYING, len(copy.records))
        named = changed(world, number, copy, moving)
        named = named._replace(next_id=world.next_id + 1, move_id=move_id)
        move = Dir("move", copy.generation + 1, copy.topic_id, copy.records, record=record)
        yield f"move to {target}", changed(named, target, None, move)
    for target, move in moves:
        assert move.record is not None
        target_id = world.disks[target].directory_id
        if move.records != copy.records:
            yield "copy", changed(world, target, move, move._replace(records=copy.records))
        elif not move.record.is_caught_up:
            marked = move.record._replace(move_state=CAUGHT_UP, source_end_offset=len(move.records))
            yield "mark", changed(world, target, move, move._replace(record=marked))
        else:
            superseded = Superseded(move.generation, target_id)
            gone = copy._replace(kind="delete", superseded_by=superseded)
            yield "rename the source", changed(world, number, copy, gone)
        cancelled = changed(world, number, copy, copy._replace(moving=None))._replace(move_id="")
        yield "cancel", changed(cancelled, target, move, None)
    if world.move_id and not moves:
        cancelled = changed(world, number, copy, copy._replace(moving=None))
        yield "cancel without the target", cancelled._replace(move_id="")


def second_rename(world: World) -> Iterator[Step]:
    """End the swap."""
    for number, move in found(world, "move"):
        record = move.record
        if record and record.move_id == world.move_id and record.is_caught_up:
            live = move._replace(kind="live", record=None)
            yield "rename the target", changed(world, number, move, live)._replace(move_id="")


def of_the_purger(world: World, number: int, copy: Dir) -> Iterator[Step]:
    """Remove a superseded copy in the background, when the real rule says so."""
    live = facts_of(number, world.disks[number].directory_id, copy)
    for where, old in found(world, "delete"):
        facts = facts_of(where, world.disks[where].directory_id, old)
        if not old.is_deleted_by_user and RULES.is_covered(facts, live):
            yield "purge the covered", changed(world, where, old, None)
