"""Append the records that tasks have staged, each batch of a query only once, even after a crash.

    <log dir>/.spark/commits/<query id>     one document, the same in every log dir that works

    begin    the document records the batch, its staged files, and the end offset of each log
    append   every encoded batch has the id of this commit and the number of its first record
    flush    flush the logs to which this commit appended
    end      the document records the batch as the last complete one; the staged files are removed

If a commit is interrupted, the next commit of any query completes the interrupted commit first. For
this, the next commit reads each log from the offset in the document, and finds which batches of the
interrupted commit the log has. The process owns the store during the whole commit, so no other
process appends between begin and end. But after an interruption, another process can append. So the
next commit first finds the records that the logs already have, and removes these records from the
document. The next commit then appends the other records at each log's new end (docs/adr/0009).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from logstore.disk import bulk, files
from logstore.disk.documents.checkpoint import VERSION, read_document, write_document
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptCheckpointError,
    LogDirOfflineError,
    LogStoreError,
    UnknownPartitionError,
)
from logstore.format.producers import producer_of, stamp
from logstore.log.host import append_staged
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.spark.write.staging import SPARK_DIR, Run, make_dirs, staging_dir
from logstore.store.store import LogStore

NOTHING_YET = -1
# The query id of a DataFrame write begins with this prefix. A DataFrame write has only one batch.
ONCE_PREFIX = "write-"
APPEND_BYTES = 4 << 20


class Part(NamedTuple):
    """Describe the part of a commit that goes to one partition.

    Attributes:
        base_offset: the end of the log before this commit. The commit's batches begin at this
            offset, and follow one another without a gap.
        first_sequence: how many of this commit's records the log already has before `base_offset`.
    """

    topic: str
    partition: int
    topic_id: str
    base_offset: int
    first_sequence: int
    runs: tuple[Run, ...]


class Commit(NamedTuple):
    """Describe a commit that was begun."""

    batch_id: int
    parts: tuple[Part, ...]


class QueryRecord(NamedTuple):
    """Hold the state of a query: its last complete batch, and a later commit that was begun.

    Attributes:
        number: a number that grows with every write of the record. If a log dir was offline, it may
            have an older record, with a smaller number.
    """

    query_id: str
    number: int = 0
    last_batch_id: int = NOTHING_YET
    pending: Commit | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the record in the form that the file stores."""
        pending = None
        if self.pending is not None:
            parts = [part._asdict() for part in self.pending.parts]
            pending = {"batch_id": self.pending.batch_id, "parts": parts}
        return {**self._asdict(), "version": VERSION, "pending": pending}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> QueryRecord:
        """Read a record from its stored form."""
        pending = None
        if document["pending"] is not None:
            parts = tuple(
                Part(**{**part, "runs": tuple(Run(*run) for run in part["runs"])})
                for part in document["pending"]["parts"]
            )
            pending = Commit(document["pending"]["batch_id"], parts)
        return cls(document["query_id"], document["number"], document["last_batch_id"], pending)


# --- the documents --------------------------------------------------------------------------------


def commits_dir(log_dir: str) -> str:
    """Return the directory of the documents in a log dir."""
    return os.path.join(log_dir, SPARK_DIR, "commits")


def read_records(log_dirs: Iterable[str]) -> dict[str, QueryRecord]:
    """Read the newest document of every query.

    Raises:
        CorruptCheckpointError: all documents of a query are damaged.
        OSError: a disk could not read a document.
    """
    found: dict[str, QueryRecord] = {}
    damaged: dict[str, CorruptCheckpointError] = {}
    for log_dir in log_dirs:
        directory = commits_dir(log_dir)
        try:
            names = [entry.name for entry in files.entries(directory)]
        except FileNotFoundError:
            continue
        for name in names:
            if name.endswith(".tmp"):
                continue
            try:
                document = read_document(os.path.join(directory, name))
                if document is None:
                    continue
                record = QueryRecord.from_document(document)
            except CorruptCheckpointError as error:
                damaged[name] = error
                continue
            if name not in found or found[name].number < record.number:
                found[name] = record
    for name, damage in damaged.items():
        if name not in found:
            raise damage
    return found


