"""Decide at start about every replica directory: one pure function from facts to actions.

| found | do |
|---|---|
| one live dir | open it |
| several live, of one topic id | open the highest generation, rename the lower ones to `.stray` |
| several live, highest generation twice or two topic ids | replica offline; an error names them |
| `.move` beside live | resume the move that `moving` of the live copy names; purge others |
| superseded `.delete` beside live | purge it once the live copy's end offset is not smaller |
| no live, a dir is bad | replica offline, nothing is changed |
| no live, a `.delete` superseded by a caught-up `.move` that is as long | rename the `.move` |
| no live, copies of two topic ids, or of an unknown name | replica offline; an error names them |
| no live, anything else | open the highest (generation, end offset) as incomplete |
| `.delete` by the user, no dir is bad | purge all copies of that topic id, that `.delete` last |
| `.stray`, or anything unknown | leave it alone, and report it |

A deletion applies to live copies, too, unless a copy has a later generation. A copy may have been
on a bad dir when its partition was deleted. A copy of a deleted partition is deleted after the dir
comes back. If a dir comes back while the store runs, a copy may be open already. An open copy is
never replaced: if another copy outranks the open copy, an error reports both copies. An open copy
also stays if a log dir with a deletion comes back, because records may have been appended to the
open copy.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logstore.errors import (
    DuplicateLogError,
    LogDirOfflineError,
    LogStoreError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
)
from logstore.log.metadata import MoveRecord, Moving, Superseded
from logstore.names import NAME_BYTES_MAX, TopicPartition


class ReplicaFacts(NamedTuple):
    """What a start has found out about one replica directory.

    Attributes:
        topic_id: the topic id in hex; empty if `partition.metadata` cannot be read, or was not
            read.
        record: the record that a `.move` keeps about its move.
        end_offset: the log end offset; -1 if it was not read.
        is_open: whether this process has this live copy open.
        is_empty: whether this is a `.move` to which nothing was copied yet: it has neither metadata
            nor segments.
        size_bytes: the size of a `.move`, in bytes.
        is_bare: whether this is a live directory with a log, but without `partition.metadata`.
    """

    log_dir: str
    dir_name: str
    topic: str
    partition: int
    kind: str
    topic_id: str = ""
    is_deleted_by_user: bool = False
    generation: int = 0
    directory_id: str = ""
    moving: Moving | None = None
    record: MoveRecord | None = None
    superseded_by: Superseded | None = None
    end_offset: int = -1
    is_open: bool = False
    is_empty: bool = False
    size_bytes: int = 0
    is_bare: bool = False

    @property
    def path(self) -> str:
        """The path of the directory."""
        return f"{self.log_dir}/{self.dir_name}"

    @property
    def move_id(self) -> str:
        """The id of the move that made this directory: from the record, or else from the name."""
        return self.record.move_id if self.record else self.dir_name.split(".")[-2]

    @property
    def is_caught_up(self) -> bool:
        """Check whether a mark says that this copy is complete, with every record of its source."""
        return self.record is not None and self.record.is_caught_up


class Act(enum.Enum):
    """What to do with a replica or with its directories."""

    OPEN = "open"
    COMPLETE = "complete"  # rename `.move` to live, then open it
    INCOMPLETE = "incomplete"  # open the first copy for reading only; others may have more records
    OFFLINE = "offline"
    CONFLICT = "conflict"  # the first copy outranks the second, but the second stays open
    RESUME = "resume"  # continue the move; first mark a caught-up `.move` as copying
    STRAY = "stray"
    PURGE = "purge"  # remove all directories of the decision, in the order of the decision
    PURGE_COVERED = "purge covered"  # like PURGE, after the live copy has at least as many records
    LEAVE = "leave"


class Decision(NamedTuple):
    """One action, the directories to which it applies, and its reason."""

    act: Act
    topic_partition: TopicPartition
    replicas: tuple[ReplicaFacts, ...]
    reason: str = ""
    is_dir_bad: bool = False

    @property
    def paths(self) -> list[str]:
        """The paths of the directories to which the decision applies."""
        return [replica.path for replica in self.replicas]

    def error(self) -> LogStoreError:
        """Make the error for callers that use a replica which is offline or incomplete."""
        topic, partition = self.topic_partition
        first = self.replicas[0]
        if self.act is Act.INCOMPLETE:
            return ReplicaIncompleteError(topic=topic, partition=partition, reason=self.reason)
        if first.kind == "live":
            return DuplicateLogError(
                path=first.log_dir, paths=self.paths, topic=topic, partition=partition
            )
        if self.is_dir_bad:
            return LogDirOfflineError(path=first.log_dir, reason=self.reason)
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
    key: TopicPartition, dirs: Sequence[ReplicaFacts], is_a_dir_bad: bool
) -> list[Decision]:
    """Decide about the directories of one replica."""
    deletions = [facts for facts in dirs if facts.is_deleted_by_user]
    dead = [facts for facts in dirs if _is_dead(facts, deletions)]
    rest = [facts for facts in dirs if facts not in deletions and facts not in dead]
    live = [facts for facts in rest if facts.kind == "live"]
    others = [facts for facts in rest if facts.kind in ("move", "delete")]
    if live:
        decisions = _with_live(key, live, others)
    elif others:
        decisions = _without_live(key, others, is_a_dir_bad)
    else:
        decisions = []
    decisions += [
        _leave(key, facts, "a .stray directory") for facts in rest if facts.kind == "stray"
    ]
    # The copies that record the deletion are purged last. Without a record of the deletion, a start
    # would serve another copy.
    doomed = (*dead, *deletions)
    if doomed and is_a_dir_bad:
        reason = "deleted; it is purged when no log dir is bad"
        decisions += [_leave(key, facts, reason) for facts in doomed]
    elif doomed:
        decisions.append(Decision(Act.PURGE, key, doomed, "deleted by the user"))
    return decisions


def _is_dead(facts: ReplicaFacts, deletions: Sequence[ReplicaFacts]) -> bool:
    """Check whether a deletion by the user applies to a copy."""
    if facts.is_deleted_by_user or facts.is_open or facts.kind == "stray" or not facts.topic_id:
        return False
    return any(
        deletion.topic_id == facts.topic_id
        and (facts.kind != "live" or facts.generation <= deletion.generation)
        for deletion in deletions
    )


def _leave(key: TopicPartition, facts: ReplicaFacts, reason: str) -> Decision:
    return Decision(Act.LEAVE, key, (facts,), reason)


def _with_live(
    key: TopicPartition, live: Sequence[ReplicaFacts], others: Sequence[ReplicaFacts]
) -> list[Decision]:
    """Decide about a replica that has a live copy."""
    top = _top(live)
    if top is None:
        reason = "it has several live copies, and no copy outranks all others"
        decisions = [Decision(Act.OFFLINE, key, tuple(live), reason)]
        reason = "none of its live copies outranks the others"
        return decisions + [_leave(key, facts, reason) for facts in others]
    decisions = [Decision(Act.OPEN, key, (top,))]
    for facts in live:
        if facts is top:
            continue
        if facts.topic_id == top.topic_id and facts.generation < top.generation:
            reason = f"a copy of an older generation than {top.path}"
            decisions.append(Decision(Act.STRAY, key, (facts,), reason))
        else:
            reason = f"{top.path} is already open, but {facts.path} is live, too"
            decisions.append(Decision(Act.CONFLICT, key, (facts, top), reason))
    return decisions + [_beside_live(key, top, facts) for facts in others]


def _top(live: Sequence[ReplicaFacts]) -> ReplicaFacts | None:
    """Choose among the live copies of a replica; return None if no copy outranks all others."""
    for facts in live:
        if facts.is_open:
            return facts
    if len(live) == 1:
        return live[0]
    ranked = sorted(live, key=lambda facts: facts.generation, reverse=True)
    is_one_topic = len({facts.topic_id for facts in live}) == 1 and live[0].topic_id != ""
    if is_one_topic and ranked[0].generation > ranked[1].generation:
        return ranked[0]
    return None


def _beside_live(key: TopicPartition, top: ReplicaFacts, facts: ReplicaFacts) -> Decision:
    """Decide about a `.move` or `.delete` of a replica whose live copy will be opened."""
    is_same = facts.topic_id == top.topic_id
    if not top.topic_id:
        return _leave(key, facts, "it is unknown whether the live copy records a move")
    if facts.kind == "move":
        if (is_same or not facts.topic_id) and _names(top.moving, facts):
            return Decision(Act.RESUME, key, (facts,), "the move that builds it will be resumed")
        return Decision(Act.PURGE, key, (facts,), "the live copy has no record of this move")
    if is_same and facts.superseded_by is not None:
        reason = "the live copy replaced this copy, which is purged when the live copy is as long"
        return Decision(Act.PURGE_COVERED, key, (facts,), reason)
    return _leave(
        key, facts, "a .delete directory that has no record of the reason for its deletion"
    )


def _names(moving: Moving | None, move: ReplicaFacts) -> bool:
    """Check whether the live copy's `moving` refers to the move that builds this `.move`."""
    return moving == Moving(move.move_id, move.directory_id)


