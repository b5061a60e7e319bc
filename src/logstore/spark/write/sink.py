"""Write a DataFrame or a stream to a store: tasks stage records, and the driver commits them.

The columns are the same as in Spark's Kafka sink: value, and optionally key, topic, partition and
headers. A column `timestamp` is also allowed. Tasks never write to a log. The commit runs in a
separate process, which owns the store during the commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logstore.disk import files
from logstore.disk.dir_lock import DirLock
from logstore.errors import LogDirLockedError
from logstore.spark.options import Place, check_names, log_dirs_of, number
from logstore.spark.read.views import host_named, settle_in, view_of
from logstore.spark.write.commits import ONCE_PREFIX, commit, read_records
from logstore.spark.write.staging import GIVEN_BY_THE_LOG, Stage, StagedFile, partitions_of
from logstore.store.admin.client import find_owner
from logstore.store.store import LogStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WRITE_OPTIONS = ("logDirs", "topic", "numPartitions")
TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
Messages = list[WriterCommitMessage | None]
Taken = TypeVar("Taken")

# If another process writes a commit to the store, wait at most this long for its end.
# That process is the driver of another query, or a driver that was killed.
# Even on a slow disk, a commit takes less time.
LOCK_SECONDS_MAX = 60.0
LOCK_PAUSE_SECONDS = 0.1


class WriteOptions(NamedTuple):
    """Hold the checked options of the sink, in a form that can be pickled."""

    log_dirs: tuple[str, ...]
    topic: str | None
    new_partitions: int


def write_options(given: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteOptions:
    """Check the options and the columns of a write; raise ValueError if any of them is wrong."""
    if any(name.lower() == "kafkalogdirs" for name in given):
        raise ValueError(
            "the log dirs of a Kafka broker can only be read: take its partitions into a store "
            "with `logstore kafka adopt`, and write to that store"
        )
    options = check_names(given, WRITE_OPTIONS)
    if overwrite:
        raise ValueError('records can only be appended to a log: write with mode("append")')
    for column in schema.fields:
        if column.name in GIVEN_BY_THE_LOG:
            continue
        wanted = TYPES.get(column.name)
        kind = column.dataType.simpleString()
        if wanted is None:
            raise ValueError(
                f"column {column.name!r} cannot be written; the possible columns are "
                f"{', '.join(TYPES)}"
            )
        if kind not in wanted:
            raise ValueError(f"column {column.name} must be {' or '.join(wanted)}, not {kind}")
    if "value" not in schema.names:
        raise ValueError("the column value is missing")
    topic = options["topic"].strip() if "topic" in options else None
    if topic is None and "topic" not in schema.names:
        raise ValueError("the topic is missing: set the option topic, or give a column topic")
    count = number(options, "numPartitions", 1) if "numPartitions" in options else 0
    if count and topic is None:
        raise ValueError("numPartitions needs the option topic, which names the topic to create")
    return WriteOptions(log_dirs_of(options), topic, count)


def own(log_dirs: tuple[str, ...]) -> LogStore:
    """Open the store as its owner; if a commit owns the store, wait at most `LOCK_SECONDS_MAX`.

    An owner without an admin socket is treated as a commit, because a commit has no admin socket.

    Raises:
        LogDirLockedError: another process owns the store. The message names the process, and says
            what to do.
    """
    return _patiently(log_dirs, lambda: LogStore.open(log_dirs, admin_socket=False))


def check_not_owned(log_dirs: tuple[str, ...]) -> None:
    """Check that no process owns the store; otherwise, the write fails before its tasks run.

    This function acquires the locks, releases them immediately, and writes nothing.

    Raises:
        LogDirLockedError: another process that is not a commit owns the store.
    """

    def try_locks() -> None:
        with ExitStack() as stack:
            for path in log_dirs:
                lock = DirLock(path)
                with suppress(OSError):  # other checks report a missing log dir
                    if files.exists(lock.path):
                        lock.acquire()
                        stack.callback(lock.release)

    _patiently(log_dirs, try_locks)


def _patiently(log_dirs: tuple[str, ...], take: Callable[[], Taken]) -> Taken:
    """Call `take`; while a commit owns the store, wait and call `take` again."""
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            return take()
        except LogDirLockedError as error:
            if find_owner(log_dirs) is not None or time.monotonic() > deadline:
                is_mine = error.pid is not None and error.pid in own_line()
                owner = ", the program that runs this query" if is_mine else ""
                where = "in that program" if is_mine else "there"
                raise LogDirLockedError(
                    f"log dir {error.path} is owned by process {error.pid}{owner}: Spark can write "
                    "to a store only while no process owns it, because the commit opens the store "
                    f"itself. Close the store {where} before the write, or append through it",
                    path=error.path,
                    pid=error.pid,
                ) from error
            time.sleep(LOCK_PAUSE_SECONDS)


def own_line() -> list[int]:
    """List the ids of this process and its ancestors. The driver's program is an ancestor."""
    line = [os.getpid()]
    # The list ends early if there is no /proc, or if another user owns the parent process.
    with suppress(OSError, ValueError, IndexError):
        while line[-1] > 0:
            fd = files.open_file(f"/proc/{line[-1]}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                fields = files.read_up_to(fd, 4096, 0).rpartition(b")")[2].split()
            finally:
                files.close(fd)
            line.append(int(fields[1]))
    return [pid for pid in line if pid > 0]