class CommitLog:
    """Read and write the documents of a store that this process owns."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def _good_dirs(self) -> list[LogDir]:
        return [each for each in self._store.host.log_dirs if not each.is_offline]

    def read(self) -> dict[str, QueryRecord]:
        """Read every query's record."""
        return read_records([log_dir.path for log_dir in self._good_dirs()])

    def write(self, record: QueryRecord) -> QueryRecord:
        """Write a record durably into every log dir that works.

        Return the record with its new number.

        Raises:
            LogDirOfflineError: no log dir works.
        """
        record = record._replace(number=record.number + 1)
        failure: LogStoreError | None = None
        written = 0
        for log_dir in self._good_dirs():
            directory = commits_dir(log_dir.path)
            path = os.path.join(directory, record.query_id)
            try:
                make_dirs(log_dir.path, directory)
                write_document(path, record.to_document())
                written += 1
            except OSError as error:
                failure = log_dir.failed(error, path)
        if not written:
            raise failure or LogDirOfflineError(path="", reason="no log dir works")
        return record

    def remove_finished(self, record: QueryRecord) -> None:
        """Remove the record of a complete DataFrame write, because no other batch follows.

        While a log dir is offline or hangs, the record is not removed. This log dir may have an
        older record, which says that the write is not complete.
        """
        is_finished = record.pending is None and record.query_id.startswith(ONCE_PREFIX)
        if not is_finished or self._store.host.replicas.is_a_dir_in_doubt():
            return
        query_id = record.query_id
        for log_dir in self._good_dirs():
            with suppress(OSError):
                files.remove_if_there(os.path.join(commits_dir(log_dir.path), query_id))

    def remove_staged(self, query_id: str) -> None:
        """Remove a query's staged files.

        If a file cannot be removed, the next commit tries again.
        """
        for log_dir in self._good_dirs():
            with suppress(OSError):
                bulk.remove_tree(staging_dir(log_dir.path, query_id))

    def remove_completed(self, record: QueryRecord) -> None:
        """Remove the staged files of an interrupted commit, but not the query's other files."""
        assert record.pending is not None
        if record.query_id.startswith(ONCE_PREFIX):
            self.remove_staged(record.query_id)
            return
        remove_files(run for part in record.pending.parts for run in part.runs)


def remove_files(runs: Iterable[Run]) -> None:
    """Remove the staged files of runs; if a file cannot be removed, the next commit tries again."""
    for path in {run.path for run in runs}:
        with suppress(OSError):
            files.remove_if_there(path)


# --- one commit -----------------------------------------------------------------------------------


def commit(store: LogStore, query_id: str, batch_id: int, runs: Sequence[Run]) -> bool:
    """Append a batch's staged records exactly once; return False if it is already committed.

    The caller must own the store.
    """
    log = CommitLog(store)
    for record in list(log.read().values()):
        if record.pending is not None:
            complete(store, log, record)
        else:
            log.remove_finished(record)
    record = log.read().get(query_id, QueryRecord(query_id))
    is_new = batch_id > record.last_batch_id
    if is_new and runs:
        check_staged(runs)
        begun = Commit(batch_id, tuple(_parts(store, runs)))
        finish(store, log, log.write(record._replace(pending=begun)))
    remove_files(runs)
    # If the batch is not new, another driver may have continued the query.
    # Another driver may be staging the next batch.
    if is_new:
        log.remove_staged(query_id)
    return is_new


def check_staged(runs: Sequence[Run]) -> None:
    """Check that all staged files are complete, before the commit begins.

    If a commit has begun and cannot be completed, it blocks all later commits.

    Raises:
        LogStoreError: a staged file is missing or too short; nothing was appended.
    """
    sizes: dict[str, int] = {}
    for run in runs:
        sizes[run.path] = max(run.position + run.size_bytes, sizes.get(run.path, 0))
    for path, size_bytes in sizes.items():
        why = ""
        try:
            if files.lstat(path).st_size < size_bytes:
                why = "it is too short"
        except OSError as error:
            why = str(error.strerror)
        if why:
            raise LogStoreError(
                f"nothing was appended: the staged file {path} cannot be read on host "
                f"{socket.gethostname()} ({why}). The file was removed, its disk is away, or the "
                "driver does not see the log dirs of its executors. Run the write again; a stream "
                "continues from its checkpoint"
            )