def _without_live(
    key: TopicPartition, copies: Sequence[ReplicaFacts], is_a_dir_bad: bool
) -> list[Decision]:
    """Decide about a replica that has only `.move` and `.delete` copies."""
    names = ", ".join(facts.path for facts in copies)
    if is_a_dir_bad:
        reason = f"its live copy may be on a log dir that is offline; found: {names}"
        return [Decision(Act.OFFLINE, key, tuple(copies), reason, is_dir_bad=True)]
    decisions = [
        Decision(Act.PURGE, key, (facts,), "nothing was copied into it yet")
        for facts in copies
        if facts.is_empty
    ]
    copies = [facts for facts in copies if not facts.is_empty]
    if not copies:
        return decisions
    known = [facts for facts in copies if facts.topic_id]
    # A copy without metadata belongs to the partition in its name, unless the name is shortened.
    known = known or [facts for facts in copies if len(facts.dir_name) < NAME_BYTES_MAX]
    if len({facts.topic_id for facts in known}) != 1:
        reason = (
            "belong to different topics" if known else "do not show which partition they belong to"
        )
        reason = f"the replica has no live copy, and {names} {reason}; close the store, and move "
        reason += "the unwanted ones out of their log dirs"
        return [*decisions, Decision(Act.OFFLINE, key, tuple(copies), reason)]
    whole = [move for move in known if any(_is_swapped(move, old) for old in known)]
    best = max(whole or known, key=lambda facts: (facts.generation, facts.end_offset))
    rest = [facts for facts in copies if facts is not best]
    if not whole:
        reason = _what_is_missing(best, rest)
        return [*decisions, Decision(Act.INCOMPLETE, key, (best, *rest), reason)]
    reason = "only the last step of its move was missing"
    decisions.append(Decision(Act.COMPLETE, key, (best,), reason))
    for facts in rest:
        if facts.superseded_by is not None and facts.topic_id:
            decisions.append(
                Decision(Act.PURGE_COVERED, key, (facts,), "a move replaced this copy")
            )
        else:
            decisions.append(_leave(key, facts, f"beside {best.path}, which becomes live"))
    return decisions