def prepare(options: WriteOptions) -> None:
    """Check that the write can succeed, before any task runs.

    Create the topic if the options ask for it.

    Raises:
        LogDirLockedError: another process owns the store.
        UnknownPartitionError: the topic does not exist, and the option numPartitions is not set.
    """
    check_not_owned(options.log_dirs)
    with host_named():
        create_topic(options)


def create_topic(options: WriteOptions) -> None:
    """If the topic has no partition yet, create it with the wanted number of partitions."""
    if options.topic is None:
        return
    store = view_of(Place(options.log_dirs))
    if not options.new_partitions:
        partitions_of(store, options.topic)
        return
    if any(key.topic == options.topic for key in store):
        return
    with own(options.log_dirs) as store:
        for partition in range(options.new_partitions):
            store.create(options.topic, partition, exist_ok=True)


def context_of_task() -> tuple[str | None, int]:
    """Return the id of the task's query, and the number of the task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return None, 0
    return context.getLocalProperty("sql.streaming.queryId"), context.partitionId()


class _Writer:
    """Define the steps that both writers share."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def _stage(self, query_id: str, task: int, batches: Iterator[pa.RecordBatch]) -> StagedFile:
        settle_in()
        with host_named():
            store = view_of(Place(self._options.log_dirs))
            return Stage(store, query_id, self._options.topic, task).write(batches)

    def _commit(self, messages: list[Any], batch_id: int) -> None:
        staged = [message for message in messages if isinstance(message, StagedFile)]
        runs = [run for message in staged for run in message.runs]
        if not runs:
            return
        with own(self._options.log_dirs) as store:
            commit(store, staged[0].query_id, batch_id, runs)

    def _abort(self, messages: list[Any]) -> None:
        """Remove staged files, but not the files of a begun commit: the next commit needs them."""
        begun = {
            run.path
            for record in read_records(self._options.log_dirs).values()
            if record.pending is not None
            for part in record.pending.parts
            for run in part.runs
        }
        for message in messages:
            if isinstance(message, StagedFile) and message.path and message.path not in begun:
                files.remove_if_there(message.path)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Append a DataFrame completely or not at all."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self._write_id = ONCE_PREFIX + os.urandom(16).hex()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the records of one task."""
        return self._stage(self._write_id, context_of_task()[1], iterator)

    def commit(self, messages: Messages) -> None:
        """Append the records that all tasks have staged."""
        self._commit(messages, 0)

    def abort(self, messages: Messages) -> None:
        """Remove the records that were staged."""
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Append the micro-batches of a stream, each exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the records of one task of one micro-batch."""
        query_id, task = context_of_task()
        if query_id is None:
            raise RuntimeError("Spark did not say which query this task belongs to")
        return self._stage(query_id, task, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append a micro-batch; do nothing if it is already appended."""
        self._commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove the records that were staged for a micro-batch."""
        self._abort(messages)
