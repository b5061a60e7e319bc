"""Run random histories: choose a cluster, faults and weights for each seed, then heal it (L)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from cluster_sim.checker import Violation
from cluster_sim.steps import FAULTS, Step, Steps
from cluster_sim.world import World

STEPS = 140
WEIGHTS = {
    "deliver": 10, "decide": 2, "ask": 1, "refresh": 5, "fetch": 7, "produce": 4, "read": 1,
    "checkpoint": 1, "flush": 1, "start": 3, "rejoin": 2, "return": 2, "heal": 1, "expire": 2,
    "again": 1, "succeed": 2, "refused": 1, "accepted": 2, "mend": 1, "hear": 3,
    "finish": 3, "stops": 1, "hear_read": 1, "stop": 1,
}  # fmt: skip
TURNS_MAX = 60


class Settings(NamedTuple):
    """What is possible in one history: the cluster, how often each fault, how likely each step."""

    cluster: dict[str, Any]
    faults: dict[str, int]
    weights: dict[str, float]
    is_settled: bool


class History(NamedTuple):
    """A history, and what it violates."""

    settings: Settings
    world: World
    steps: list[Step]
    violation: str


def settings_of(rng: random.Random, brokers: int, focus: Iterable[str]) -> Settings:
    """Choose the settings of a history (swarm testing): few kinds of faults go deep."""
    spare = rng.choice((0, 1)) if brokers > 3 else 0
    kinds = rng.sample(FAULTS, 3) if rng.random() < 0.5 else FAULTS
    faults = {name: rng.choice((0, 1, 2, 5)) if name in kinds else 0 for name in FAULTS}
    faults["records"] = rng.choice((2, 3, 5))
    faults["unclean"] = rng.choice((0, 0, 0, 0, 1))
    if spare:
        faults["reassign"] = rng.choice((1, 2))
    faults["recreate"] = rng.choice((0, 0, 1, 2))
    for name in focus:
        faults[name] = max(faults[name], rng.choice((1, 2, 3)))
    weights = {name: weight * rng.choice((0.2, 1, 1, 4)) for name, weight in WEIGHTS.items()}
    weights.update({name: rng.choice((0.3, 1, 3)) for name in FAULTS})
    if faults["unclean"]:  # leases end and are renewed only where they matter
        weights["lease"] = weights["renew"] = 2
    else:
        faults["allow"] = 0
    cluster = {
        "brokers": brokers,
        "min_isr": rng.choice((2, 2, 2, 1)),
        "spare": spare,
        "flushes": rng.random() < 0.15,
        "parts": rng.choice((1, 2)),
        "is_apart": rng.random() < 0.7,
        "is_unclean_allowed": faults["unclean"] > 0 and rng.random() < 0.7,
    }
    return Settings(cluster, faults, weights, rng.random() < 0.7)


def choose(rng: random.Random, steps: Steps, weights: dict[str, float]) -> Step:
    """Choose a possible step: first its name by weight, then its arguments."""
    left = dict(weights)
    while True:
        (name,) = rng.choices(list(left), list(left.values()))
        found = steps.choices(name)
        if found:
            return found[int(rng.random() * len(found))]
        del left[name]


def run(
    seed: int,
    brokers: int = 3,
    focus: Iterable[str] = (),
    steps_max: int = STEPS,
    *,
    cuts_answers: bool = False,
) -> History:
    """Run the history of a seed.

    Args:
        cuts_answers: whether a follower takes the records of an answer one by one (ADR 43).
    """
    rng = random.Random(seed)
    settings = settings_of(rng, brokers, focus)
    if cuts_answers:
        settings = settings._replace(cluster={**settings.cluster, "cuts_answers": True})
    done: list[Step] = []
    world = begin(settings)
    steps = Steps(world, settings.faults)
    try:
        for _ in range(steps_max):
            step = choose(rng, steps, settings.weights)
            done.append(step)
            steps.take(step)
        heal(steps)
    except (Violation, AssertionError) as violation:
        return History(settings, world, done, str(violation) or repr(violation))
    return History(settings, world, done, "")


def begin(settings: Settings) -> World:
    """Make the world of a history: in most of them, each partition has a leader and a record."""
    world = World(**settings.cluster)
    if settings.is_settled:
        settle(world)
    return world


def replay(settings: Settings, steps: Iterable[Step]) -> str:
    """Take given steps, and give what they violate; a step that is not possible does nothing."""
    world = begin(settings)
    taker = Steps(world, settings.faults)
    try:
        for step in steps:
            taker.take(step)
        heal(taker)
    except (Violation, AssertionError) as violation:
        return str(violation) or repr(violation)
    return ""


def settle(world: World) -> None:
    """Let every partition get a leader, a full ISR, and one acknowledged record."""
    steps = Steps(world, {})
    records = [new_record(world, number) for number in range(len(world.parts))]
    for _ in range(12):
        turn(steps, records)
    for part in world.parts:
        assert part.checker.acked, "a healthy cluster acknowledges"
    world.used.clear()


def new_record(world: World, number: int) -> int:
    """Give the number of a record that no client has sent yet."""
    world.parts[number].records += 1
    return world.parts[number].records


def turn(steps: Steps, records: list[int]) -> None:
    """Let everybody do once what there is to do, and let every request arrive."""
    world = steps.world
    steps.take(("refresh", 0))
    steps.take(("stops", 0))
    for part in world.parts:
        number = part.number
        steps.take(("decide", 0, number))
        for m, broker in world.brokers.items():
            if broker.follows(number):
                steps.take(("fetch", number, m))
            if broker.leads(number) and broker.replicas[number].proposed:
                steps.take(("again", number, m))
            is_present = broker.leads(number) and broker.replicas[number].topic == part.topic
            if is_present and records[number] not in part.checker.acked:
                steps.take(("produce", number, m, records[number]))
    while world.net:
        steps.take(("deliver", 0))


def heal(steps: Steps) -> None:
    """End all faults: every partition acknowledges again (L), and no replica is left over (S)."""
    world = steps.world
    world.cut.clear()
    world.net.clear()
    world.is_slow = world.loses_answer = world.is_disk_late = False
    world.is_read_late = False
    end_faults(steps)
    epochs = [one.room.controller_epoch for one in world.controllers]
    if world.controller_epoch not in epochs or world.zxid % 2:
        steps.take(("controller", 1))
    del world.controllers[:-1]
    records = [new_record(world, part.number) for part in world.parts]
    for _ in range(TURNS_MAX):
        for m in list(world.controllers[0].room.gone):
            steps.take(("accepted", 0, m))
        turn(steps, records)
        if is_healed(world, records):
            return
    if is_acknowledged(world, records) and not is_trimmed(world):
        raise Violation("D a replica's log begins before its leader's, and does not follow")
    if not is_acknowledged(world, records):
        raise Violation(f"L nobody acknowledges at the end: {[p.state for p in world.parts]}")
    raise Violation(f"S replicas are not deleted: {world.strays()}, {world.deletions}")


def end_faults(steps: Steps) -> None:
    """Let the store and the disks answer, and brokers and log dirs return."""
    world = steps.world
    while world.answers:
        steps.take(("hear",))
    while world.reads:
        steps.take(("hear_read",))
    for m, broker in world.brokers.items():
        while broker.results:
            steps.take(("finish", m))
        steps.take(("stop", m))
        if not broker.is_up:
            steps.take(("start", m))
        if not broker.is_registered:
            steps.take(("rejoin", m))
        steps.take(("renew", m))
        for dir_id, disk in broker.disks.items():
            if not disk.is_good:
                steps.take(("return", m, dir_id))


def is_acknowledged(world: World, records: list[int]) -> bool:
    """Check that every partition has acknowledged its last record."""
    return all(records[part.number] in part.checker.acked for part in world.parts)


def is_trimmed(world: World) -> bool:
    """Check that each replica has deleted what its leader has deleted (D)."""
    for part in world.parts:
        starts = [world.brokers[m].stored[part.number].start for m in part.state.replicas]
        leader = world.brokers.get(part.state.leader)
        if leader is None or min(starts) < leader.stored[part.number].start:
            return False
    return True


def is_healed(world: World, records: list[int]) -> bool:
    """Check that nothing is left to do: no reassignment, and no replica to delete."""
    is_calm = all(part.state.target is None and not part.state.removed for part in world.parts)
    is_clean = not world.deletions and not world.strays() and is_trimmed(world)
    return is_calm and is_clean and is_acknowledged(world, records)
