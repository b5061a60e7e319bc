"""Write batches to a log's active segment, roll it, and make it durable.

One thread writes at a time, under `_lock`; readers take no lock (see `reader`). Syncs happen under
`_flush_lock` alone, so neither appends nor reads wait for the disk; `_flush_lock` is taken first
where both are needed.

Invariants: log_start_offset <= recovery_point <= log_end_offset once flushed; the last segment of
the view is the active one; `_writer` is its descriptor, held while it has unflushed bytes; every
segment with bytes that may not be on the disk is in `_unflushed` or is the active one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import ref

from logstore.arguments import known_as
from logstore.config import LogConfig
from logstore.disk import files
from logstore.disk.bell import Bell
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError, LogDirSuspectError, LogStoreError, ReplicaOfflineError
from logstore.format import compression, layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer
from logstore.format.expansion import expansion_bytes
from logstore.log.environment import LogEnvironment
from logstore.log.epochs import LeaderEpochs, OfLog
from logstore.log.metadata import PartitionMetadata
from logstore.log.reader import LogReader
from logstore.log.recovery.report import RecoveryEntry
from logstore.log.replica import view_of
from logstore.log.segments.cache import Handle
from logstore.log.segments.scan import magic_of
from logstore.log.segments.segment import WRITER, Segment
from logstore.log.write import batch_group, encode, flush, roll
from logstore.log.write.batch_group import POSITION_MAX, RELATIVE_OFFSET_MAX, UNFLUSHED_SEGMENTS_MAX
from logstore.log.write.hung_locks import NOT_WRITING, held, keeping, reclaim

if TYPE_CHECKING:
    from logstore.format.layouts import AnyPayload
    from logstore.log.write.group_commit import GroupCommit

NEVER = 2**63


@known_as("Log")
class LogWriter(LogReader):
    """Give the writing half of a log: batches in, bytes on the disk; `Log` gives it its face."""

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(log_dir, directory, metadata, environment)
        config: LogConfig = metadata.config
        self._segment_bytes = config.segment_bytes
        # A batch that ends behind it begins a segment: `_segment_bytes`, or 0 when others say so.
        self._room_bytes = self._segment_bytes
        self._segment_ms = config.segment_ms or NEVER
        self._index_interval_bytes = config.index_interval_bytes
        self._index_entries_max = config.segment_index_bytes // 8
        self._bound_batches(config, environment)
        self._codec_id = compression.CODEC_IDS[config.compression_type]
        self._magic = layouts.MAGICS[config.record_format]
        # The layout of the active segment, if it is another one than the configured; else 0.
        self._foreign_magic = 0
        layouts.layout_of(self._magic, directory).require(self._codec_id)
        self._is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        is_columnar = self._magic == columnar.MAGIC
        self._is_plain = is_columnar and not self._codec_id and not self._is_log_append_time
        self._flush_messages = config.flush_messages or NEVER
        self._now_ms = environment.clock.now_ms
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._appended = threading.Lock()
        self._arrivals = Bell()
        self._waiters = self._arrivals.waiters
        self._commit: GroupCommit | None = None
        self.recovery = RecoveryEntry(self.topic, self.partition, log_dir.path)
        self._refusal = ""
        # Where an append is writing, and the locks that `hung_locks` holds for a hung thread.
        self._writing = NOT_WRITING
        self._in_custody: set[str] = set()
        self._keepers: set[ref[keeping]] = set()
        self._kept = ""
        # Set with `_unavailable`: only its log dir is gone, and a move may still save the log.
        self._is_left_by_dir = False
        # Set by a close that flushed everything: there is nothing left to do for this log then.
        self.is_closed_whole = False
        self._epochs = LeaderEpochs(directory)
        self._epochs_changed = False
        # The log start that the file of the epochs names besides; None: only one file has it.
        self._confirmed_start: int | None = metadata.log_start_offset
        self._leader_epoch = 0
        self._active = Segment(directory, metadata.log_start_offset)
        self._writer: Handle | None = None
        self._half_made: tuple[str, ...] = ()  # files with bytes that are in no view; see `rolling`
        self._roll_at_ms = NEVER
        self._indexed_position = 0
        self._names_changed = False
        self._unflushed: list[flush.Unflushed] = []
        self._checkpointed_bytes = 0
        self._recovery_point = 0
        self._flush_at = NEVER
        self._flushed_ms = self._now_ms()

    def _bound_batches(self, config: LogConfig, environment: LogEnvironment) -> None:
        """Say how large batches may become: stored, and in memory."""
        self._max_message_bytes = config.max_message_bytes
        self._expansion_bytes_max = environment.record_expansion_bytes_max
        # What of small appends goes into one batch. Each record adds at least a sixteenth of the
        # memory that it needs once it is decoded (`encode.size_max`), so no batch needs too much.
        self._gathered_bytes_max = min(
            config.max_message_bytes - encode.BATCH_OVERHEAD_BYTES, self._expansion_bytes_max // 16
        )
        # The largest batch of one record without headers that is within both bounds.
        self._plain_bytes_max = min(
            config.max_message_bytes,
            self._expansion_bytes_max - expansion_bytes(0, 1) + columnar.OVERHEAD_BYTES,
        )

    def _check_writable(self) -> None:
        """Refuse to write; called under the lock."""
        self._check()
        if self._refusal:
            raise ReplicaOfflineError(
                topic=self.topic, partition=self.partition, reason=self._refusal
            )

    def _check_appendable(self) -> None:
        """Refuse to append; called under the lock. A full disk is asked whether it still is."""
        self._check_writable()
        if self._log_dir.is_refusing_appends:
            with held(self, "_lock"):
                self._log_dir.check_appendable()

    # --- how an append is done ------------------------------------------------------------------

    def _append_payload(self, payload: AnyPayload, receipt: list[int] | None = None) -> int:
        """Frame and write one batch; give its base offset.

        Args:
            receipt: its first item becomes the base offset as soon as the records stand, so that
                who is interrupted afterwards knows.
        """
        size = payload.size_bytes
        with self._lock:
            self._check_appendable()
            active = self._active
            if active.size_bytes + size > self._room_bytes or self._now_ms() >= self._roll_at_ms:
                active = self._make_room(size, self._now_ms() >= self._roll_at_ms)
            offset = active.end_offset
            buffers = layouts.frame(payload, offset, self._leader_epoch)
            self._write(
                active,
                buffers,
                offset,
                payload.last_offset_delta,
                payload.max_timestamp,
                self._leader_epoch,
            )
            if receipt is not None:
                receipt[0] = offset
        last_offset = offset + payload.last_offset_delta
        if last_offset >= self._flush_at or self._waiters:
            self._after_append(last_offset)
        return offset

    def _write(
        self,
        active: Segment,
        data: bytes | list[Buffer],
        base_offset: int,
        last_offset_delta: int,
        max_timestamp: int,
        epoch: int,
    ) -> None:
        """Write one batch behind the last and publish it; called under the lock."""
        self._writing = position = active.size_bytes
        try:
            writer = self._writer
            if writer is None:
                writer = self._take_writer(active)
            fd = writer.fd
            if type(data) is bytes:
                size = len(data)
                written = files.pwrite(fd, data, position)
                if written != size:
                    files.write_fully(fd, [memoryview(data)[written:]], position + written)
            else:
                size = files.write_fully(fd, data, position)  # type: ignore[arg-type]
            if position - self._indexed_position >= self._index_interval_bytes or not position:
                self._add_index_entry(active, base_offset, position)
            if active.last_epoch != epoch:
                active.last_epoch = epoch
                if self._epochs.note(epoch, base_offset):
                    self._epochs_changed = True
            highest = max(active.max_timestamp, max_timestamp)
        except OSError as error:
            failure = self._failed(error)
            try:
                raise (self._undo_write(position) or failure) from error
            finally:
                del failure  # its traceback holds this frame, and the frame a descriptor
        except BaseException:  # interrupted: nobody is to find what was not published
            self._half_made, self._room_bytes = roll.TORN, 0  # calls nothing
            self._undo_write(position)
            raise
        finally:
            self._writing = NOT_WRITING
            if self._in_custody:
                reclaim(self, ("_lock",))
        active.max_timestamp = highest
        active.last_position = position
        active.size_bytes = position + size
        active.end_offset = base_offset + last_offset_delta + 1
        if last_offset_delta and active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX:
            self._room_bytes = 0

    def _write_batches(self, batches: batch_group.Group) -> None:
        """Write several batches behind the last, all or nothing; called under the lock."""
        batch_group.write(self, batches)

    def _take_writer(self, active: Segment) -> Handle:
        """Hold the active segment's descriptor from its first unflushed byte on (R6)."""
        writer = self._writer = active.writer(self._environment)
        dirty = self._environment.dirty
        dirty.add(self)
        if len(dirty) > self._environment.handles.capacity:
            self._flush_at = 0  # too many to hold: this append flushes and lets go
        self._leave_if_detached(active)
        return writer

    def _leave_if_detached(self, segment: Segment) -> None:
        """Keep nothing open behind the back of who let go of the log; the lock is held."""
        if self._unavailable is not None:
            self._unflushed, self._writer = [], None
            self._environment.dirty.discard(self)
            segment.leave(self._environment)

    def _add_index_entry(self, active: Segment, base_offset: int, position: int) -> None:
        index, time_index = active.index, active.time_index
        assert index is not None and time_index is not None
        if not position:
            if self._segment_ms < NEVER:
                active.first_time_ms = self._now_ms()
                self._roll_at_ms = active.first_time_ms + self._segment_ms
            if len(index):
                return
        relative_offset = base_offset - active.base_offset
        index.append(relative_offset, position)
        if position:
            time_index.append(active.max_timestamp, relative_offset)
        self._indexed_position = position
        if len(index) >= self._index_entries_max:
            self._room_bytes = 0

    def _undo_write(self, position: int) -> LogStoreError | None:
        """Cut off what a failed write left behind the last whole batch (R7)."""
        if not self._log_dir.is_offline:
            try:
                if self._writer is not None:
                    files.ftruncate(self._writer.fd, position)
            except OSError as second:
                return self._log_dir.flush_failed(second, self._active.log_path)
        return None

    def _make_room(self, size_bytes: int, is_due: bool, magic: int = 0) -> Segment:
        """Roll when a batch of a layout does not fit into the active segment; the lock is held."""
        if self._half_made:
            roll.undo(self)
        active = self._active
        index = active.index
        assert index is not None
        if active.size_bytes and (
            is_due
            or (magic or self._magic) != (self._foreign_magic or self._magic)
            or active.size_bytes + size_bytes > min(self._segment_bytes, POSITION_MAX)
            or len(index) >= self._index_entries_max
            or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
        ):
            self._roll(active.end_offset)
        return self._active

    def _roll(self, base_offset: int) -> None:
        """Seal the active segment and begin one at `base_offset`; called under the lock.

        The new file's name and the sealed one's bytes are made durable by the next flush, before
        anything in the new segment is acknowledged as durable (R2).
        """
        segment = Segment(self._directory, base_offset)
        try:
            if self._half_made:
                roll.undo(self)
            # Room for no record: the next append, however small, asks `_make_room`, which tidies.
            self._half_made, self._room_bytes = (segment.log_path,), 0
            with held(self, "_lock"):
                writer = Handle(roll.create_file(segment.log_path))
            self._environment.handles.put(segment.cached, WRITER, writer, 1)
            self._names_changed = True
            if self._active.size_bytes:
                self._unflushed.append((self._active, self._writer))
            if len(self._unflushed) > UNFLUSHED_SEGMENTS_MAX:
                self._flush_at = 0
            self._activate([*self._view[0], segment])
            self._leave_if_detached(segment)
        except OSError as error:
            raise self._failed(error) from error
        except BaseException:  # interrupted: the name is to be free for the next try
            if self._active is not segment:
                files.remove_if_there(segment.log_path)
            raise

    def _activate(self, segments: list[Segment], foreign_magic: int | None = None) -> None:
        """Make the last of some segments the active one, and show them to readers."""
        active = segments[-1]
        if active.index is None or active.time_index is None:
            active.begin_indexes()
        if foreign_magic is None:
            handle = active.handle(self._environment) if active.size_bytes else None
            magic = self._magic if handle is None else magic_of(handle.fd)
            foreign_magic = 0 if magic == self._magic else magic
        room_bytes = self._room_in(active, foreign_magic)
        view, roll_at_ms = view_of(segments), NEVER
        if active.size_bytes and self._segment_ms < NEVER:
            active.first_time_ms = self._now_ms()
            roll_at_ms = active.first_time_ms + self._segment_ms
        index = active.index
        indexed_position = index.positions[len(index) - 1] if index else 0
        # Nothing is called from here on, so that no interrupt leaves half of it.
        self._active, self._writer, self._view = active, None, view
        self._roll_at_ms, self._indexed_position = roll_at_ms, indexed_position
        self._checkpointed_bytes, self._room_bytes = 0, room_bytes
        self._foreign_magic, self._half_made = foreign_magic, ()

    def _room_in(self, active: Segment, foreign_magic: int) -> int:
        """Say how many bytes a segment takes before `_make_room` has to be asked."""
        is_full = (
            len(active.index or ()) >= self._index_entries_max
            or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
        )
        return 0 if is_full or foreign_magic else self._segment_bytes

    def _after_append(self, offset: int) -> None:
        """Wake who waits for records; flush when flush_messages or the open files ask for it."""
        if self._waiters:
            self._arrivals.wake()
        if offset >= self._flush_at:
            self._flush_appended(offset + 1)

    # --- durability -----------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Below it everything is flushed."""
        return self._recovery_point

    def flush(self) -> int:
        """Make every record appended so far durable; give the new recovery point.

        Raises:
            LogDirOfflineError: the sync failed, so the log dir is offline now; it is not retried.
        """
        self._check()
        self._flush_to(self.log_end_offset)
        return self._recovery_point

    def _flush_to(self, offset: int) -> None:
        """Sync in order of offset whatever is not durable below `offset`; share a running sync."""
        if self._recovery_point < offset or self._names_changed:
            flush.flush_to(self, offset)

    def _flush_appended(self, offset: int) -> None:
        """Make what was just appended durable; no error of this is one to append it again for."""
        try:
            self._flush_to(offset)
        except LogStoreError as error:
            if not error.retriable:
                raise
            if isinstance(error, LogDirSuspectError):
                more = f"; appended up to offset {offset}, which may stand or not: flush later"
                raise self._log_dir.suspect_error(more, retriable=False) from error
            reason = f"appended up to offset {offset}, not flushed: flush again ({error})"
            raise LogDirError(path=self.log_dir, reason=reason) from error

    def _count_from_flushed(self) -> None:
        """Say at which append `flush_messages` will flush next."""
        self._flush_at = self._recovery_point + self._flush_messages - 1

    def _of_log(self, log_start_offset: int | None) -> OfLog:
        return OfLog(self.topic, self.partition, self.topic_id, log_start_offset)

    def _set_metadata(self, **changes: Any) -> None:
        """Replace `partition.metadata` durably; raises LogStoreError."""
        flush.set_metadata(self, changes)
