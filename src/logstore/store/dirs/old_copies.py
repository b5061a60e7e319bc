"""Recognise an old copy of a log dir by what the other log dirs and this process know about it.

    settling    the decisions about an old copy's replicas become INCOMPLETE: readable, not writable
    loading     a log that lacks records which were durable is opened as incomplete
    conclude    the doubts are written down, or a new generation begins; then the other dirs record
                that they have seen it
    close       in an orderly close, each dir records the last generation of the others (`farewell`)

`disk/documents/generations` describes the files, and why a crash raises no false alarm. Two cases
are not recognised. A store of one log dir has no other dir that could know. If all log dirs are
rolled back to the same moment, they agree with each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.generations import Generation, Seen
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.log import host
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.dirs.parallel import for_each
from logstore.store.replicas import OfflineReplica, Replicas, key_of
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts

# How many other log dirs keep the recovery points of a log dir, to report which records an old copy
# lacks.
WITNESSES = 2

REMEDY = (
    "mount the right disk and reopen the log dir; or, if what is missing is gone for good, "
    "promote each of its replicas (logstore promote)"
)


# --- what the others know -------------------------------------------------------------------------


def _seen_of(replicas: Replicas, log_dir: LogDir) -> Iterator[tuple[str, Seen]]:
    """Give what this process and each other log dir have seen of one log dir, with its source."""
    if log_dir.generation.held is not None:
        yield "this process", log_dir.generation.held
    for other in replicas.log_dirs:
        if other is not log_dir:
            seen = other.generation.seen.get(log_dir.directory_id)
            if seen is not None:
                yield other.path, seen


def _rank(generation: Generation) -> tuple[int, int]:
    return generation.number, generation.step


def _last_seen(replicas: Replicas, log_dir: LogDir) -> Generation | None:
    """Give the last known generation of a log dir; its own files count too."""
    known = [seen.generation for _, seen in _seen_of(replicas, log_dir)]
    current = log_dir.generation.current
    return max([*known, *([current] if current else [])], key=_rank, default=None)


def known_offsets(replicas: Replicas, log_dir: LogDir) -> Mapping[TopicPartition, int]:
    """Give the last known recovery points of a log dir; empty if no source has kept any."""
    newest = _last_offsets(replicas, log_dir)
    return {} if newest is None or newest.offsets is None else newest.offsets


def _last_offsets(replicas: Replicas, log_dir: LogDir) -> Seen | None:
    kept = [seen for _, seen in _seen_of(replicas, log_dir) if seen.offsets is not None]
    return max(kept, key=lambda seen: _rank(seen.generation), default=None)


def _last_end(replicas: Replicas, log_dir: LogDir, key: TopicPartition, log: Log) -> int:
    """Give the last known recovery point of a log; -1 if unknown, or if a truncation lowered it."""
    seen = _last_offsets(replicas, log_dir)
    if seen is None or host.is_lowered_since(log, log_dir.directory_id, seen.generation):
        return -1
    return (seen.offsets or {}).get(key, -1)


def recognise(replicas: Replicas, log_dir: LogDir) -> bool:
    """Check whether a log dir is an old copy; return whether all of its replicas are in doubt.

    If an earlier start found the old copy already, only the replicas in its list of doubts are in
    doubt, and the result is False.
    """
    own, is_fresh = log_dir.generation, False
    ahead = [(who, seen.generation) for who, seen in _seen_of(replicas, log_dir)]
    ahead = [(who, generation) for who, generation in ahead if own.is_behind(generation)]
    if ahead:
        last = max((generation for _, generation in ahead), key=_rank)
        at = own.doubted_at
        is_fresh = not own.doubts or at is None or _rank(last) > _rank(at)
        names = ", ".join(sorted(who for who, _ in ahead))
        own.old = (
            f"log dir {log_dir.path} is an old copy, of generation {own.current}: its generation "
            f"{last} was seen by {names}"
        )
    elif own.doubts and not own.old:
        own.old = f"log dir {log_dir.path} is an old copy: durable records are missing in it"
    return is_fresh


# --- the start-up table's decisions ---------------------------------------------------------------


def doubted(replicas: Replicas, decisions: Iterable[Decision]) -> list[Decision]:
    """Replace the decisions about replicas of old copies: they open as INCOMPLETE.

    Other directories of these replicas are left alone.
    """
    fresh = {d.path: recognise(replicas, d) for d in replicas.log_dirs if not d.is_offline}
    told, doubtful = [], set()
    decisions = list(decisions)
    for decision in decisions:
        first, key = decision.replicas[0], decision.topic_partition
        if decision.act not in (Act.OPEN, Act.COMPLETE, Act.INCOMPLETE) or first.is_open:
            continue
        log_dir = replicas.dir_of(first.log_dir)
        own = log_dir.generation
        if not own.old or not (fresh.get(first.log_dir) or key in own.doubts):
            continue
        doubtful.add(key)
        own.found[key] = max(own.doubts.get(key, -1), known_offsets(replicas, log_dir).get(key, -1))
    for decision in decisions:
        key, first = decision.topic_partition, decision.replicas[0]
        if key not in doubtful:
            told.append(decision)
        elif decision.act in (Act.OPEN, Act.COMPLETE, Act.INCOMPLETE):
            others = [f for d in decisions if d.topic_partition == key for f in d.replicas]
            others = [facts for facts in others if facts is not first]
            reason = replicas.dir_of(first.log_dir).generation.old
            if decision.act is Act.INCOMPLETE:
                reason = f"{decision.reason}; {reason}"
            told.append(Decision(Act.INCOMPLETE, key, (first, *others), f"{reason}; {REMEDY}"))
        else:
            reason = f"{decision.reason or decision.act.value}: not done beside an old copy"
            told += [Decision(Act.LEAVE, key, (facts,), reason) for facts in decision.replicas]
    return told


def with_what_is_missing(decision: Decision, log_dir: LogDir, log: Log) -> Decision:
    """Add to a decision what an incomplete replica of an old copy lacks, if that is known."""
    own, key, end_offset = log_dir.generation, decision.topic_partition, log.log_end_offset
    known = max(own.doubts.get(key, -1), own.found.get(key, -1))
    if not own.old or known < 0:
        return decision
    reason = (
        f"no record that is known to be durable is missing in it (it ends at offset {end_offset}, "
        f"the known ones at {known}), but records that were appended later may be"
    )
    if known > end_offset:
        reason = f"records of offsets {end_offset} to {known}, which were durable, are missing"
    decision = decision._replace(reason=f"{reason}; {decision.reason}")
    host.note_missing(log, decision.reason)
    return decision


def judge(
    replicas: Replicas, log_dir: LogDir, facts: ReplicaFacts, log: Log, before: Log | None
) -> Decision | None:
    """Check that a log which was just opened is not an old copy; if it is, return INCOMPLETE.

    The log is an old copy if it has another topic id, or if it lacks records that were durable.

    Args:
        before: the log of this replica in this process before its log dir went offline.
    """
    own, key = log_dir.generation, TopicPartition(facts.topic, facts.partition)
    held, is_same = -1, before is None or before.topic_id == log.topic_id
    if before is not None:
        held = before.recovery_point
    elif not own.is_readable:
        held = _last_end(replicas, log_dir, key, log)
    if is_same and log.log_end_offset >= held:
        return None
    own.old = own.old or f"log dir {log_dir.path} is an old copy: durable records are missing in it"
    own.found[key] = held
    return Decision(Act.INCOMPLETE, key, (facts,), f"{own.old}; {REMEDY}")


def tell(log_dirs: Iterable[LogDir]) -> list[str]:
    """Log which log dirs are old copies; return the same text for the report."""
    told = []
    for log_dir in log_dirs:
        own = log_dir.generation
        if own.old:
            names = ", ".join(sorted(f"{topic}-{number}" for topic, number in own.found))
            told.append(f"{own.old}; not writable: {names or 'nothing'}; {REMEDY}")
            logging.getLogger("logstore").warning("%s", told[-1])
    return told


def disagreements(replicas: Replicas, said: Mapping[TopicPartition, LogDir]) -> Iterator[str]:
    """Report where the catalog was wrong about a log dir that serves; the directories are right."""
    for key, log_dir in said.items():
        replica = replicas.opened.get(key)
        if replica is not None:
            if replica.log_dir is not log_dir:
                yield f"the catalog had {key} in {log_dir.path}; it is in {replica.log_dir.path}"
        elif key not in replicas and not log_dir.is_offline:
            yield f"the catalog had {key} in {log_dir.path}; it is in no log dir that serves"
            if not replicas.is_a_dir_bad():
                replicas.catalog.note(key, None)


def note_missing(
    replicas: Replicas, said: Mapping[TopicPartition, LogDir]
) -> list[tuple[TopicPartition, LogDir, LogStoreError]]:
    """Take the replicas offline that the catalog names and that an old copy lacks."""
    missing: list[tuple[TopicPartition, LogDir, LogStoreError]] = []
    for key, log_dir in said.items():
        own = log_dir.generation
        # `key in replicas` would be true: while the log dir returns, the replica counts as absent.
        if log_dir.is_offline or not own.old or replicas.is_found(key):
            continue
        reason = (
            f"{own.old}; it is older than {key}: mount the right disk and reopen the log dir, or "
            f"delete {key} to give that partition up"
        )
        error = ReplicaOfflineError(topic=key.topic, partition=key.partition, reason=reason)
        own.found[key] = known_offsets(replicas, log_dir).get(key, -1)
        replicas.found_offline(key, OfflineReplica(error, log_dir, is_missing=True))
        missing.append((key, log_dir, error))
    return missing


# --- what is written ------------------------------------------------------------------------------


def note_unsure(replicas: Replicas) -> None:
    """Note at a start which missing log dirs may hold replicas that no catalog names.

    Catalogs are written at checkpoints and at an orderly close. If the owner was killed, no catalog
    has the creations and moves that came after the last checkpoint.
    """
    serving = [log_dir for log_dir in replicas.log_dirs if not log_dir.is_offline]
    away = {log_dir.directory_id for log_dir in replicas.log_dirs if log_dir.is_offline}
    away |= set(replicas.missing_ids)
    unsure = frozenset[str]().union(*(log_dir.generation.unsure for log_dir in serving))
    if any(not log_dir.was_clean for log_dir in serving):
        unsure |= away - {""}
    replicas.catalog.unsure_ids = unsure & away


def has_witness(replicas: Replicas) -> bool:
    """Check whether the store has more than one log dir."""
    return len(replicas.log_dirs) + len(replicas.missing_ids) > 1


def conclude(replicas: Replicas, loaded: Sequence[LogDir], *, is_start: bool) -> None:
    """Write the doubts or the new generation of loaded log dirs; then the others record it.

    If a disk fails here, its log dir goes offline. A full log dir keeps its generation.
    """
    if is_start:
        note_unsure(replicas)

    def begin(log_dir: LogDir) -> None:
        own, last = log_dir.generation, _last_seen(replicas, log_dir)
        doubts = {
            key: max(end_offset, own.found.get(key, -1))
            for key, end_offset in {**own.found, **own.doubts}.items()
            if _is_in_doubt(replicas, key, log_dir)
        }
        if doubts:
            own.doubt(doubts, last)
        elif has_witness(replicas) or own.is_frozen:
            own.begin(last, {key_of(log): log.recovery_point for log in replicas.on(log_dir)})

    replicas.catalog.unsure_ids -= {
        log_dir.directory_id for log_dir in loaded if not log_dir.is_offline
    }
    _each(loaded, begin)
    _each(replicas.log_dirs, lambda log_dir: witness(replicas, log_dir))


def _is_in_doubt(replicas: Replicas, key: TopicPartition, log_dir: LogDir) -> bool:
    """Check whether a replica still is in this log dir, and not open in another one."""
    replica = replicas.opened.get(key)
    return key in replicas and (replica is None or replica.log_dir is log_dir)


def _each(log_dirs: Iterable[LogDir], work: Callable[[LogDir], None]) -> None:
    def at(log_dir: LogDir) -> None:
        try:
            with call(log_dir.path, SYNCING):
                work(log_dir)
        except OSError as error:
            log_dir.failed(error)
        except LogStoreError:
            pass  # the log dir is offline now

    serving = [log_dir for log_dir in log_dirs if not log_dir.is_refusing]
    outcomes = for_each(serving, at, is_given_up=lambda log_dir: log_dir.is_suspect)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def checkpoint(
    replicas: Replicas, log_dir: LogDir, offsets: Mapping[TopicPartition, int], *, is_last: bool
) -> None:
    """Advance a log dir's generation after a change of its recovery points; raises OSError."""
    if has_witness(replicas) and (is_last or offsets != log_dir.generation.offsets):
        log_dir.generation.step(offsets)


