"""Write batches to a log's active segment, roll it, and make it durable.

One thread writes at a time, under `_lock`; readers take no lock (see `segment_reader`). Syncs
happen under `_flush_lock` alone, so neither appends nor reads wait for the disk. Code that needs
both locks takes `_flush_lock` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from logstore.arguments import known_as
from logstore.config import LogConfig
from logstore.disk import files
from logstore.errors import LogDirError, LogDirSuspectError, LogStoreError
from logstore.format import layouts
from logstore.format.columnar.columns import Buffer
from logstore.log.segments.segment import Segment
from logstore.log.subscription import LogEvent, tell
from logstore.log.write import batch_group, encode, flush, roll
from logstore.log.write.hung_locks import NOT_WRITING, held, reclaim
from logstore.log.write_state import RELATIVE_OFFSET_MAX, WriteState

if TYPE_CHECKING:
    from logstore.format.layouts import AnyPayload


@known_as("Log")
class LogWriter(WriteState):
    """The writing half of a log: batches in, bytes on the disk; `Log` is the public face."""

    def _check_appendable(self) -> None:
        """Refuse to append; called under the lock. A full disk is asked for its space again."""
        self._check_writable()
        if self._log_dir.is_refusing_appends:
            with held(self, "_lock"):
                self._log_dir.check_appendable()

    # --- the append itself --------------------------------------------------------------------

    def _build(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        timestamps: encode.Timestamps,
        headers: Sequence[Any] | None,
        *,
        is_gathered: bool = False,
    ) -> AnyPayload:
        """Encode records as one batch.

        Args:
            is_gathered: each record was found small enough when it joined the batch; a smaller
                max_message_bytes since then does not refuse what was accepted.
        """
        codec_id, is_log_append_time, magic = self._encoding
        payload = encode.build(
            values,
            keys,
            timestamps,
            headers,
            now_ms=self._now_ms(),
            codec_id=codec_id,
            is_log_append_time=is_log_append_time,
            magic=magic,
        )
        if not is_gathered:
            encode.check_size(payload, self._max_message_bytes, self._expansion_bytes_max)
        return payload

    def _append_payload(self, payload: AnyPayload, receipt: list[int] | None = None) -> int:
        """Encode and write one batch; give its base offset.

        Args:
            receipt: its first item becomes the base offset as soon as the records are in the log,
                so that a caller that is interrupted afterwards knows it.
        """
        size = payload.size_bytes
        with self._lock:
            self._check_appendable()
            if encode.magic_of(payload) != self._magic:
                offset = self._append_foreign(payload)
            else:
                active, now_ms = self._active, self._now_ms()
                if active.size_bytes + size > self._room_bytes or now_ms >= self._roll_at_ms:
                    active = self._make_room(size, now_ms >= self._roll_at_ms)
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
        if last_offset >= self._flush_at or self._waiters or self._subscriptions:
            self._after_append(last_offset)
        return offset

    def _append_foreign(self, payload: AnyPayload) -> int:
        """Write a batch that was encoded before `record_format` changed; the lock is held."""
        offset, epoch = self._active.end_offset, self._leader_epoch
        batch = batch_group.PlacedBatch(
            layouts.frame(payload, offset, epoch),
            payload.size_bytes,
            offset,
            offset + payload.last_offset_delta,
            payload.max_timestamp,
            epoch,
            encode.magic_of(payload),
        )
        self._write_batches([batch])
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
        """Write one batch after the last and publish it; called under the lock."""
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
                    self._epochs_changed += 1
            highest = max(active.max_timestamp, max_timestamp)
        except OSError as error:
            failure = self._failed(error)
            try:
                raise (self._undo_write(position) or failure) from error
            finally:
                del failure  # its traceback holds this frame, and the frame holds a descriptor
        except BaseException:  # interrupted: readers must not find what was not published
            self._half_made, self._room_bytes = roll.TORN, 0  # this line calls nothing
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
        """Write several batches after the last, all or none; called under the lock."""
        batch_group.write(self, batches)

    def _make_room(self, size_bytes: int, is_due: bool, magic: int = 0) -> Segment:
        """Roll if a batch of a layout does not fit into the active segment; the lock is held."""
        return roll.make_room(self, size_bytes, is_due, magic)

    def _roll(self, base_offset: int) -> None:
        """Seal the active segment and begin one at `base_offset`; called under the lock."""
        roll.roll(self, base_offset)

    def _after_append(self, offset: int) -> None:
        """Wake threads that wait for records; flush if flush_messages or open files require it."""
        if self._waiters:
            self._arrivals.wake()
        if self._subscriptions:
            tell(self._subscriptions, LogEvent.APPENDED)
        if offset >= self._flush_at:
            self._flush_appended(offset + 1)

    # --- durability -----------------------------------------------------------------------------

    def flush(self) -> int:
        """Make every record appended so far durable; returns the new recovery point.

        Raises:
            LogDirOfflineError: the sync failed, so the log dir is offline now; it is not retried.
        """
        self._check()
        self._flush_to(self.log_end_offset)
        return self._recovery_point

    def _flush_to(self, offset: int) -> None:
        """Sync in order of offset what is not durable below `offset`; share a running sync."""
        if self._recovery_point < offset or self._names_changed:
            flush.flush_to(self, offset)

    def _flush_appended(self, offset: int) -> None:
        """Make what was just appended durable; after an error, do not append it again."""
        try:
            self._flush_to(offset)
        except LogStoreError as error:
            if not error.retriable:
                raise
            if isinstance(error, LogDirSuspectError):
                more = (
                    f"; appended up to offset {offset}, which may be in the log or not: flush later"
                )
                raise self._log_dir.suspect_error(more, retriable=False) from error
            reason = f"appended up to offset {offset}, not flushed: flush again ({error})"
            raise LogDirError(path=self.log_dir, reason=reason) from error

    def _set_config(self, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
        """Replace the configuration durably, and put it in force; raises as an append does."""
        from logstore.log.write import configuration

        return configuration.set_config(self, change)

    def _set_metadata(self, **changes: Any) -> None:
        """Replace `partition.metadata` durably; raises LogStoreError."""
        flush.set_metadata(self, changes)
