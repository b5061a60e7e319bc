"""Decide at start what becomes of every replica directory: one pure function, facts in, acts out.

| found | do |
|---|---|
| one live dir | open it |
| live dirs of one topic id | the highest generation opens, lower ones are left alone |
| live dirs, no single highest generation, or two topic ids | replica offline, all named |
| no live, a `.move` or a `.delete` not by the user | replica offline, nothing touched |
| `.delete` by the user | purge, but only while no log dir is bad |
| `.move`, `.stray`, any other `.delete` | left alone, and reported |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from logstore.errors import DuplicateLogError, LogStoreError, ReplicaOfflineError
from logstore.names import TopicPartition


class ReplicaFacts(NamedTuple):
    """One replica directory as found."""

    log_dir: str
    dir_name: str
    topic: str
    partition: int
    kind: str
    topic_id: str = ""
    is_deleted_by_user: bool = False
    generation: int = 0


class Act(enum.Enum):
    """What to do with a replica or with one of its directories."""

    OPEN = "open"
    OFFLINE = "offline"
    PURGE = "purge"
    LEAVE = "leave"


class Decision(NamedTuple):
    """One act, on the directories it is about, with its reason."""

    act: Act
    topic_partition: TopicPartition
    replicas: tuple[ReplicaFacts, ...]
    reason: str = ""

    @property
    def paths(self) -> list[str]:
        """The directories that it is about."""
        return [f"{replica.log_dir}/{replica.dir_name}" for replica in self.replicas]

    def error(self) -> LogStoreError:
        """Make what the users of a replica that is left offline are told."""
        topic, partition = self.topic_partition
        if self.replicas[0].kind == "live":
            return DuplicateLogError(
                path=self.replicas[0].log_dir, paths=self.paths, topic=topic, partition=partition
            )
        return ReplicaOfflineError(topic=topic, partition=partition, reason=self.reason)


def decide(replicas: Iterable[ReplicaFacts], *, is_a_dir_bad: bool) -> list[Decision]:
    """Decide about all replica directories of the good log dirs."""
    found: dict[TopicPartition, list[ReplicaFacts]] = {}
    for replica in replicas:
        key = TopicPartition(replica.topic, replica.partition)
        found.setdefault(key, []).append(replica)
    decisions: list[Decision] = []
    for key, dirs in found.items():
        if len(dirs) == 1 and dirs[0].kind == "live":
            decisions.append(Decision(Act.OPEN, key, (dirs[0],)))
        else:
            decisions += _decide_one(key, dirs, is_a_dir_bad)
    return decisions


def _decide_one(
    key: TopicPartition, dirs: list[ReplicaFacts], is_a_dir_bad: bool
) -> list[Decision]:
    """Decide about the directories of one replica."""
    live = tuple(replica for replica in dirs if replica.kind == "live")
    decisions = []
    best = _highest_generation(live)
    if best is not None:
        decisions.append(Decision(Act.OPEN, key, (best,)))
        reason = f"a copy of an older generation than {best.log_dir}/{best.dir_name}; left alone"
        decisions += [Decision(Act.LEAVE, key, (d,), reason) for d in live if d is not best]
    elif live:
        decisions.append(Decision(Act.OFFLINE, key, live, "there are several live copies of it"))
    else:
        left = tuple(d for d in dirs if d.kind != "stray" and not d.is_deleted_by_user)
        is_deleted = any(replica.is_deleted_by_user for replica in dirs)
        if left and not is_deleted:
            names = ", ".join(f"{replica.log_dir}/{replica.dir_name}" for replica in left)
            reason = f"no live copy of it is left, only {names}"
            decisions.append(Decision(Act.OFFLINE, key, left, reason))
    for replica in dirs:
        if replica.kind == "delete" and replica.is_deleted_by_user:
            if is_a_dir_bad:
                reason = "deleted; it is purged once no log dir is bad"
                decisions.append(Decision(Act.LEAVE, key, (replica,), reason))
            else:
                decisions.append(Decision(Act.PURGE, key, (replica,), "deleted by the user"))
        elif replica.kind != "live":
            reason = f"a .{replica.kind} directory; it is left alone"
            decisions.append(Decision(Act.LEAVE, key, (replica,), reason))
    return decisions


def _highest_generation(live: tuple[ReplicaFacts, ...]) -> ReplicaFacts | None:
    """Choose among the live copies of one replica; None where nothing tells them apart."""
    if len(live) == 1:
        return live[0]
    ranked = sorted(live, key=lambda facts: facts.generation, reverse=True)
    is_one_topic = len({facts.topic_id for facts in live}) == 1 and live[0].topic_id != ""
    if is_one_topic and ranked[0].generation > ranked[1].generation:
        return ranked[0]
    return None