def _is_swapped(move: ReplicaFacts, old: ReplicaFacts) -> bool:
    """Check whether a crash came between the two renames with which `move` replaces `old`."""
    return (
        move.kind == "move"
        and move.is_caught_up
        and old.kind == "delete"
        and old.superseded_by == Superseded(move.generation, move.directory_id)
        and move.end_offset >= old.end_offset
    )


def is_covered(old: ReplicaFacts, live: ReplicaFacts) -> bool:
    """Check whether a live copy has replaced a `.delete` copy, and has as many records."""
    return (
        old.superseded_by is not None
        and old.topic_id == live.topic_id != ""
        and live.generation >= old.superseded_by.generation
        and live.end_offset >= old.end_offset >= 0
    )


def _what_is_missing(best: ReplicaFacts, rest: Sequence[ReplicaFacts]) -> str:
    """If there is no live copy, describe the records that the best copy is known to lack."""
    told = [f"the replica has no live copy; {best.path} ends at offset {best.end_offset}"]
    if not best.topic_id:
        told.append("the partition.metadata of the replica is lost, and with it the configuration")
    if best.superseded_by is not None:
        generation, directory_id = best.superseded_by
        told.append(
            f"a copy of generation {generation} in log dir {directory_id} replaced this copy, and "
            "the records appended after that are missing"
        )
    if best.record is not None and best.record.source_end_offset > best.end_offset:
        source, end_offset = best.record.source_directory_id, best.record.source_end_offset
        told.append(
            f"offsets {best.end_offset} to {end_offset}, which its source in log dir {source} "
            "had, are missing"
        )
    told += [f"{facts.path} ends at offset {facts.end_offset}" for facts in rest]
    return "; ".join(told)
