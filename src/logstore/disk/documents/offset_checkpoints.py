"""Keep the two offsets checkpoints of a log dir: recovery points and log start offsets.

A recovery point in a checkpoint means that all records below it are durable. So it is written only
after the flush. If a log is deleted, its recovery point is removed from the disk *before* another
log takes the same name. If the disk is too full to rewrite the checkpoint for that, the whole file
is removed: an unknown recovery point is always safe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from logstore.disk import files
from logstore.disk.documents import checkpoint
from logstore.disk.documents.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS, Offsets
from logstore.disk.failures import Verdict, verdict_of
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

WAIT_SECONDS = 0.25
NOTHING = Offsets({}, {})


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
        self._paths = {
            kind: os.path.join(dir_path, kind) for kind in (RECOVERY_POINTS, LOG_START_OFFSETS)
        }
        self._lock = threading.Lock()
        # The contents on disk, so that an unchanged file is not rewritten; changed under the lock.
        self._on_disk: dict[str, Offsets | None] = {
            RECOVERY_POINTS: None,
            LOG_START_OFFSETS: None,
        }

    def load(self) -> list[str]:
        """Read both checkpoints from disk; returns a warning for each unusable file.

        Raises:
            OSError: the disk failed.
        """
        warnings = []
        for kind, path in self._paths.items():
            found = None
            try:
                found = checkpoint.read_offsets(path, kind, self.directory_id)
            except (CorruptCheckpointError, UnsupportedFormatError, PermissionError) as error:
                warnings.append(f"{path} is not used: {error}")
            self._on_disk[kind] = found
        return warnings

    def recovery_point(self, topic_partition: TopicPartition) -> int | None:
        """Give the recovery point on disk; None if it is unknown."""
        return (self._on_disk[RECOVERY_POINTS] or NOTHING).offsets.get(topic_partition)

    def log_start_offset(self, topic_partition: TopicPartition) -> int | None:
        """Give the log start offset on disk; None if it is unknown."""
        return (self._on_disk[LOG_START_OFFSETS] or NOTHING).offsets.get(topic_partition)

    def topic_ids(self, topic_partition: TopicPartition) -> tuple[bytes | None, bytes | None]:
        """Give the topic ids of a replica's recovery point and log start; None if unknown."""
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
        """Replace one checkpoint durably, if it changed; returns whether it was written.

        Args:
            collect: gives the offsets. It is called under the lock, so an offset that was just
                forgotten is not written again.
            topic_ids: gives the topic ids of the replicas.
        """
        with self._lock:
            found = Offsets(collect(), topic_ids())
            if self._on_disk[kind] == found:
                return False
            self._replace(kind, found)
            return True

    def forget(self, topic_partition: TopicPartition) -> None:
        """Durably remove a replica's offsets, before another replica takes its name."""
        self._wait_for_writer()
        with self._lock:
            self._drop_all(topic_partition)

    def lower(self, topic_partition: TopicPartition, recovery_point: int) -> None:
        """Lower a recovery point durably, before a truncation drops records; never raise it.

        Raises:
            OSError: the disk failed, or is full.
        """
        self._wait_for_writer()
        with self._lock:
            found = self._on_disk[RECOVERY_POINTS] or NOTHING
            if found.offsets.get(topic_partition, -1) > recovery_point:
                offsets = {**found.offsets, topic_partition: recovery_point}
                self._replace(RECOVERY_POINTS, found._replace(offsets=offsets))

    def _wait_for_writer(self) -> None:
        """Wait until no thread writes; raises LogStoreError if the writing thread hangs."""
        while not self._lock.acquire(timeout=WAIT_SECONDS):
            self._check()
        self._lock.release()

    def _drop_all(self, topic_partition: TopicPartition) -> None:
        for kind, found in self._on_disk.items():
            if found is None or topic_partition in found.offsets:
                self._drop(kind, topic_partition)

    def _drop(self, kind: str, topic_partition: TopicPartition) -> None:
        """Write the file without one replica; if the disk is full, remove the file.

        The caller holds the lock.
        """
        found = self._on_disk[kind] or NOTHING
        offsets, topic_ids = dict(found.offsets), dict(found.topic_ids)
        offsets.pop(topic_partition, None)
        topic_ids.pop(topic_partition, None)
        try:
            self._replace(kind, Offsets(offsets, topic_ids))
        except OSError as error:
            if verdict_of(error) is not Verdict.FULL:
                raise
            files.remove_if_there(self._paths[kind])
            files.sync_dir(os.path.dirname(self._paths[kind]))
            self._on_disk[kind] = None

    def _replace(self, kind: str, found: Offsets) -> None:
        checkpoint.write_offsets(self._paths[kind], kind, self.directory_id, found, self._guard)
        self._on_disk[kind] = found
