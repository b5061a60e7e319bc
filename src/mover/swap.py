"""Put a copy in the place of its source: the only step of a move that holds the log's lock.

    before the lock   remove the partition from the target's checkpoints; make the epochs, the data
                      and the file names of the copy durable; write the intent into the source's
                      metadata and the caught-up mark into the copy's metadata; then copy the
                      records that were appended meanwhile
    1  under the lock copy the last bytes, and sync them with a probe
    2                 rename the source to `.delete`, sync its log dir with a probe
    3                 rename the `.move` to the live name, sync its log dir with a probe
    4                 point the log at the new segments
    after the lock    remove the marks of the move from the new metadata; purge the `.delete`
                      directory

If a crash comes before the rename of the source (step 2) is durable, the source stays live. After
such a crash, the `.move` directory is still only a copy, even if it has the caught-up mark. After a
crash between the two renames (steps 2 and 3), no directory has the live name, and the next start
finishes the swap. The start finishes the swap only if it finds the source's `.delete` name, the
intent in the source's metadata, and the caught-up mark of the copy. If the start finds all three,
the copy is complete, because the source is renamed only when the copy is complete. In whatever
order the disks sync, two directories with a live name never have the same generation (KIP-113
section 3; ADR 7).

If a call fails before the rename of the source, the source stays live. If the rename of the source
fails, the disk of the source shows which name the source has. If the rename of the copy (step 3)
fails, the source gets its live name back, and a new generation. This generation outranks the copy
if the rename of the copy reaches the disk later.
"""

from __future__ import annotations

import os

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.log import relocation
from logstore.log.log import Log
from logstore.log.metadata import Moving, Superseded
from logstore.log.segments.cache import Handle
from logstore.names import TopicPartition, delete_dir_name
from mover.copying.catch_up import copy_all, is_caught_up
from mover.copying.copy_segments import Ends
from mover.copying.target import Target

# At most this many bytes are copied under the lock.
# Any disk writes so few bytes in some milliseconds.
LOCKED_BYTES_MAX = 64 << 10
FLUSHES_MAX = 8


