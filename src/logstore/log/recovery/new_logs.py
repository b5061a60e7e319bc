"""Create many empty logs in one log dir at once, so that the logs share the cost of syncs.

    1  make a directory for each log, with its `partition.metadata` under a temporary name
    2  sync these files, then the log dir, which has the names of the directories
    3  rename each file to its name, then sync the directories
    4  make a first segment for each log; the next flush of a log makes the segment's name durable

If the power fails before step 3, the next start removes the directory as an unfinished creation. If
the power fails after step 3, the log exists, and the next start makes a missing first segment. A
log is durable after its directory was synced in step 3. Several threads sync at the same time, so
that the journal of the file system, and the disk, can complete many syncs with one write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from logstore.disk import bulk, files
from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.checkpoint import encode_document
from logstore.disk.log_dir import LogDir
from logstore.log.environment import LogEnvironment
from logstore.log.metadata import FILE_NAME, PartitionMetadata
from logstore.log.recovery.open_log import begin
from logstore.log.state import LogState
from logstore.names import dir_name

Made = TypeVar("Made")
ForAll = Callable[[Sequence["_NewLog"], Callable[["_NewLog"], object]], object]


class _NewLog:
    """A log that is being created; its metadata file is open from step 1 to step 2."""

    def __init__(self, log_dir: LogDir, metadata: PartitionMetadata) -> None:
        at = log_dir.generation.current
        self.metadata = metadata.with_lowered_end(log_dir.directory_id, at)
        self.directory = os.path.join(log_dir.path, dir_name(metadata.topic, metadata.partition))
        self.path = os.path.join(self.directory, FILE_NAME)
        self.temporary = f"{self.path}.{os.urandom(4).hex()}.tmp"
        self.fd = -1

    def write(self) -> None:
        """Write the metadata to the temporary file; the kernel begins to write it to the disk."""
        data = encode_document(self.metadata.to_document())
        files.mkdir(self.directory)
        self.fd = files.open_file(self.temporary, files.CREATE)
        files.write_fully(self.fd, [data], 0)
        bulk.start_writeback(self.fd, 0, len(data))

    def sync(self) -> None:
        """Sync and close the file that `write` wrote."""
        with call(self.directory, SYNCING):
            files.sync_file(self.fd)
        self.close()

    def sync_name(self) -> None:
        """Sync the directory, so that the name of the metadata file is durable."""
        with call(self.directory, SYNCING):
            files.sync_dir(self.directory)

    def close(self) -> None:
        """Close the file if it is open."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            files.close(fd)


def create_many(
    kind: Callable[[LogState], Made],
    log_dir: LogDir,
    metadatas: Sequence[PartitionMetadata],
    environment: LogEnvironment,
    for_all: ForAll,
) -> list[Made]:
    """Create empty logs; on return, the logs are durable.

    The call needs one file descriptor for each log. If this function fails, the caller has to
    remove the directories that were created.

    Args:
        kind: a function that makes the returned object of a log from the log's state.
        for_all: a function that calls another function for each log, in any number of threads.

    Raises:
        LogStoreError: the log dir refuses calls, or its disk failed.
    """
    new = [_NewLog(log_dir, metadata) for metadata in metadatas]
    at = log_dir.path
    try:
        with call(at, SYNCING) as under_way:
            for one in new:
                one.write()
                under_way.beat()
        for_all(new, _NewLog.sync)
        with call(at, SYNCING) as under_way:
            files.sync_dir(at)
            log_dir.check()  # a sync may have hung until the store gave up the dir
            for one in new:
                files.rename(one.temporary, one.path)
                under_way.beat()
        for_all(new, _NewLog.sync_name)
    except OSError as error:
        raise log_dir.failed(error, at) from error
    finally:
        for one in new:
            with suppress(OSError):
                one.close()
    log_dir.check()
    logs = []
    for one in new:
        state = LogState(log_dir, one.directory, one.metadata, environment)
        begin(state, one.metadata.log_start_offset, is_durable=False)
        logs.append(kind(state))
    return logs
