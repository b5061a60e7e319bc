"""Make many empty logs in one log dir, with syncs that they share.

    1  a directory for each log, with its `partition.metadata` under a temporary name
    2  sync these files, then the names of the directories
    3  rename each file to its name, then sync the directories
    4  a first segment for each; the next flush of a log makes its name durable

If the power fails before step 3, the next start removes the directory as an unfinished creation. If
it fails after step 3, the log exists; if it has no segment yet, the start makes one. A log is
durable once its directory was synced in step 3. The syncs of a step are made one after the other: a
file system with a journal writes all that wait with the first of them, so the others cost little.
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


class _NewLog:
    """A log that is being made; its descriptor is open from step 1 to 2."""

    def __init__(self, log_dir: LogDir, metadata: PartitionMetadata) -> None:
        at = log_dir.generation.current
        self.metadata = metadata.with_lowered_end(log_dir.directory_id, at)
        self.directory = os.path.join(log_dir.path, dir_name(metadata.topic, metadata.partition))
        self.path = os.path.join(self.directory, FILE_NAME)
        self.temporary = f"{self.path}.{os.urandom(4).hex()}.tmp"
        self.fd = -1

    def write(self) -> None:
        """Write what the log is, and have the disk begin with it."""
        data = encode_document(self.metadata.to_document())
        files.mkdir(self.directory)
        self.fd = files.open_file(self.temporary, files.CREATE)
        files.write_fully(self.fd, [data], 0)
        bulk.start_writeback(self.fd, 0, len(data))

    def sync(self) -> None:
        """Make the file durable that `write` wrote."""
        files.sync_file(self.fd)
        self.close()

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
) -> list[Made]:
    """Make empty logs, durable on return; each needs a descriptor meanwhile.

    If that fails, what it left is for the caller to remove.

    Raises:
        LogStoreError: the log dir does not serve, or its disk failed.
    """
    new = [_NewLog(log_dir, metadata) for metadata in metadatas]
    at = log_dir.path
    try:
        with call(at, SYNCING) as under_way:
            for one in new:
                at = one.directory
                one.write()
                under_way.beat()
            for one in new:
                at = one.path
                one.sync()
                under_way.beat()
            at = log_dir.path
            files.sync_dir(at)
            log_dir.check()  # a sync may have hung for so long that others gave the dir up
            for one in new:
                at = one.path
                files.rename(one.temporary, at)
            for one in new:
                at = one.directory
                files.sync_dir(at)
                under_way.beat()
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
