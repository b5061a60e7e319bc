"""Carry out the decisions of the start-up table, durably and one step at a time.

Each function renames one directory or changes one small file. If a crash comes before the change,
the next start finds the same files as this start. If a crash comes after the change, the table
makes the same decision again.
"""

from __future__ import annotations

import os

from logstore.disk import files
from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir
from logstore.log import host
from logstore.log.log import Log
from logstore.log.metadata import COPYING, PartitionMetadata
from logstore.names import TopicPartition, delete_dir_name, dir_name, stray_dir_name
from logstore.store.start.startup_table import ReplicaFacts


def make_live(log_dir: LogDir, facts: ReplicaFacts) -> ReplicaFacts:
    """Rename a copy to the live name, unless an earlier attempt has done so. Raises OSError."""
    key = TopicPartition(facts.topic, facts.partition)
    # If the checkpoints have entries with this name, the entries belong to an earlier replica.
    log_dir.checkpoints.forget(key)
    name = dir_name(*key)
    try:
        return _rename(log_dir, facts, name, "live")
    except FileNotFoundError:
        if not files.exists(os.path.join(log_dir.path, name)):
            raise
    files.sync_dir(log_dir.path)
    return facts._replace(dir_name=name, kind="live")


def make_stray(log_dir: LogDir, facts: ReplicaFacts) -> ReplicaFacts:
    """Rename a live copy to `.stray`, because another live copy outranks it. Raises OSError."""
    name = stray_dir_name(facts.topic, facts.partition, os.urandom(16).hex())
    return _rename(log_dir, facts, name, "stray")


def make_deleted(log_dir: LogDir, facts: ReplicaFacts) -> ReplicaFacts:
    """Rename a live copy to `.delete` before its purge: a half purged copy must not be opened."""
    name = delete_dir_name(facts.topic, facts.partition, os.urandom(16).hex())
    return _rename(log_dir, facts, name, "delete")


def _rename(log_dir: LogDir, facts: ReplicaFacts, name: str, kind: str) -> ReplicaFacts:
    files.rename(facts.path, os.path.join(log_dir.path, name))
    files.sync_dir(log_dir.path)
    return facts._replace(dir_name=name, kind=kind)


def mark_copying(log_dir: LogDir, facts: ReplicaFacts) -> None:
    """Remove the caught-up mark from a `.move`, because the live copy may have new records.

    Raises:
        OSError: the disk failed.
        CorruptionError, UnsupportedFormatError: the metadata of the copy changed meanwhile.
    """
    metadata = PartitionMetadata.read(facts.path)
    if metadata is not None and metadata.move_record is not None:
        record = metadata.move_record._replace(move_state=COPYING)
        metadata.with_move_record(record).write(facts.path, log_dir.replacing)


def outrank(log: Log, generation: int) -> None:
    """Raise an open log's generation above the generation of a recorded deletion, durably.

    Raises:
        LogStoreError: the log was closed or deleted meanwhile, or the disk failed.
    """
    host.change_metadata(
        log,
        lambda metadata: (
            {"generation": generation + 1} if metadata.generation <= generation else None
        ),
    )


def lower_high_watermarks(log_dir: LogDir) -> None:
    """If logs lost records, lower their high watermarks on the disk to their log end offsets.

    With the old high watermarks, the next appended records could count as replicated after a crash.
    """
    if log_dir.is_offline:
        return
    try:
        with call(log_dir.path, SYNCING):
            log_dir.ballast.use(log_dir.checkpoints.lower_gathered)
    except OSError as error:
        failure = log_dir.failed(error)
        if not log_dir.is_offline:
            log_dir.take_offline(f"the high watermarks of its logs cannot be lowered: {failure}")
