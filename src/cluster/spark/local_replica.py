"""Find a replica of a partition in the files of this machine, and read its batches in place.

A directory is read only if it proves that it is the replica:

    meta.properties of a log dir          has the directory id that the broker reported
    partition.metadata of the replica     has the topic id of the plan
    the replica                           lacks nothing, and begins at or before the wanted offset
    its high watermark on the disk        bounds what is read: below it, no election changes records

The owner of the log dir writes the high watermark to the disk every few seconds. So the newest
wanted records may be above this high watermark. The records above the high watermark are fetched
from the leader. Below the high watermark, the log of a replica and the log of the leader have the
same records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from cluster.spark.pieces import ClusterPiece, Holder
from logstore.disk import files
from logstore.disk.documents.meta_properties import FILE_NAME, decode_meta
from logstore.errors import LogStoreError
from logstore.format.batch import RecordBatch
from logstore.log import host
from logstore.log.log import Log
from logstore.log.read.transactions import AbortedBy, is_aborted
from logstore.spark.options import Place, ReadOptions
from logstore.spark.read.views import forget, view_of

LOG = logging.getLogger("logstore")


class LocalReplica(NamedTuple):
    """A replica on this machine that can be read.

    Attributes:
        end: before this offset, the replica has the same records as the leader.
        aborted: the aborted transactions, if only committed records are wanted.
    """

    log: Log
    end: int
    aborted: AbortedBy


class LocalReading:
    """Read the part of a piece that is in the files of this machine.

    Attributes:
        offset: all records of the piece before this offset were returned.
    """

    def __init__(self, piece: ClusterPiece, options: ReadOptions) -> None:
        """Read nothing yet."""
        self.offset = piece.start
        self._piece, self._options = piece, options

    def batches(self) -> Iterator[RecordBatch]:
        """Yield checked batches. If the files cannot be read, end early."""
        for holder in self._piece.holders:
            if self.offset >= self._piece.end:
                return
            paths = own_paths(holder)
            if not paths:
                continue
            place = Place(paths)
            try:
                found = self._find(place, holder)
                if found is not None:
                    yield from self._read(found)
            except LogStoreError as error:
                LOG.warning(
                    "%s: the replica of broker %d in %s is not read from offset %d on: %s",
                    self._piece.key, holder.broker, ",".join(paths), self.offset, error,
                )  # fmt: skip
                forget(place)

    def _find(self, place: Place, holder: Holder) -> LocalReplica | None:
        """Open the replica.

        If the directory has a different replica, or none of the wanted records, return None.
        """
        piece = self._piece
        log = view_of(place).log(*piece.key)
        host.refresh(log)
        is_of_holder = host.log_dir_of(log).directory_id in dict(holder.log_dirs).values()
        if not is_of_holder or log.topic_id != piece.topic_id or host.missing_of(log):
            return None
        mark = host.checkpointed_high_watermark(log)
        if mark is None:
            mark = log.log_end_offset if piece.is_sole else 0
        end = min(piece.end, mark, log.log_end_offset)
        aborted: AbortedBy = {}
        if self._options.is_committed and end > self.offset:
            decided = host.decided_now(log)
            end, aborted = min(end, decided.last_stable_offset), decided.aborted
            if decided.damage is not None:
                end = min(end, decided.damage[0])
        if not log.log_start_offset <= self.offset < end:
            return None
        return LocalReplica(log, end, aborted)

    def _read(self, found: LocalReplica) -> Iterator[RecordBatch]:
        """Read up to the end of the replica.

        The owner may change the files meanwhile, so a walk may end early without an error. If a
        whole walk finds no further record, and the log reaches the end both before and after the
        walk, the last offsets have no records: they belong to markers, or compaction removed their
        records.
        """
        log = found.log
        while self.offset < found.end:
            before = self.offset
            if log.log_end_offset < found.end:
                return
            for batch in log.read_batches(self.offset, end_offset=found.end):
                if log.topic_id != self._piece.topic_id:  # a new topic now has this directory
                    return
                if not is_aborted(found.aborted, batch.header):
                    yield batch
                self.offset = batch.last_offset + 1
            host.refresh(log)
            if self.offset == before and log.log_end_offset >= found.end:
                self.offset = found.end


def own_paths(holder: Holder) -> tuple[str, ...]:
    """Return the paths of a broker's log dirs whose ids prove that they are on this machine."""
    return tuple(path for path, id_ in holder.log_dirs if directory_id_at(path) == id_)


def directory_id_at(path: str) -> str | None:
    """Read the id of a log dir; None if no id can be read."""
    meta = os.path.join(path, FILE_NAME)
    with suppress(OSError, LogStoreError):
        return decode_meta(files.read_file(meta), meta).directory_id
    return None


__all__ = ["LocalReading", "directory_id_at", "own_paths"]
