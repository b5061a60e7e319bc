"""List the log dirs, decide by the start-up table, and make the changes on the disks.

    list -> facts -> decide -> rename, mark        repeated until no log dir failed meanwhile

If a log dir fails during a step, earlier decisions may be wrong. So all dirs are listed again, and
all decisions are made again. This module opens no log and purges nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from logstore.disk import files
from logstore.disk.calls import SYNCING, call
from logstore.disk.failures import Verdict, reason_of, refuse_shortage, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptionError,
    LogDirOfflineError,
    LogStoreError,
    UnsupportedFormatError,
)
from logstore.log import metadata
from logstore.log.environment import LogEnvironment
from logstore.names import TopicPartition
from logstore.store.dirs.old_copies import recognise
from logstore.store.dirs.parallel import TURN_SECONDS, for_each
from logstore.store.dirs.serial_pass import Pass
from logstore.store.doubts.decisions import close_opened, decide_all
from logstore.store.replicas import Replica, Replicas
from logstore.store.start import dir_actions
from logstore.store.start.listing import Listing, list_log_dir, remove_leftovers
from logstore.store.start.replica_facts import complete, facts_of_open
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts


class Settled(NamedTuple):
    """The decisions that were carried out, and the swaps that could not be completed."""

    decisions: list[Decision]
    failures: list[tuple[Decision, LogStoreError]]
    warnings: list[str]


def settle(replicas: Replicas, environment: LogEnvironment) -> Settled:
    """Decide about every directory of all good log dirs, before any log is open.

    Raises:
        LogDirError: this process lacks a resource, such as descriptors or memory; the error is
            retriable.
    """

    def list_one(log_dir: LogDir, beat: Callable[[], object]) -> Listing:
        listing = list_log_dir(log_dir, beat)
        remove_leftovers(listing, log_dir)
        log_dir.warnings += log_dir.checkpoints.load() + log_dir.generation.load()
        return listing

    def once(this: Pass) -> Settled | None:
        listings = _list_all(replicas, list_one, replicas.log_dirs)
        good = list(listings)
        found = [facts for listing in listings.values() for facts in listing.replicas]
        found = complete(found, good, environment, this.at)
        recognise(replicas)
        decisions = decide_all(replicas, found, is_all_listed=True)
        settled = _carry_out(replicas, decisions, lambda facts: True, this)
        if not _all_serve(good, replicas.log_dirs):
            return None
        for listing in listings.values():
            settled.warnings.extend(listing.warnings)
        return settled

    return _until_settled(once, replicas.log_dirs)


def settle_again(
    replicas: Replicas,
    environment: LogEnvironment,
    back: LogDir | None,
    keys: Iterable[TopicPartition] = (),
) -> Settled:
    """Decide about a returned log dir, the replicas in `keys`, and all replicas that are not open.

    If a replica is open, only its directories in the returned dir are changed. The directories of
    an open replica in other dirs may belong to a running move. A log dir that hangs is not listed,
    and counts as bad. Raises like `settle`.
    """
    opening, back_path = ([back], back.path) if back is not None else ([], "")
    turns = {log_dir.path: turn for turn, log_dir in enumerate(replicas.log_dirs)}
    open_names: dict[str, set[str]] = defaultdict(set)
    passes: list[Pass] = []

    def list_one(log_dir: LogDir, beat: Callable[[], object]) -> Listing:
        if log_dir is not back:
            time.sleep(TURN_SECONDS * turns.get(log_dir.path, 0))
            return list_log_dir(log_dir, beat, open_names[log_dir.path])
        listing = list_log_dir(log_dir, beat)
        remove_leftovers(listing, log_dir)
        log_dir.warnings += log_dir.checkpoints.load() + log_dir.generation.load()
        return listing

    def once(this: Pass) -> Settled | None:
        # Only the first pass skips replicas that are open.
        # So the passes end even if callers create and delete replicas all the time.
        before = {} if passes else dict(replicas.opened)
        passes.append(this)
        open_names.clear()
        open_names.update(_names_by_dir(before.values()))
        listings = _list_all(replicas, list_one, opening)
        good = list(listings)
        found = [facts for listing in listings.values() for facts in listing.replicas]
        interesting = {*keys, *_of_interest(replicas, found, back_path)}
        found, is_open = _with_open(replicas, found, interesting, back_path)
        if any(before[key] is not replicas.opened.get(key) for key in interesting & {*before}):
            return None  # a skipped open replica is not open any more
        found, kept = _outlive_deletions(replicas, found, this)
        found = complete(found, good, environment, this.at)
        recognise(replicas)
        if close_opened(replicas):  # the returned dir showed that an open dir is an old copy
            return None
        decisions = decide_all(replicas, found, is_all_listed={*replicas.log_dirs} <= {*good})

        def is_ours(facts: ReplicaFacts) -> bool:
            return facts.log_dir == back_path or (facts.topic, facts.partition) not in is_open

        mine = [d for d in decisions if any(is_ours(f) or f.is_deleted_by_user for f in d.replicas)]
        settled = _carry_out(replicas, mine, is_ours, this)
        if not _all_serve(good, opening):
            return None
        settled.warnings.extend(kept)
        if back in listings:
            settled.warnings.extend(listings[back].warnings)
        return settled

    return _until_settled(once, opening)


def _until_settled(once: Callable[[Pass], Settled | None], opening: Sequence[LogDir]) -> Settled:
    """Repeat a pass (list, decide, act) until no log dir fails or hangs during it.

    In each repetition, at least one more log dir does not work, so the loop ends. `settle_again`
    repeats a pass in two further cases. The first pass is repeated if a replica was closed
    meanwhile. Any pass is repeated if it found an old copy among the open dirs.
    """
    while True:
        this = Pass()
        done: list[Settled | None] = []

        def go(this: Pass, done: list[Settled | None] = done) -> None:
            done.append(once(this))

        (outcome,) = for_each(
            [this],
            go,
            name="logstore-settle",
            on_break=this.stop,
            is_given_up=Pass.give_up_if_stuck,
        )
        if this.is_given_up:
            _all_serve(opening, opening)
        elif outcome.error is not None:
            raise outcome.error
        elif done[0] is not None:
            return done[0]


def _all_serve(listed: Sequence[LogDir], opening: Sequence[LogDir]) -> bool:
    """Check whether all listed dirs still work; if an opening dir hangs, take it offline."""
    for log_dir in listed:
        if log_dir.is_suspect and log_dir in opening:
            log_dir.take_offline(f"it hangs during the start: {log_dir.reason}")
    return not any(log_dir.is_refusing for log_dir in listed)


def _list_all(
    replicas: Replicas,
    list_one: Callable[[LogDir, Callable[[], object]], Listing],
    opening: Sequence[LogDir],
) -> dict[LogDir, Listing]:
    """List every good log dir except SUSPECT dirs; if a listing fails, take the dir offline.

    Args:
        opening: the dirs that are not open yet. If such a dir hangs, it goes offline.
    """
    listings: dict[LogDir, Listing] = {}

    def note(log_dir: LogDir) -> None:
        try:
            with call(log_dir.path, SYNCING) as work:
                listings[log_dir] = list_one(log_dir, work.beat)
        except OSError as error:
            refuse_shortage(error, log_dir.path)
            log_dir.take_offline(f"it cannot be listed: {reason_of(error)}")

    good = [log_dir for log_dir in replicas.log_dirs if not log_dir.is_refusing]
    outcomes = for_each(good, note, name="logstore-list", is_given_up=lambda d: d.is_suspect)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    _all_serve([outcome.item for outcome in outcomes if not outcome.is_finished], opening)
    in_time = {outcome.item for outcome in outcomes if outcome.is_finished}
    return {d: listings[d] for d in replicas.log_dirs if d in in_time and d in listings}


def _names_by_dir(opened: Iterable[Replica]) -> dict[str, set[str]]:
    """Map the path of each log dir to the directory names of its open logs.

    The listing of a log dir skips the directories of open logs. Reading the directories of open
    logs took a thousand calls on twelve disks. Each call releases the interpreter's lock and takes
    it again, so the appends of other threads took four times as long.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for log, log_dir in opened:
        names[log_dir.path].add(log.directory.rpartition("/")[2])
    return names


