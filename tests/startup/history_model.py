"""Live through every history of one partition on three disks, and judge what each start decides.

A history is a chain of durable steps (append, truncate, the steps of a move, deletion, creation
anew, promotion, purges), stops and crashes at any of them, disks that are bad for one run, come
back during it, or are replaced by empty ones. At each start the real table decides, its decisions
are judged against what the user was promised, carried out (with a crash after any part of them),
and life goes on. Breadth first, so the first history that breaks a promise is a shortest one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from logstore.log.metadata import COPYING
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts
from startup.partition_world import (
    BEGINNING,
    RULES,
    Dir,
    Disk,
    Step,
    World,
    changed,
    facts_of,
    found,
    steps,
)

DISK_EVENTS_MAX = 2

# --- a start --------------------------------------------------------------------------------------


def beginnings(world: World) -> Iterator[Step]:
    """Give the states of the disks in which the store may be started."""
    yield "", world
    if world.disk_events >= DISK_EVENTS_MAX:
        return
    for number, disk in enumerate(world.disks):
        yield (
            f"disk {number} bad",
            world._replace(bad=frozenset([number]), disk_events=world.disk_events + 1),
        )
        if disk.dirs:
            disks = list(world.disks)
            disks[number] = Disk(f"n{world.next_id}", frozenset())
            yield f"disk {number} replaced", world._replace(
                disks=tuple(disks), next_id=world.next_id + 1,
                disk_events=world.disk_events + 1, was_disk_lost=True,
            )  # fmt: skip


def decisions_of(world: World, opened: tuple[int, Dir] | None = None) -> list[Decision]:
    """Let the real table decide."""
    facts = [
        facts_of(number, disk.directory_id, one, (number, one) == opened)
        for number, disk in enumerate(world.disks)
        if number not in world.bad
        for one in sorted(disk.dirs, key=repr)
    ]
    return RULES.decide(facts, is_a_dir_bad=bool(world.bad))


def place_of(world: World, facts: ReplicaFacts) -> tuple[int, Dir]:
    """Find the directory that facts are about."""
    number = int(facts.log_dir[1:])
    disk = world.disks[number]
    for one in disk.dirs:
        if facts_of(number, disk.directory_id, one)._replace(is_open=facts.is_open) == facts:
            return number, one
    raise AssertionError(facts)


def effects_of(world: World, decisions: Iterable[Decision]) -> Iterator[Callable[[World], World]]:
    """Give what the decisions change on the disks, step by step."""
    for decision in decisions:
        for facts in decision.replicas:
            number, one = place_of(world, facts)
            new: Dir | None = one
            if decision.act is Act.COMPLETE:
                new = one._replace(kind="live", record=None)
            elif decision.act is Act.RESUME and one.record is not None:
                new = one._replace(record=one.record._replace(move_state=COPYING))
            elif decision.act is Act.STRAY:
                new = one._replace(kind="stray")
            elif decision.act is Act.PURGE:
                new = None
            if new != one:
                yield partial(_replaced, number, one, new)


def _replaced(number: int, old: Dir, new: Dir | None, world: World) -> World:
    return changed(world, number, old, new)


def after_start(world: World, decisions: list[Decision]) -> Iterator[Step]:
    """Give the world after the decisions were carried out, whole or with a crash in between."""
    effects = list(effects_of(world, decisions))
    for done in range(1, len(effects)):
        partial = world
        for effect in effects[:done]:
            partial = effect(partial)
        yield f"crash after {done} acts", partial._replace(bad=frozenset())
    for effect in effects:
        world = effect(world)
    live = found(world, "live")
    if len(live) > 1:
        return
    moving = live[0][1].moving if live else None
    resumed = any(decision.act is Act.RESUME for decision in decisions)
    running = world._replace(is_running=True, move_id=moving.move_id if moving and resumed else "")
    yield "", running
    for decision in decisions:
        if decision.act is Act.INCOMPLETE:
            number, one = place_of(world, decision.replicas[0])
            generations = [facts.generation for facts in decision.replicas]
            if one.superseded_by:
                generations.append(one.superseded_by.generation)
            live_copy = Dir("live", max(generations) + 1, one.topic_id, one.records)
            if running.truth and running.truth[0] == one.topic_id:
                yield (
                    "promote",
                    changed(running, number, one, live_copy)._replace(
                        truth=(one.topic_id, one.records)
                    ),
                )


# --- the judge ------------------------------------------------------------------------------------


def judge(world: World, decisions: list[Decision], is_return: bool = False) -> Iterator[str]:
    """Name every promise that the decisions of a start break."""
    served = [d for d in decisions if d.act in (Act.OPEN, Act.COMPLETE)]
    yield from judge_served(world, served)
    resumed = [d for d in decisions if d.act is Act.RESUME]
    if len(resumed) > 1:
        yield "two moves of one replica are resumed"
    for decision in resumed:
        _, move = place_of(world, decision.replicas[0])
        for opened in served:
            _, live = place_of(world, opened.replicas[0])
            if live.records[: len(move.records)] != move.records:
                yield "a move is resumed over bytes that the live copy does not have"
    for decision in decisions:
        if decision.act is Act.INCOMPLETE and not world.was_disk_lost:
            _, copy = place_of(world, decision.replicas[0])
            if world.truth is None or copy.topic_id != world.truth[0]:
                yield "a copy of a deleted partition is shown again"
    yield from judge_touched(world, decisions, bool(served))
    if is_return or served or world.truth is None or world.bad:
        return
    if not world.was_disk_lost:
        yield "a crash alone took the replica from its users"


def judge_served(world: World, served: list[Decision]) -> Iterator[str]:
    """Judge what would be served as whole."""
    if len(served) > 1:
        yield "two copies are served"
    for decision in served:
        _, copy = place_of(world, decision.replicas[0])
        if world.truth is None:
            yield "a deleted partition is served again"
        elif copy.topic_id != world.truth[0]:
            yield "an older topic of the same name is served"
        elif copy.records != world.truth[1]:
            yield "acknowledged records are missing in what is served as whole"


def judge_touched(world: World, decisions: list[Decision], is_served: bool) -> Iterator[str]:
    """Judge what would be removed or renamed."""
    touching = (Act.COMPLETE, Act.RESUME, Act.STRAY, Act.PURGE)
    for decision in decisions:
        if decision.act not in touching:
            continue
        if world.bad and not is_served:
            yield "something is touched while a disk is bad and no live copy is found"
        if decision.act is not Act.PURGE or world.truth is None:
            continue
        for facts in decision.replicas:
            number, one = place_of(world, facts)
            if (one.topic_id, one.records) == world.truth and is_the_last(world, number, one):
                yield "the only copy with every record is purged"


def is_the_last(world: World, number: int, one: Dir) -> bool:
    """Tell whether no other directory of any disk has all records."""
    return not any(
        (other.topic_id, other.records) == world.truth
        for where, disk in enumerate(world.disks)
        for other in disk.dirs
        if (where, other) != (number, one)
    )


# --- all histories --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a search came to: starts judged, worlds seen, a shortest history per broken promise."""

    starts: int
    worlds: int
    violations: dict[str, tuple[str, ...]]
    decided: Counter[str]


