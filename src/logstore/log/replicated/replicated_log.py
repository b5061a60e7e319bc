"""Define the part of a log's face that a leader and its followers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.arguments import whole
from logstore.log.reader import ReadableLog
from logstore.log.state import LogState
from logstore.log.write import leader_appends

if TYPE_CHECKING:
    from logstore.format.columnar.columns import Buffer
    from logstore.log.write.outcome import AppendInfo


class ReplicatedLog(ReadableLog):
    """Encoded batches in, leader epochs, and the high watermark."""

    _state: LogState

    @property
    def leader_epoch(self) -> int:
        """The epoch that appended batches carry; it only grows while the log is open.

        It is kept with the records: if none carries it, as after a truncation, the next start gives
        the epoch of the last one. A cluster keeps the epoch elsewhere, and sets it anew.
        """
        return self._state.replication.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        with self._state.lock:
            self._state.replication.raise_to(epoch)

    def append_as_follower(
        self, raw: Buffer, *, leader_epoch: int | None = None, durable: bool = False
    ) -> range:
        """Append whole encoded batches unchanged, with the offsets and epochs that they carry.

        All or none are appended; their records are checked as in `append_encoded`. Every exception
        says by `is_written` whether they are in the log.

        Args:
            leader_epoch: of the leader that sent them; no batch may have a larger one. None: no
                batch may have a smaller one than the log's.
            durable: return only once they are on the disk.

        Raises:
            ValueError: the bytes are no whole, sound batches.
            RecordExpansionError: one needs more memory than the store allows for a batch.
            OffsetOutOfRangeError: they do not begin at the log end offset (an empty log accepts
                any).
            FencedLeaderEpochError: the log knows a newer leader.
        """
        from logstore.log.write import follower_appends

        with self._state.telling():
            return follower_appends.append_as_follower(self._state, raw, leader_epoch, durable)

    def append_encoded(
        self, raw: Buffer, *, leader_epoch: int | None = None, durable: bool = False
    ) -> AppendInfo:
        """Append whole encoded batches with this log's next offsets and its leader epoch.

        All or none are appended, whatever fails; every exception says by `is_written` which. Their
        records are decoded and checked first, so every reader can read an accepted batch. With
        `message_timestamp_type="LogAppendTime"` they get the time of this call.

        Args:
            leader_epoch: the epoch in which this log leads. It becomes the log's if it is larger.
            durable: return only once they are on the disk.

        Raises:
            ValueError: the bytes are no whole, sound batches.
            RecordExpansionError: one needs more memory than the store allows for a batch.
            RecordTooLargeError: one is larger than `max_message_bytes`.
            InvalidTimestampError: a record is too far from now (`message_timestamp_after_max_ms`).
            FencedLeaderEpochError: the log knows a newer leader.
        """
        try:
            return leader_appends.append_encoded(self._state, raw, leader_epoch, durable)
        except BaseException:
            self._state.tell_end()
            raise

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """Each leader epoch of the records, and its first offset; both rise."""
        return tuple(self._state.replication.epochs.entries)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Give the largest epoch of the records that is not after `epoch`, and where it ended.

        A follower truncates to it, or to its own end of that epoch (KIP-101, KIP-279). The last
        epoch ends at the log end. (-1, -1): the log has no record of `epoch` or an earlier one, so
        the follower begins anew at the log start.
        """
        state, epoch = self._state, whole(epoch, "epoch", -1)
        with state.lock:  # a batch of a new epoch, or a truncation, changes both
            state.check()
            return state.replication.epochs.end_offset_for(epoch, state.log_end_offset)

    def advance_high_watermark(self, offset: int) -> int:
        """Say that all in-sync replicas have the records before `offset`; give the high watermark.

        Until the first call it is the log end; from then on it rises by this method alone, at most
        to the log end, and only `truncate_to` lowers it. An earlier offset changes nothing. What is
        not below it is neither retained away nor deleted. Reads end at it if their
        `isolation_level` says so. After a crash it may be that of the last checkpoint.

        Raises:
            LogStoreError: the log does not serve, or, at the first call, its disk failed.
        """
        from logstore.log.write import high_watermark

        return high_watermark.advance(self._state, whole(offset, "offset", 0))
