"""Decide about the replicas of an old copy of a log dir; `dirs/old_copies` recognises the copy.

settling    the decisions about an old copy's replicas become INCOMPLETE: readable, not writable
loading     a log that ends before what was durable is opened as an incomplete one
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
    """Decide about all replica directories by the start-up table, with old copies in mind.

    An old copy is a bad log dir for what is in others: the right disk may hold the live copy, or a
    copy that is to be deleted. What is in old copies alone opens incomplete.

    Args:
        is_all_listed: False if a log dir hung, or came back since the listing.
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
    """Set aside what an old copy has live although a log dir that is none has it live too.

    It was moved, or deleted and created again, after the copy was made.
    """
    live = [facts for facts in found if facts.kind == "live"]
    current = {(one.topic, one.partition): one.path for one in live if one.log_dir not in old}
    kept, decisions = [], []
    for facts in found:
        key = TopicPartition(facts.topic, facts.partition)
        is_old = facts.kind == "live" and facts.log_dir in old and not facts.is_open
        if is_old and key in current:
            reason = f"a copy of it in an old copy of a log dir, beside {current[key]}"
            decisions.append(Decision(Act.STRAY, key, (facts,), reason))
        else:
            kept.append(facts)
    return kept, decisions


def doubted(replicas: Replicas, decisions: Iterable[Decision]) -> list[Decision]:
    """Replace the decisions about replicas of old copies: they open as INCOMPLETE.

    Other directories of these replicas are left alone.
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
    if own.has_moved_on():  # another process may have truncated or deleted it
        before = None
    held, is_same = -1, before is None or before.topic_id == log.topic_id
    if before is not None:
        held = before.recovery_point
    elif not own.is_readable and not own.is_taken_in:
        held = last_end(replicas, log_dir, key, log)
    if is_same and log.log_end_offset >= held:
        return None
    if not log_dir.is_outdated:
        own.is_all_in_doubt = True  # another may have been truncated, or deleted, and look whole
        count_as_old(log_dir, short(log_dir))
    own.found[key] = held
    return Decision(Act.INCOMPLETE, key, (facts,), f"{own.old}; {REMEDY}")


def close_opened(replicas: Replicas) -> list[Decision]:
    """Close the logs that are open in a log dir which was just found to be an old copy.

    Returns decisions that open them incomplete.
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
                    continue  # it was deleted or moved meanwhile, or is from before the dir left
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
    """Say for the report which log dirs are old copies, or were, and what is in doubt in them."""
    told = []
    for log_dir in log_dirs:
        own = log_dir.generation
        if own.old:
            names = ", ".join(sorted(f"{topic}-{number}" for topic, number in own.found))
            told.append(f"{own.old}; in doubt: {names or 'nothing'}; {remedy(log_dir)}")
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


def with_newly_old(replicas: Replicas, loaded: Sequence[LogDir]) -> list[LogDir]:
    """Add to the loaded log dirs those that serve already and were just found to be old copies."""
    newly = [d for d in replicas.log_dirs if d.is_outdated and d.generation.is_all_in_doubt]
    return [*loaded, *(log_dir for log_dir in newly if log_dir not in loaded)]


def note_missing(
    replicas: Replicas, said: Mapping[TopicPartition, LogDir], loaded: Iterable[LogDir]
) -> list[tuple[TopicPartition, LogDir, LogStoreError]]:
    """Take the replicas offline that the catalog names and that an old copy lacks."""
    missing: list[tuple[TopicPartition, LogDir, LogStoreError]] = []
    old = [log_dir for log_dir in loaded if log_dir.is_outdated]
    known = {key: d for d in old for key in replicas.catalog.on(d.directory_id)}
    for key, log_dir in {**said, **known}.items():
        own = log_dir.generation
        # `key in replicas` would be true: while the log dir returns, the replica counts as absent.
        if log_dir.is_offline or not own.old or replicas.is_found(key):
            continue
        if own.is_accepted and key not in own.doubts:
            continue
        first = "mount the right disk and reopen the log dir, or " if log_dir.is_outdated else ""
        reason = f"{own.old}; it is older than {key}: {first}delete {key} to give that partition up"
        error = ReplicaOfflineError(topic=key.topic, partition=key.partition, reason=reason)
        own.found[key] = known_offsets(replicas, log_dir).get(key, -1)
        replicas.found_offline(key, OfflineReplica(error, log_dir, is_missing=True))
        missing.append((key, log_dir, error))
    return missing