def search(depth: int, *, stop_at_first: bool = False, starts_max: int = 1 << 60) -> Outcome:
    """Go through every history of at most `depth` steps."""
    history: dict[World, tuple[str, ...]] = {BEGINNING: ()}
    queue = deque([BEGINNING])
    outcome = Outcome(0, 0, {}, Counter())
    starts = 0
    while queue and starts < starts_max:
        world = queue.popleft()
        so_far = history[world]
        following: list[Step] = []
        if world.is_running:
            if len(so_far) < depth:
                following += steps(world)
                following += returns(world, outcome, so_far)
        else:
            for name, before in beginnings(world):
                starts += 1
                chain = (*so_far, *filter(None, [name]), "start")
                decisions = decisions_of(before)
                outcome.decided["+".join(sorted(d.act.name for d in decisions))] += 1
                note(outcome, chain, judge(before, decisions))
                for more, after in after_start(before, decisions):
                    if len(chain) <= depth and after not in history:
                        history[after] = (*chain, *filter(None, [more]))
                        queue.append(after)
            if stop_at_first and outcome.violations:
                break
            continue
        for name, after in following:
            if after not in history:
                history[after] = (*so_far, name)
                queue.append(after)
        if stop_at_first and outcome.violations:
            break
    return outcome._replace(starts=starts, worlds=len(history))


def note(outcome: Outcome, chain: tuple[str, ...], broken: Iterable[str]) -> None:
    """Keep the first history of each broken promise."""
    for promise in broken:
        outcome.violations.setdefault(promise, chain)


def returns(world: World, outcome: Outcome, so_far: tuple[str, ...]) -> Iterator[Step]:
    """Let a bad disk come back while the store runs: the table decides with the open copy."""
    if not world.bad:
        return
    live = found(world, "live")
    back = world._replace(bad=frozenset())
    opened = live[0] if len(live) == 1 else None
    decisions = decisions_of(back, opened)
    note(outcome, (*so_far, "the disk comes back"), judge(back, decisions, is_return=True))
    for decision in decisions:
        is_other = decision.act is Act.OPEN and place_of(back, decision.replicas[0]) != opened
        if opened is not None and is_other:
            note(outcome, (*so_far, "the disk comes back"), ["an open copy is replaced"])
    for name, after in after_start(back, decisions):
        if not name.startswith("crash"):
            yield "the disk comes back", after
