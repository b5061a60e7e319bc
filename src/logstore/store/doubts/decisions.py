"""Decide about the replicas in an old copy of a log dir; `dirs/old_copies` recognises the copy.

settling    the decisions about an old copy's replicas become INCOMPLETE: readable, not writable
loading     a log that lacks records which were durable is opened as incomplete
afterwards  a replica that the copy lacks is offline: it is neither unknown nor served
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.log import host
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.dirs.old_copies import (
    REMEDY,
    count_as_old,
    known_offsets,
    last_end,
    remedy,
    short,
)
from logstore.store.replicas import OfflineReplica, Replicas, key_of
from logstore.store.start.replica_facts import facts_of_open
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts, decide


def decide_all(
    replicas: Replicas, found: Iterable[ReplicaFacts], *, is_all_listed: bool
) -> list[Decision]:
    """Apply the start-up table to all replica directories, with special rules for old copies.

    If a replica also has a directory in another log dir, the old copy counts as a bad log dir. The
    current disk may have the live copy of the replica, or a copy that must be deleted. A replica
    that is found only in old copies is opened as incomplete.

    Args:
        is_all_listed: whether every log dir was listed. The value is False if a log dir hung, or
            came back after the listing.
    """
    dirs, is_bad = replicas.log_dirs, bool(replicas.missing_ids) or not is_all_listed
    is_bad = is_bad or any(log_dir.is_offline or log_dir.is_suspect for log_dir in dirs)
    old = {log_dir.path for log_dir in dirs if log_dir.is_outdated}
    if not old:
        return doubted(replicas, decide(found, is_a_dir_bad=is_bad))
    found, contested = _without_contested(list(found), old)
    elsewhere = {(one.topic, one.partition) for one in found if one.log_dir not in old}
    alone = [one for one in found if (one.topic, one.partition) not in elsewhere]
    others = [one for one in found if (one.topic, one.partition) in elsewhere]
    decisions = decide(others, is_a_dir_bad=True) + decide(alone, is_a_dir_bad=is_bad)
    return doubted(replicas, decisions) + contested


def _without_contested(
    found: Sequence[ReplicaFacts], old: Collection[str]
) -> tuple[list[ReplicaFacts], list[Decision]]:
    """Set aside a live replica in an old copy if the replica is also live in a current log dir.

    After the old copy was made, the replica was moved, or was deleted and created again.
    """
    live = [facts for facts in found if facts.kind == "live"]
    current = {(one.topic, one.partition): one.path for one in live if one.log_dir not in old}
    kept, decisions = [], []
    for facts in found:
        key = TopicPartition(facts.topic, facts.partition)
        is_old = facts.kind == "live" and facts.log_dir in old and not facts.is_open
        if is_old and key in current:
            reason = f"a replica in an old copy of a log dir; the current replica is {current[key]}"
            decisions.append(Decision(Act.STRAY, key, (facts,), reason))
        else:
            kept.append(facts)
    return kept, decisions


def doubted(replicas: Replicas, decisions: Iterable[Decision]) -> list[Decision]:
    """Replace the decisions about replicas in doubt, so that these replicas become INCOMPLETE.

    The other directories of the replicas in doubt are not changed.
    """
    told, doubtful = [], set()
    decisions = list(decisions)
    for decision in decisions:
        first, key = decision.replicas[0], decision.topic_partition
        if decision.act not in (Act.OPEN, Act.COMPLETE, Act.INCOMPLETE) or first.is_open:
            continue
        log_dir = replicas.dir_of(first.log_dir)
        own = log_dir.generation
        if not own.old or not (own.is_all_in_doubt or key in own.doubts):
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
            log_dir = replicas.dir_of(first.log_dir)
            reason = f"{log_dir.generation.old}; {remedy(log_dir)}"
            if decision.act is Act.INCOMPLETE:
                reason = f"{decision.reason}; {reason}"
            told.append(Decision(Act.INCOMPLETE, key, (first, *others), reason))
        else:
            reason = "it was not changed, because the replica is in doubt; otherwise: "
            reason += decision.reason or decision.act.value
            told += [Decision(Act.LEAVE, key, (facts,), reason) for facts in decision.replicas]
    return told


def with_what_is_missing(decision: Decision, log_dir: LogDir, log: Log) -> Decision:
    """Say in the decision's reason which records the old copy's replica lacks, if this is known."""
    own, key, end_offset = log_dir.generation, decision.topic_partition, log.log_end_offset
    known = max(own.doubts.get(key, -1), own.found.get(key, -1))
    if not own.old or known < 0:
        return decision
    reason = (
        f"it has all records that are known to be durable (it ends at offset {end_offset}, and "
        f"the durable records end at {known}), but it may lack records that were appended later"
    )
    if known > end_offset:
        reason = f"records of offsets {end_offset} to {known}, which were durable, are missing"
    decision = decision._replace(reason=f"{reason}; {decision.reason}")
    host.note_missing(log, decision.reason)
    return decision


def judge(
    replicas: Replicas, log_dir: LogDir, facts: ReplicaFacts, log: Log, before: Log | None
) -> Decision | None:
    """Check whether a log that was just opened is an old copy. If so, make the log INCOMPLETE.

    The log is an old copy if it has another topic id, or if it lacks records that were durable.

    Args:
        before: the log object that this process had for this replica before the log dir went
            offline.
    """
    own, key = log_dir.generation, TopicPartition(facts.topic, facts.partition)
    if own.has_moved_on():  # another process may have truncated the log
        before = None
    held, is_same = -1, before is None or before.topic_id == log.topic_id
    if before is not None:
        held = before.recovery_point
    elif not own.is_readable and not own.is_taken_in:
        held = last_end(replicas, log_dir, key, log)
    if is_same and log.log_end_offset >= held:
        return None
    if not log_dir.is_outdated:
        own.is_all_in_doubt = True  # other logs may be old, too, although they seem complete
        count_as_old(log_dir, short(log_dir))
    own.found[key] = held
    return Decision(Act.INCOMPLETE, key, (facts,), f"{own.old}; {REMEDY}")


def close_opened(replicas: Replicas) -> list[Decision]:
    """Close the open logs of each log dir that was just recognised as an old copy.

    Returns the decisions to open the closed logs as incomplete.
    """
    decisions = []
    for log_dir in replicas.log_dirs:
        own = log_dir.generation
        if not (log_dir.is_outdated and own.is_all_in_doubt):
            continue
        for log in replicas.on(log_dir):
            key = key_of(log)
            with replicas.reserved(key):
                replica = replicas.opened.get(key)
                if replica is None or replica.log is not log or replica.log_dir is not log_dir:
                    continue  # the log was deleted or moved, or was opened before the dir failed
                with suppress(LogStoreError):
                    log.flush()
                own.found[key] = known_offsets(replicas, log_dir).get(key, -1)
                facts = facts_of_open(replica)._replace(is_open=False)
                decision = Decision(Act.INCOMPLETE, key, (facts,), f"{own.old}; {REMEDY}")
                log.detach(decision.error())
                replicas.forget_opened(key)
                decisions.append(decision)
    return decisions


def tell(log_dirs: Iterable[LogDir]) -> list[str]:
    """Report which log dirs are or were old copies, and which replicas in them are in doubt."""
    told = []
    for log_dir in log_dirs:
        own = log_dir.generation
        if own.old:
            names = ", ".join(sorted(f"{topic}-{number}" for topic, number in own.found))
            told.append(f"{own.old}; in doubt: {names or 'nothing'}; {remedy(log_dir)}")
    return told


def disagreements(replicas: Replicas, said: Mapping[TopicPartition, LogDir]) -> Iterator[str]:
    """Report each replica that is missing, or is in another log dir than the catalog says."""
    for key, log_dir in said.items():
        replica = replicas.opened.get(key)
        if replica is not None:
            if replica.log_dir is not log_dir:
                yield (
                    f"the catalog recorded {key} in {log_dir.path}, but it is in "
                    f"{replica.log_dir.path}"
                )
        elif key not in replicas and not log_dir.is_offline:
            yield (
                f"the catalog recorded {key} in {log_dir.path}, but none of the serving log "
                "dirs has it"
            )
            if not replicas.is_a_dir_bad():
                replicas.catalog.note(key, None)


def with_newly_old(replicas: Replicas, loaded: Sequence[LogDir]) -> list[LogDir]:
    """Return the loaded log dirs, and the log dirs that were just recognised as old copies."""
    newly = [d for d in replicas.log_dirs if d.is_outdated and d.generation.is_all_in_doubt]
    return [*loaded, *(log_dir for log_dir in newly if log_dir not in loaded)]


def note_missing(
    replicas: Replicas, said: Mapping[TopicPartition, LogDir], loaded: Iterable[LogDir]
) -> list[tuple[TopicPartition, LogDir, LogStoreError]]:
    """If the catalog has a replica that is missing in an old copy, mark the replica as offline."""
    missing: list[tuple[TopicPartition, LogDir, LogStoreError]] = []
    old = [log_dir for log_dir in loaded if log_dir.is_outdated]
    known = {key: d for d in old for key in replicas.catalog.on(d.directory_id)}
    for key, log_dir in {**said, **known}.items():
        own = log_dir.generation
        # Do not use `key in replicas` here, because it is True for an absent replica.
        # While a log dir returns, its replicas count as absent.
        if log_dir.is_offline or not own.old or replicas.is_found(key):
            continue
        if own.is_accepted and key not in own.doubts:
            continue
        first = "mount the disk with the latest state of the log dir and reopen the log dir, or "
        todo = f"{first if log_dir.is_outdated else ''}delete {key} to give up that partition"
        reason = f"{own.old}; it does not have {key}: {todo}"
        error = ReplicaOfflineError(topic=key.topic, partition=key.partition, reason=reason)
        own.found[key] = known_offsets(replicas, log_dir).get(key, -1)
        replicas.found_offline(key, OfflineReplica(error, log_dir, is_missing=True))
        missing.append((key, log_dir, error))
    return missing