def witness(replicas: Replicas, log_dir: LogDir) -> None:
    """Write to one log dir what it has seen of the others, if that changed; raises OSError."""
    seen = {id_: one for id_, one in log_dir.generation.seen.items() if _is_member(replicas, id_)}
    ids = sorted(other.directory_id for other in replicas.log_dirs if other.directory_id)
    for other in replicas.log_dirs:
        own = other.generation
        if other is log_dir or other.is_offline or own.is_frozen or own.current is None:
            continue
        before, at = seen.get(other.directory_id), ids.index(other.directory_id)
        if before is not None and _rank(before.generation) > _rank(own.current):
            continue
        neighbours = [ids[(at + 1 + n) % len(ids)] for n in range(WITNESSES)]
        offsets = own.offsets if log_dir.directory_id in neighbours else None
        seen[other.directory_id] = Seen(own.current, offsets)
    others = [other for other in replicas.log_dirs if other is not log_dir]
    _take_of_away(replicas, others, seen)
    paths = {id_: p for id_, p in log_dir.generation.paths.items() if _is_member(replicas, id_)}
    for id_ in replicas.ids_away() - {*paths, log_dir.directory_id}:
        path = replicas.last_path_of(id_)
        paths |= {} if path is None else {id_: path}
    paths |= {o.directory_id: o.path for o in others if o.directory_id and not o.is_offline}
    unsure = frozenset(id_ for id_ in replicas.catalog.unsure_ids if _is_member(replicas, id_))
    if has_witness(replicas):
        log_dir.generation.witness(seen, paths, unsure)


