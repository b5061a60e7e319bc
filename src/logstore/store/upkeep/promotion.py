"""Accept an incomplete replica as complete, durably, because the user decided so.

First, remove the marks of a move and of an incomplete deletion from `partition.metadata`, and raise
the generation above all known generations. Then rename the directory to the live name. In an old
copy of a log dir, the directory may already have this name. Finally, remove the replica from the
old copy's list of replicas in doubt.

After a crash the replica is either incomplete as before, or live.
"""

from __future__ import annotations

import os
from functools import partial

from logstore.disk import files
from logstore.errors import LogClosedError, LogDirError, LogStoreError
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.log.metadata import PartitionMetadata
from logstore.log.recovery.open_log import open_log
from logstore.log.segments.listing import list_partition
from logstore.log.small_files import Checkpointed, metadata_or_stand_in, read_small_files
from logstore.names import ReplicaDirName, TopicPartition, dir_name
from logstore.store.doubts import acceptance
from logstore.store.replicas import IncompleteReplica, Replicas
from logstore.store.start import dir_actions


def promote(replicas: Replicas, environment: LogEnvironment, key: TopicPartition) -> bool:
    """Accept an incomplete replica as complete; return False if the replica was already complete.

    Raises:
        UnknownPartitionError, LogDirOfflineError, ReplicaOfflineError: as in `Replicas.lookup`.
        LogDirFullError: the disk is full; the replica stays incomplete; try again.
        LogDirError: the replica is in an old copy of a log dir, and no other log dir could record
            that the copy is accepted.
    """
    replicas.lookup(*key)
    with replicas.reserved(key):
        incomplete = replicas.incomplete.get(key)
        if incomplete is None:
            return False
        log_dir, facts = incomplete.log_dir, incomplete.facts
        acceptance.check_decidable(replicas, log_dir)
        try:
            live = f"{log_dir.path}/{dir_name(*key)}"
            if facts.kind != "live" and files.exists(live):
                raise LogDirError(path=log_dir.path, reason=f"{live} exists already")
            _rewrite_metadata(incomplete, key)
            if facts.kind != "live":
                facts = dir_actions.make_live(log_dir, facts)
            acceptance.settle(replicas, log_dir, key)
        except OSError as error:
            raise log_dir.failed(error, facts.path, *key) from error
        _open_live(replicas, environment, key, incomplete, facts.dir_name)
        return True


def _rewrite_metadata(incomplete: IncompleteReplica, key: TopicPartition) -> None:
    """Remove the marks of a move or a deletion; raise the generation above all known generations.

    The generation of an unreadable copy counts as known if another copy has recorded it.
    """
    metadata = _metadata_of(incomplete, key)
    known = [metadata.generation]
    known += [facts.generation for facts in (incomplete.facts, *incomplete.others)]
    known += [
        facts.superseded_by.generation
        for facts in (incomplete.facts, *incomplete.others)
        if facts.superseded_by is not None
    ]
    # A deletion that failed or crashed may have left a record of the deletion.
    # With that record, the next start would delete the replica.
    metadata = metadata.with_move_record(None).with_superseded_by(None).without_deletion()
    metadata._replace(moving=None, generation=max(known) + 1).write(incomplete.facts.path)


def _metadata_of(incomplete: IncompleteReplica, key: TopicPartition) -> PartitionMetadata:
    """Read the metadata; if it is lost, make new metadata, like the opening of a live log."""
    log_dir, facts = incomplete.log_dir, incomplete.facts
    metadata = metadata_or_stand_in(facts.path, ReplicaDirName(*key, facts.kind, ""))
    if any(metadata.topic_id):
        return metadata
    checkpointed = Checkpointed()  # only a live copy has offsets in the checkpoints
    if facts.kind == "live":
        start = log_dir.checkpoints.log_start_offset(key)
        checkpointed = Checkpointed(None, start, log_dir.checkpoints.topic_ids(key))
    found = read_small_files(
        facts.path,
        *key,
        checkpointed,
        lambda: list_partition(facts.path).segments,
        partial(os.urandom, 16),
    )
    return found.metadata


def _open_live(
    replicas: Replicas,
    environment: LogEnvironment,
    key: TopicPartition,
    incomplete: IncompleteReplica,
    name: str,
) -> None:
    """Open the replica for writing; opening it scans the whole log."""
    log_dir = incomplete.log_dir
    try:
        log = Log(open_log(log_dir, name, environment, None, None, is_clean=False))
    except LogStoreError as error:
        replicas.take_offline(key, error)
        raise
    replicas.add(key, log, log_dir)
    replicas.leave(key, incomplete.others)
    reason = f"the replica {key} was promoted: ask the store for its log again"
    incomplete.log.detach(LogClosedError(reason=reason))