def _parts(store: LogStore, runs: Sequence[Run]) -> Iterable[Part]:
    by_partition: dict[TopicPartition, list[Run]] = {}
    for run in runs:
        by_partition.setdefault(TopicPartition(run.topic, run.partition), []).append(run)
    for key, of_partition in sorted(by_partition.items()):
        log = store.log(*key)
        yield Part(*key, log.topic_id.hex(), log.log_end_offset, 0, tuple(of_partition))


def complete(store: LogStore, log: CommitLog, record: QueryRecord) -> QueryRecord:
    """Complete an interrupted commit: find the records that the logs have, and append the rest."""
    assert record.pending is not None
    parts = []
    for part in record.pending.parts:
        left = what_is_left(store, part, producer_of(record.query_id, record.pending.batch_id))
        if left is not None:
            parts.append(left)
    rest = record.pending._replace(parts=tuple(parts))
    whole = finish(store, log, log.write(record._replace(pending=rest)))
    log.remove_completed(record)
    return whole


def what_is_left(store: LogStore, part: Part, producer_id: int) -> Part | None:
    """Return the records of `part` that the log lacks, or None if the topic no longer exists."""
    try:
        log = store.log(part.topic, part.partition)
    except UnknownPartitionError:
        return None
    if log.topic_id.hex() != part.topic_id:
        return None
    done, first = part.first_sequence, max(part.base_offset, log.log_start_offset)
    if first < log.log_end_offset:
        for batch in log.read_batches(first):
            header = batch.header
            if header.producer_id != producer_id or header.base_sequence < done:
                break
            done = header.base_sequence + header.record_count
    runs, sequence = [], part.first_sequence
    for run in part.runs:
        if sequence >= done:
            runs.append(run)
        sequence += run.record_count
    return part._replace(base_offset=log.log_end_offset, first_sequence=done, runs=tuple(runs))


def finish(store: LogStore, log: CommitLog, record: QueryRecord) -> QueryRecord:
    """Append all records of a begun commit, make them durable, and mark the commit as complete."""
    assert record.pending is not None
    producer_id = producer_of(record.query_id, record.pending.batch_id)
    logs = []
    for part in record.pending.parts:
        logs.append(store.log(part.topic, part.partition))
        append_part(logs[-1], part, producer_id)
    for each in logs:
        each.flush()
    whole = record._replace(last_batch_id=record.pending.batch_id, pending=None)
    whole = log.write(whole)
    log.remove_finished(whole)
    return whole


def append_part(log: Log, part: Part, producer_id: int) -> None:
    """Append the staged batches of one partition, in groups."""
    sequence, group, size = part.first_sequence, [], 0
    for run in part.runs:
        group.append(stamp(read_run(log, run), producer_id, sequence))
        sequence += run.record_count
        size += run.size_bytes
        if size >= APPEND_BYTES:
            append_staged(log, b"".join(group))
            group, size = [], 0
    if group:
        append_staged(log, b"".join(group))


def read_run(log: Log, run: Run) -> bytes:
    """Read one staged batch."""
    try:
        fd = files.open_regular(run.path, files.READ)
        try:
            data = files.read_up_to(fd, run.size_bytes, run.position)
        finally:
            files.close(fd)
    except OSError as error:
        raise LogStoreError(
            f"a commit that was begun cannot be completed: its staged file {run.path} cannot be "
            f"read ({error.strerror}). Restore this file. To give up its records, remove the "
            f"commit's document in {os.path.join(SPARK_DIR, 'commits')} of every log dir"
        ) from error
    if len(data) != run.size_bytes:
        raise LogStoreError(f"the staged file {run.path} ends within the batch at {run.position}")
    return data