def _take_of_away(replicas: Replicas, others: Iterable[LogDir], seen: dict[str, Seen]) -> None:
    """Take over what other log dirs have seen of those that are away: they cannot be asked."""
    away = replicas.ids_away()
    for other in others:
        for id_, one in other.generation.seen.items():
            before = seen.get(id_)
            if id_ in away and (before is None or _rank(before.generation) < _rank(one.generation)):
                seen[id_] = one


def _is_member(replicas: Replicas, directory_id: str) -> bool:
    return directory_id in replicas.missing_ids or any(
        log_dir.directory_id == directory_id for log_dir in replicas.log_dirs
    )


# --- promote and delete ---------------------------------------------------------------------------


def settle(replicas: Replicas, log_dir: LogDir, key: TopicPartition) -> None:
    """Record durably that a user decided about a replica in doubt; raises OSError."""
    if key in log_dir.generation.doubts:
        with call(log_dir.path, SYNCING):
            log_dir.generation.settle(key, _last_seen(replicas, log_dir))


def is_missing(replicas: Replicas, key: TopicPartition) -> bool:
    """Check whether a replica is offline because an old copy lacks it."""
    offline = replicas.offline.get(key)
    return offline is not None and offline.is_missing


def give_up(replicas: Replicas, key: TopicPartition) -> bool:
    """Forget a replica that an old copy lacks, because its user deletes it; raises LogStoreError.

    Returns False, and does nothing, if the replica is no such one.
    """
    offline = replicas.offline.get(key)
    if offline is None or not offline.is_missing:
        return False
    log_dir = offline.log_dir
    log_dir.check()
    try:
        settle(replicas, log_dir, key)
    except OSError as error:
        raise log_dir.failed(error) from error
    replicas.remove(key)
    replicas.catalog.note(key, None)
    return True