def _of_interest(
    replicas: Replicas, found: Iterable[ReplicaFacts], back_path: str
) -> set[TopicPartition]:
    """List the replicas that may change because a dir has returned, or was given up."""
    interesting = {*replicas.offline, *replicas.incomplete}
    # A replica that was open in the returned dir may no longer exist there.
    # A move may have left a copy of the replica in another dir.
    interesting |= {key for key, (_, d) in list(replicas.opened.items()) if d.path == back_path}
    old = {log_dir.path for log_dir in replicas.log_dirs if log_dir.is_outdated}
    for facts in found:
        if facts.log_dir in {back_path, *old} or facts.is_deleted_by_user:
            interesting.add(TopicPartition(facts.topic, facts.partition))
    return interesting


def _with_open(
    replicas: Replicas,
    found: Iterable[ReplicaFacts],
    interesting: set[TopicPartition],
    back_path: str,
) -> tuple[list[ReplicaFacts], frozenset[TopicPartition]]:
    """Select the `ReplicaFacts` of some replicas, and add the `ReplicaFacts` of their open logs."""
    opened: dict[str, ReplicaFacts] = {}
    for key in interesting:
        replica = replicas.opened.get(key)
        if replica is not None and replica.log_dir.path != back_path:
            facts = facts_of_open(replica)
            opened[facts.path] = facts
    kept = [
        facts
        for facts in found
        if (facts.topic, facts.partition) in interesting and facts.path not in opened
    ]
    is_open = frozenset(TopicPartition(facts.topic, facts.partition) for facts in opened.values())
    return [*opened.values(), *kept], is_open