class Swap:
    """Try once to put a copy in the place of its source.

    Attributes:
        is_undecided: True while only the next start can find out which of the two copies is the
            log. While `is_undecided` is True, no code is allowed to remove either copy.
    """

    def __init__(self, log: Log, target: Target, ends: Ends, key: TopicPartition) -> None:
        self.log = log
        self.target = target
        self.ends = ends
        self.key = key
        self.is_undecided = False
        self.live_path = log.directory
        self.new_path = target.live_path
        self.doomed_path = os.path.join(
            ends.source.path, delete_dir_name(*key, os.urandom(16).hex())
        )

    # --- before the lock --------------------------------------------------------------------------

    def prepare(self) -> None:
        """Do every step that needs no lock; raise the errors that `copy_all` raises."""
        target, log_dir = self.target, self.ends.target
        try:
            log_dir.check_place()
            # The checkpoints may have entries of a deleted replica with the same name.
            log_dir.checkpoints.forget(self.key)
        except OSError as error:
            raise log_dir.failed(error, self.new_path, *self.key) from error
        target.check_vacant()
        self._epochs = relocation.epochs_of(self.log)
        whose = relocation.whose_epochs(self.log)
        target.write_epochs(self._epochs, whose)
        snapshot = relocation.snapshot_of(self.log)
        generation = relocation.metadata_of(self.log).generation + 1
        relocation.write_marks(
            self.log,
            Moving(target.move_id, log_dir.directory_id),
            Superseded(generation, log_dir.directory_id),
        )
        self._metadata = relocation.metadata_of(self.log)
        if relocation.whose_epochs(self.log) != whose:  # the log start offset has just risen
            target.write_epochs(self._epochs, relocation.whose_epochs(self.log))
        copied = self._follow()
        if snapshot is not None:  # the copy now has all records before the snapshot's offset
            target.write_snapshot(snapshot, self._metadata)
        metadata = relocation.with_high_watermark(self.log, self._metadata, copied)
        self._clean = target.mark_caught_up(metadata, copied)
        self._follow()

    def _follow(self) -> int:
        """Copy and sync until few bytes are missing; return the end offset of the copy."""
        for _ in range(FLUSHES_MAX):
            end_offset = self.log.log_end_offset
            missing = copy_all(self.log, self.target, self.ends)
            self.target.sync()
            if missing <= LOCKED_BYTES_MAX:
                break
        return end_offset

    # --- under the lock ---------------------------------------------------------------------------

    def run(self) -> bool:
        """Put the copy in the source's place; return False if the copy must catch up again.

        The copy must catch up again if the log has grown or changed too much.

        Raises:
            LogStoreError: a disk failed. The log still uses the source, except if `is_undecided` is
                True.
        """
        self.prepare()
        source_names = self._open_dir(self.ends.source)
        target_names = self._open_dir(self.ends.target)
        with relocation.held(self.log):
            if not self._take_the_rest():
                return False
            relocation.hide(self.log)
            self.is_undecided = True
            self._rename_source(source_names)
            self._rename_target(target_names, source_names)
            segments = self.target.segments(self.new_path)
            relocation.point_to(
                self.log,
                self.ends.target,
                self.new_path,
                self._clean,
                segments,
                self.target.snapshot_offset,
            )
            self.is_undecided = False
        return True

    def _open_dir(self, log_dir: LogDir) -> Handle:
        """Open a directory before the lock is taken, because descriptors may run out."""
        try:
            return Handle(files.open_file(log_dir.path, files.DIRECTORY))
        except OSError as error:
            raise log_dir.failed(error) from error

    def _take_the_rest(self) -> bool:
        """Copy and sync the last bytes.

        Return False if too many bytes are left, or if the log changed.
        """
        self.ends.target.check_current()  # a target that came back may be an old copy of the disk
        segments = relocation.segments_of(self.log)
        if relocation.metadata_of(self.log) != self._metadata:
            return False  # the log was truncated, or the metadata of the copy is out of date
        if relocation.epochs_of(self.log) != self._epochs:
            return False  # a leader epoch began after the epochs were copied to the target
        if relocation.has_producers(self.log) and self.target.snapshot_offset is None:
            return False  # the log got its first producer after `prepare`, or the copy was cut
        if [segment.base_offset for segment in segments] != sorted(self.target.copies):
            # The log rolled, and the name of the new segment's file is not durable yet.
            return False
        copied = sum(copy.position for copy in self.target.copies.values())
        if sum(segment.size_bytes for segment in segments) - copied > LOCKED_BYTES_MAX:
            return False
        copy_all(self.log, self.target, self.ends, is_throttled=False)
        self.target.sync()
        return is_caught_up(segments, self.target)

    def _rename_source(self, names: Handle) -> None:
        source = self.ends.source
        try:
            files.rename(self.live_path, self.doomed_path)
        except OSError as error:
            failure = source.failed(error, self.live_path, *self.key)
            if source.is_offline:
                raise failure from error
            if not self._stands(self.live_path):
                raise self._lose(failure) from error
            self._stay()
            raise failure from error
        try:
            files.sync_names(names.fd)
        except OSError as error:
            # A failed sync takes the log dir OFFLINE.
            raise source.failed(error, source.path) from error

    def _rename_target(self, names: Handle, source_names: Handle) -> None:
        target = self.ends.target
        try:
            files.rename(self.target.path, self.new_path)
            files.sync_names(names.fd)
        except OSError as error:
            failure = target.failed(error, self.target.path, *self.key)
            self._return(source_names)
            raise failure from error

    def _return(self, names: Handle) -> None:
        """Rename the source back; give it a generation that outranks a live copy at the target."""
        source = self.ends.source
        try:
            files.rename(self.doomed_path, self.live_path)
            files.sync_names(names.fd)
            relocation.bring_back(self.log, relocation.metadata_of(self.log).generation + 2)
        except OSError as error:
            failure = source.failed(error, self.doomed_path, *self.key)
            raise failure if source.is_offline else self._lose(failure) from error
        except LogStoreError as error:
            raise self._lose(error) from error
        self._stay()

    def _stay(self) -> None:
        relocation.show(self.log)
        self.is_undecided = False

    def _stands(self, path: str) -> bool:
        try:
            return files.exists(path)
        except OSError:
            return False

    def _lose(self, cause: LogStoreError) -> LogStoreError:
        """Stop serving the log, because only the next start can find out where the log is."""
        error = ReplicaOfflineError(
            topic=self.key.topic,
            partition=self.key.partition,
            reason="a swap stopped between its two renames; the next start finishes the swap: "
            f"{cause}",
        )
        self.log.detach(error)
        return error
