"""Keep the offsets checkpoints of a log dir: recovery points, log start offsets, high watermarks.

A recovery point in a checkpoint means that all records below this offset are durable. So a recovery
point is written only after the flush. If a log is deleted, its recovery point is removed from the
disk *before* another log takes the same name. If the disk is too full to rewrite the checkpoint,
the whole file is removed, because an unknown recovery point is always safe.

A high watermark in a checkpoint means that all in-sync replicas have the records below this offset.
So if a log loses records, its high watermark is lowered on the disk before other records get the
same offsets: before a truncation, and at a start that finds the log shorter than before. Only
replicated logs have a high watermark.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress

from logstore.disk import files
from logstore.disk.documents import checkpoint
from logstore.disk.documents.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Offsets,
)
from logstore.disk.failures import Verdict, verdict_of
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

WAIT_SECONDS = 0.25
NOTHING = Offsets({}, {})
KINDS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)


class OffsetCheckpoints:
    """The offsets checkpoints of one log dir, as they are on the disk."""

    def __init__(
        self,
        dir_path: str,
        check: Callable[[], None] = lambda: None,
        guard: files.Guard = nullcontext,
    ) -> None:
        self.directory_id = ""
        self._check, self._guard = check, guard
        self._paths = {kind: os.path.join(dir_path, kind) for kind in KINDS}
        self._lock = threading.Lock()
        # The contents of the files on the disk; changed under the lock.
        # A file is not rewritten if its contents would stay the same.
        self._on_disk: dict[str, Offsets | None] = dict.fromkeys(KINDS)
        self._on_disk[HIGH_WATERMARKS] = NOTHING
        # Inode, time and size of the file of high watermarks that was read last.
        self._seen: tuple[int, ...] = ()
        # The high watermarks that must be lowered, collected while a start opens many logs.
        # If this field is None, a high watermark is lowered on the disk immediately.
        self._to_lower: dict[TopicPartition, int] | None = None

    def load(self) -> list[str]:
        """Read the checkpoints from disk; return a warning for each unusable file.

        Raises:
            OSError: the disk failed.
        """
        return [warning for kind in self._paths if (warning := self._load(kind))]

    def _load(self, kind: str) -> str:
        """Read one checkpoint; return a warning if the checkpoint is unusable, otherwise ""."""
        path, found, warning = self._paths[kind], None, ""
        try:
            found = checkpoint.read_offsets(path, kind, self.directory_id)
            if found is None and kind == HIGH_WATERMARKS:  # no log is replicated yet
                found = NOTHING
        except (CorruptCheckpointError, UnsupportedFormatError, PermissionError) as error:
            warning = f"{path} is not used: {error}"
        self._on_disk[kind] = found
        return warning

    def recovery_point(self, topic_partition: TopicPartition) -> int | None:
        """Return a replica's recovery point on the disk; None if it is unknown."""
        return (self._on_disk[RECOVERY_POINTS] or NOTHING).offsets.get(topic_partition)

    def log_start_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return a replica's log start offset on the disk; None if it is unknown."""
        return (self._on_disk[LOG_START_OFFSETS] or NOTHING).offsets.get(topic_partition)

    def high_watermark(self, topic_partition: TopicPartition, topic_id: bytes) -> int | None:
        """Return a replica's high watermark on the disk; None if unknown for this topic id."""
        found = self._on_disk[HIGH_WATERMARKS] or NOTHING
        if found.topic_ids.get(topic_partition) != topic_id:
            return None
        return found.offsets.get(topic_partition)

    def high_watermark_now(self, topic_partition: TopicPartition, topic_id: bytes) -> int | None:
        """Return a replica's high watermark; if the file was replaced, read the file first.

        A read-only view calls this method, because the owner of the log dir replaces the file.
        Raises OSError.
        """
        seen: tuple[int, ...] = ()
        with suppress(FileNotFoundError):
            facts = files.stat(self._paths[HIGH_WATERMARKS])
            seen = facts.st_ino, facts.st_mtime_ns, facts.st_size
        if seen != self._seen:
            self._load(HIGH_WATERMARKS)
            self._seen = seen
        return self.high_watermark(topic_partition, topic_id)

    def topic_ids(self, topic_partition: TopicPartition) -> tuple[bytes | None, bytes | None]:
        """Return the topic ids stored with a replica's recovery point and log start offset.

        An unknown topic id is None.
        """
        points, starts = (
            (self._on_disk[kind] or NOTHING).topic_ids.get(topic_partition)
            for kind in (RECOVERY_POINTS, LOG_START_OFFSETS)
        )
        return points, starts

    def write(
        self,
        kind: str,
        collect: Callable[[], Mapping[TopicPartition, int]],
        topic_ids: Callable[[], Mapping[TopicPartition, bytes]] = dict,
    ) -> bool:
        """If a checkpoint has changed, replace it durably; return whether it was written.

        Args:
            collect: a function that returns the offsets. The function is called under the lock, so
                that an offset which `forget` has just removed is not written again.
            topic_ids: a function that returns the topic ids of the replicas.
        """
        with self._lock:
            found = Offsets(collect(), topic_ids())
            if self._on_disk[kind] == found:
                return False
            self._replace(kind, found)
            return True

    def forget(self, topic_partition: TopicPartition) -> None:
        """Durably remove a replica's offsets, before another replica gets the same name."""
        self._wait_for_writer()
        with self._lock:
            self._drop_all(topic_partition)

    def lower(self, kind: str, topic_partition: TopicPartition, offset: int) -> None:
        """If a replica's offset in a checkpoint is above `offset`, durably lower it to `offset`.

        The caller must drop the records at or after `offset` only after this call.

        Raises:
            OSError: the disk failed, or is full.
        """
        self._wait_for_writer()
        with self._lock:
            found = self._on_disk[kind] or NOTHING
            if found.offsets.get(topic_partition, -1) > offset:
                self._replace(
                    kind, found._replace(offsets={**found.offsets, topic_partition: offset})
                )

    def lower_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        """Durably lower a replica's high watermark: now, or in `lower_gathered`. Raises OSError.

        If the disk is full, the file with all high watermarks is removed. Without this file, no
        record counts as replicated.
        """
        self._wait_for_writer()
        with self._lock:
            if self._to_lower is not None:
                self._to_lower[topic_partition] = offset
            else:
                self._lower_high_watermarks({topic_partition: offset})

    def gather_lowered(self) -> None:
        """Begin to collect the high watermarks that must be lowered.

        The caller must call `lower_gathered` before it serves any log.
        """
        with self._lock:
            self._to_lower = {}

    def lower_gathered(self) -> None:
        """Durably lower all collected high watermarks with one write.

        Raises:
            OSError: the disk failed; none of the logs may be served.
        """
        with self._lock:
            lowered, self._to_lower = self._to_lower, None
            if lowered:
                self._lower_high_watermarks(lowered)

    def _lower_high_watermarks(self, lowered: Mapping[TopicPartition, int]) -> None:
        """Durably lower the given high watermarks; the caller must hold the lock."""
        found = self._on_disk[HIGH_WATERMARKS] or NOTHING
        offsets = {key: min(at, lowered.get(key, at)) for key, at in found.offsets.items()}
        self._replace_or_remove(HIGH_WATERMARKS, found._replace(offsets=offsets))

    def _wait_for_writer(self) -> None:
        """Wait until no thread writes a checkpoint. Raises LogStoreError if the log dir fails."""
        while not self._lock.acquire(timeout=WAIT_SECONDS):
            self._check()
        self._lock.release()

    def _drop_all(self, topic_partition: TopicPartition) -> None:
        for kind, found in self._on_disk.items():
            if found is None or topic_partition in found.offsets:
                self._drop(kind, topic_partition)

    def _drop(self, kind: str, topic_partition: TopicPartition) -> None:
        """Write a checkpoint file without one replica; if the disk is full, remove the file.

        The caller must hold the lock.
        """
        found = self._on_disk[kind] or NOTHING
        offsets, topic_ids = dict(found.offsets), dict(found.topic_ids)
        offsets.pop(topic_partition, None)
        topic_ids.pop(topic_partition, None)
        self._replace_or_remove(kind, Offsets(offsets, topic_ids))

    def _replace_or_remove(self, kind: str, found: Offsets) -> None:
        try:
            self._replace(kind, found)
        except OSError as error:
            if verdict_of(error) is not Verdict.FULL:
                raise
            files.remove_if_there(self._paths[kind])
            files.sync_dir(os.path.dirname(self._paths[kind]))
            self._on_disk[kind] = None

    def _replace(self, kind: str, found: Offsets) -> None:
        checkpoint.write_offsets(self._paths[kind], kind, self.directory_id, found, self._guard)
        self._on_disk[kind] = found