def _outlive_deletions(
    replicas: Replicas, found: Sequence[ReplicaFacts], this: Pass
) -> tuple[list[ReplicaFacts], list[str]]:
    """Make open logs outrank deletions that came back, so that no start deletes these logs."""
    deleted: dict[tuple[str, int, str], int] = {}
    for facts in found:
        if facts.is_deleted_by_user and facts.topic_id:
            topic = (facts.topic, facts.partition, facts.topic_id)
            deleted[topic] = max(facts.generation, deleted.get(topic, 0))
    told, warnings = [], []
    for facts in found:
        generation = deleted.get((facts.topic, facts.partition, facts.topic_id), -1)
        replica = replicas.opened.get(TopicPartition(facts.topic, facts.partition))
        if facts.is_open and facts.generation <= generation and replica is not None:
            warning = f"{facts.path}: a recorded deletion of this replica came back; "
            warning += "the replica is open, so it stays"
            try:
                replica.log_dir.check()
                with this.at(replica.log_dir):
                    dir_actions.outrank(replica.log, generation)
                facts = facts_of_open(replica)
            except LogStoreError as error:
                warning += f"; this could not be recorded: {error}"
            warnings.append(warning)
        told.append(facts)
    return told, warnings


def _carry_out(
    replicas: Replicas,
    decisions: Iterable[Decision],
    is_ours: Callable[[ReplicaFacts], bool],
    this: Pass,
) -> Settled:
    """Rename and mark directories as decided; return the decisions with the new names."""
    settled = Settled([], [], [])
    for decision in decisions:
        first = decision.replicas[0]
        log_dir = replicas.dir_of(first.log_dir)
        try:
            settled.decisions.append(_carry_out_one(replicas, decision, is_ours, this))
        except OSError as error:
            refuse_shortage(error, log_dir.path)
            key = decision.topic_partition
            with this.at(log_dir):
                failure = log_dir.failed(error, first.path, *key)
            if decision.act is Act.COMPLETE:
                settled.failures.append((decision, failure))
            else:
                settled.warnings.append(f"{first.path}: {decision.reason}, but: {failure}")
        except (CorruptionError, UnsupportedFormatError, LogDirOfflineError) as error:
            settled.warnings.append(f"{first.path}: {decision.reason}, but: {error}")
    return settled


def _carry_out_one(
    replicas: Replicas, decision: Decision, is_ours: Callable[[ReplicaFacts], bool], this: Pass
) -> Decision:
    """Make the changes of one decision on the disks. Raises OSError."""
    act, first = decision.act, decision.replicas[0]
    log_dir = replicas.dir_of(first.log_dir)
    if act is Act.COMPLETE:
        with this.at(log_dir):
            live = dir_actions.make_live(log_dir, first)
        return decision._replace(act=Act.OPEN, replicas=(live,))
    if act is Act.STRAY and is_ours(first):
        with this.at(log_dir):
            stray = dir_actions.make_stray(log_dir, first)
        reason = f"{decision.reason}; it was renamed from {first.path}"
        return decision._replace(act=Act.LEAVE, replicas=(stray,), reason=reason)
    if act is Act.RESUME and first.is_caught_up:
        with this.at(log_dir):
            dir_actions.mark_copying(log_dir, first)
    if act is Act.PURGE:
        doomed = tuple(_prepare_purge(replicas, facts, this) for facts in decision.replicas)
        return decision._replace(replicas=doomed)
    return decision


def _prepare_purge(replicas: Replicas, facts: ReplicaFacts, this: Pass) -> ReplicaFacts:
    """Before the purge of a directory, mark it, so that a half purged directory is not opened."""
    log_dir = replicas.dir_of(facts.log_dir)
    with this.at(log_dir):
        if facts.kind == "live":
            return dir_actions.make_deleted(log_dir, facts)
        if facts.kind == "move" and facts.is_caught_up:
            try:
                dir_actions.mark_copying(log_dir, facts)
            except OSError as error:
                if verdict_of(error) is not Verdict.FULL:
                    raise
                files.remove_if_there(f"{facts.path}/{metadata.FILE_NAME}")
                files.sync_dir(facts.path)
        return facts
