"""Define the public class of one partition's log; the packages beside this module do the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from logstore.arguments import callback, flag, function, whole
from logstore.config import LogConfig, parse_size
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogClosedError
from logstore.format.batch import Record
from logstore.log.reader import ReadableLog
from logstore.log.replicated_log import ReplicatedLog
from logstore.log.state import LogState
from logstore.log.subscription import LogEvent, Subscription, tell
from logstore.log.write import appending, encode, flush, roll, seal

if TYPE_CHECKING:
    from logstore.log.compaction.compaction import CompactionReport
    from logstore.log.recovery.repair import RepairReport
    from logstore.log.recovery.report import Problem
    from logstore.log.write.appender import Appender
    from logstore.log.write.group_commit import GroupCommit


class Log(ReplicatedLog, ReadableLog):
    """One partition's log in one log dir; `LogStore.create` and `LogStore.log` return it.

    Threads: all methods may be called from any thread at any time.
    """

    _state: LogState

    def __init__(self, state: LogState) -> None:
        """Use `LogStore.create` or `LogStore.log`."""
        super().__init__(state)

    # --- closing -------------------------------------------------------------------------

    def close(self, flush: bool = True) -> None:
        """Flush the log, write its last indexes and release all files; closing twice is allowed."""
        state = self._state
        if state.unavailable is not None:
            return
        if flush and not state.log_dir.is_offline:
            if state.half_made:
                with state.lock:
                    roll.undo(state)
            self.flush()
            if state.producers.are_known:
                from logstore.log.producers import snapshots

                snapshots.put_last(state)
            self.checkpoint(is_closing=True)
            state.is_closed_whole = True
        reason = f"the log {state.name} was closed: open the store again to use it"
        state.detach(LogClosedError(reason=reason))
        state.tell_end()

    @property
    def is_closed_whole(self) -> bool:
        """Whether a close flushed everything, so that the log needs no further flush."""
        return self._state.is_closed_whole

    # --- appending ------------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: encode.Timestamp | None = None,
        headers: encode.HeadersLike = (),
        durable: bool = False,
    ) -> int:
        """Append one record and return its offset.

        Args:
            value: None makes a tombstone.
            timestamp: ms since the epoch, or a datetime with a zone; now by default.
            headers: pairs of (name, value), or a mapping.
            durable: return only after the record is on the disk. Durable appends of several threads
                share their syncs.

        Raises:
            LogDirFullError: retriable; nothing was written.
            LogDirOfflineError: the disk failed; it is unknown whether the log has the record.
            LogDirError: the record was appended, but not flushed; possible only if `durable` is
                True.
            RecordTooLargeError, TypeError, ValueError: nothing was written.
        """
        if durable is not False and flag(durable, "durable"):
            commit = self._state.commit or self._group_commit()
            return commit.append(value, key, timestamp, headers)
        return appending.append_record(self._state, value, key, timestamp, headers)

    def _group_commit(self) -> GroupCommit:
        from logstore.log.write import group_commit

        return group_commit.of(self._state)

    def extend(
        self,
        values: Iterable[bytes | None] | Iterable[Record],
        *,
        keys: Iterable[bytes | None] | None = None,
        timestamps: encode.Timestamps = None,
        headers: Iterable[encode.HeadersLike | None] | None = None,
        durable: bool = False,
    ) -> range:
        """Append records as one batch, all or none, and return their offsets.

        Args:
            values: each is bytes or None. Instead, each value may be a Record, which has its own
                key, timestamp and headers.
            keys, headers: one item for each value.
            timestamps: one for each value, or one for all values; now by default.

        Raises:
            The errors that `append` raises.
        """
        flag(durable, "durable")
        columns = appending.columns_of(values, keys, timestamps, headers)
        payload = appending.build(self._state, *columns)
        return appending.append_range(self._state, payload, is_durable=durable)

    def append_arrow(self, batch: Any, *, durable: bool = False) -> range:
        """Append the rows of a pyarrow RecordBatch or Table as one batch (extra `arrow`).

        Columns: `value`, and optionally `key`, `timestamp` and `headers`. Any object with
        `__arrow_c_stream__` or `__arrow_c_array__` is accepted, for example a DataFrame.
        """
        from logstore.arrow import build_payload

        flag(durable, "durable")
        rules, now_ms = self._state.rules, self._state.now_ms()
        how = {**rules.encoding._asdict(), "requires_keys": rules.requires_keys}
        payload = build_payload(batch, now_ms=now_ms, **how)
        encode.check_size(payload, rules.max_message_bytes, rules.expansion_bytes_max)
        return appending.append_range(self._state, payload, is_durable=durable)

    def appender(
        self, linger: float = 0.005, max_bytes: int | str = "1MiB", durable: bool = False
    ) -> Appender:
        """Make an Appender, which gathers small appends into batches.

        Args:
            linger: for how many seconds a record waits for further records.
            max_bytes: a batch is sent if the next record would make it larger than this size.
            durable: a future is done only after its record is on the disk. One sync covers a batch
                and everything appended before it. If the sync fails, every future of the batch
                raises an error. `close` waits for the syncs.
        """
        from logstore.log.write.appender import Appender

        return Appender(self._state, linger, parse_size(max_bytes, "max_bytes"), durable)

    # --- making durable -------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is flushed."""
        return self._state.recovery_point

    def flush(self) -> int:
        """Make every record appended so far durable; return the new recovery point.

        Raises:
            LogDirOfflineError: the sync failed, so the log dir is offline now; the sync is not
                retried.
        """
        return flush.flush_all(self._state)

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush if `flush_ms` has passed, or if a sealed segment is unflushed.

        Returns:
            Whether the log was flushed.
        """
        return flush.flush_if_due(self._state, now_ms)

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll if the active segment is older than `segment_ms`; return whether it was sealed."""
        return roll.roll_if_due(self._state, now_ms)

    def checkpoint(self, *, is_closing: bool = False) -> None:
        """Write down where the log's flushed part ends; after a crash, recovery skips this part."""
        seal.checkpoint(self._state, is_closing=is_closing)

    def subscribe(self, callback: Callable[[LogEvent], object]) -> Subscription:
        """Call `callback` whenever the log changes, until the subscription is closed or dropped.

        Subscribe first, then read `log_end_offset`, and then wait for events. In this order, a
        caller misses no change. An event says what kind of change happened, but not how much has
        changed. The subscription survives a move of the replica. The last event is `CLOSED`. After
        this event, ask the store for the log again.

        Args:
            callback: runs in the thread that changed the log, after that thread released the log's
                locks. This function may be called in several threads at the same time. The callback
                must return quickly: for example, it sets a flag or wakes a loop. The callback must
                not append to the log, flush the log or change the log, because the thread may still
                hold `GroupCommit.commit_lock`. If the callback raises an exception, the exception
                is logged.

        Returns:
            The subscription. Keep a reference to the subscription: if it is dropped, `callback` is
            not called any more.

        Raises:
            LogStoreError: the log was closed or deleted, or its log dir is offline.
        """
        state = self._state
        subscription = Subscription(state.subscriptions, state.name, function(callback, "callback"))
        unavailable = state.unavailable
        if unavailable is not None:
            subscription.close()
            raise unavailable()
        return subscription

    def _set_config(self, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
        from logstore.log.write import configuration

        return configuration.set_config(self._state, change)

    # --- removing records, compacting, checking and repairing -------------------------------------

    def truncate_to(self, offset: int, *, keep_lost: bool = False) -> str | None:
        """Durably drop every record at or after `offset`.

        Args:
            keep_lost: first write the dropped batches to a `.lost` file in the log dir (see
                FORMAT.md). `logstore dump` prints this file.

        Returns:
            The path of the `.lost` file; None if `keep_lost` is False, or nothing was dropped.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            LogDirFullError: there is no room for the `.lost` file; nothing was dropped.
        """
        from logstore.log.removal.truncation import truncate_to

        return truncate_to(
            self._state, whole(offset, "offset"), keep_lost=flag(keep_lost, "keep_lost")
        )

    def start_at(self, offset: int, *, keep_lost: bool = False) -> str | None:
        """Durably drop all records, and begin at `offset`, which must not be before the log end.

        A follower calls this method if its leader's log begins after the follower's last record.
        No record gets the offsets between the log end and `offset`. The high watermark of a
        replicated log becomes `offset`. A crash leaves one of three states: the log is unchanged,
        is empty at its old start, or is empty at `offset`.

        Args:
            keep_lost: as in `truncate_to`.

        Returns:
            The path of the `.lost` file; None if `keep_lost` is False, or nothing was dropped.

        Raises:
            OffsetOutOfRangeError: the offset is before the log end; nothing was dropped.
            ValueError: the offset is larger than any offset that a log can have.
            LogDirFullError: there is no room for the `.lost` file; nothing was dropped.
        """
        from logstore.log.removal.new_start import start_at

        return start_at(
            self._state, whole(offset, "offset"), keep_lost=flag(keep_lost, "keep_lost")
        )

    def delete_records_before(self, offset: int) -> None:
        """Durably drop every record before `offset`; only whole segments free disk space.

        Raises:
            OffsetOutOfRangeError: the offset is after the log end.
        """
        from logstore.log.removal.retention import delete_records_before

        delete_records_before(self._state, whole(offset, "offset"))

    def apply_retention(self) -> int:
        """Drop the sealed segments that are past the configured retention; return their number."""
        from logstore.log.removal.retention import apply_retention

        return apply_retention(self._state)

    def compact(self) -> CompactionReport:
        """Compact the log now: keep only the latest record of each key, as the configuration says.

        Records keep their offsets. Only sealed segments are compacted, up to the recovery point. If
        another thread is compacting the log, this call first waits for that thread.

        Raises:
            ValueError: `cleanup_policy` does not include "compact".
            CorruptRecordBatchError: a batch is damaged; the segment with this batch and all later
                segments were not replaced.
            LogDirFullError: there is no room for a new segment beside the old segments.
        """
        from logstore.log.compaction.compaction import compact

        return compact(self._state)

    def verify(self, progress: Any = None) -> list[Problem]:
        """Check every batch, and that the segments are contiguous; return the damage."""
        from logstore.log.recovery.verification import verify_all

        return verify_all(self._state, callback(progress, "progress"), is_owner=True)

    @uninterruptible
    def repair(self) -> RepairReport:
        """Remove damage, keep the removed bytes in `*.quarantine`, and make the log writable."""
        from logstore.log.recovery.repair import repair

        state = self._state
        view = state.view
        try:
            return repair(state)
        finally:
            if state.view is not view:
                tell(state.subscriptions, LogEvent.TRUNCATED)
