"""Define the public methods of a log that brokers use: encoded batches, leaders, producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.arguments import flag, many, whole, wrong
from logstore.config import size_of
from logstore.format import layouts
from logstore.log.encoded import leader_appends
from logstore.log.metadata import SPARSE_OFFSETS
from logstore.log.producers import appends

if TYPE_CHECKING:
    from logstore.format.batch import RecordBatch
    from logstore.format.columnar.columns import Buffer
    from logstore.log.encoded.idempotent_producer import IdempotentProducer
    from logstore.log.producers.producer_state import ProducerState
    from logstore.log.read.file_range import FileRange
    from logstore.log.state import LogState
    from logstore.log.write.outcome import AppendInfo


def _number(given: int, name: str, low: int, end: int) -> int:
    """Check a whole number of a batch's header. Raises TypeError, ValueError."""
    number = whole(given, name, low)
    if number >= end:
        raise ValueError(f"{name} {number} is not less than {end}")
    return number


def _cells(given: Sequence[bytes | None], name: str) -> list[bytes | None]:
    """Check keys or values. Raises TypeError."""
    cells = list(many(given, name, "bytes or None"))
    for cell in cells:
        if not (cell is None or isinstance(cell, bytes)):
            raise wrong(name, "bytes or None in each place", cell)
    return cells


class ReplicatedLog:
    """Appends the batches of clients and leaders, and keeps the state of replication."""

    _state: LogState

    # --- encoded batches ------------------------------------------------------------------------

    def append_as_follower(
        self,
        raw: Buffer,
        *,
        leader_epoch: int | None = None,
        durable: bool = False,
        may_lack_offsets: bool = False,
    ) -> range:
        """Append whole encoded batches unchanged, with the offsets and epochs that they carry.

        Either all batches are appended, or none. The records of the batches are checked as in
        `append_encoded`. The attribute `is_written` of an exception says whether the batches are in
        the log.

        Args:
            leader_epoch: the epoch of the leader that sent the batches; no batch may have a larger
                epoch. If `leader_epoch` is None, no batch may have an epoch that is smaller than
                the log's epoch.
            durable: return only after the batches are on the disk.
            may_lack_offsets: whether the leader's log may lack offsets (see `may_lack_offsets`).

        Raises:
            ValueError: the bytes are not whole, undamaged batches.
            RecordExpansionError: a batch needs more memory than the store allows.
            OffsetOutOfRangeError: the batches do not begin at the log end offset. An empty log
                accepts batches that begin later. If `cleanup_policy` includes "compact", or if the
                leader's log may lack offsets, offsets may be missing before batches of Kafka's
                layout: the leader removed them.
            FencedLeaderEpochError: the log has a higher leader epoch.
        """
        from logstore.log.encoded import follower_appends

        gaps = flag(may_lack_offsets, "may_lack_offsets")
        with self._state.telling():
            return follower_appends.append_as_follower(
                self._state, raw, leader_epoch, durable, may_lack_offsets=gaps
            )

    def append_encoded(
        self,
        raw: Buffer,
        *,
        leader_epoch: int | None = None,
        durable: bool = False,
        token: int | None = None,
    ) -> AppendInfo:
        """Append whole encoded batches with this log's next offsets and its leader epoch.

        Either all batches are appended, or none. The attribute `is_written` of an exception says
        whether the batches are in the log. The records are decoded and checked first, so every
        reader can read an accepted batch. With `message_timestamp_type="LogAppendTime"` the records
        get the time of this call.

        If a batch has a producer (id, epoch, sequence), the log appends it only once. If the log
        has the batch among the producer's last five batches, nothing is written, and the result
        says where the batch is (KIP-98).

        Args:
            leader_epoch: the epoch in which this replica leads. If this epoch is larger than the
                log's epoch, it becomes the log's epoch.
            durable: return only after the batches are on the disk.
            token: the result of `transaction_token`, if the coordinator confirms that the
                transaction of these batches is ongoing. If `token` is None, transactions are not
                verified.

        Raises:
            ValueError: the bytes are not whole, undamaged batches, or the log already has some of
                the batches, but not all of them.
            OutOfOrderSequenceError: the log lacks an earlier batch of the same producer.
            ProducerFencedError: the producer has a newer epoch.
            InvalidTransactionStateError: a batch is outside of its producer's transaction, or
                would begin a transaction that `token` does not permit.
            RecordExpansionError: a batch needs more memory than the store allows.
            RecordTooLargeError: a batch is larger than `max_message_bytes`.
            InvalidTimestampError: the timestamp of a record is too far from now (see
                `message_timestamp_after_max_ms` and `message_timestamp_before_max_ms`).
            FencedLeaderEpochError: the log has a higher leader epoch.
        """
        try:
            return leader_appends.append_encoded(
                self._state,
                raw,
                leader_epoch,
                durable,
                token=None if token is None else whole(token, "token", 0),
            )
        except BaseException:
            self._state.tell_end()
            raise

    # --- producers and their transactions -------------------------------------------------------

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        leader_epoch: int | None = None,
        durable: bool = False,
        is_epoch_raised: bool = False,
    ) -> AppendInfo:
        """Append the marker that ends a transaction of a producer (KIP-98; extra `kafka`).

        Args:
            epoch: the epoch of the producer. If this epoch is larger than the producer's epoch in
                the log, the producer's new epoch begins.
            commit: True to commit the transaction, False to abort it.
            coordinator_epoch: the epoch of the coordinator that ended the transaction.
            leader_epoch, durable: as for `append_encoded`.
            is_epoch_raised: whether the coordinator raises the producer's epoch with each
                transaction (KIP-890). If it does, a marker with the epoch of the open transaction
                is a late copy of an earlier marker.

        Raises:
            ProducerFencedError: the marker belongs to an earlier epoch or transaction.
            CoordinatorFencedError: a newer coordinator has written a marker.
            UnsupportedFormatError: the extra `kafka` is not installed.
        """
        layouts.kafka_layout()
        from logstore.format.kafka.markers import Marker
        from logstore.log.encoded.markers import append_marker

        coordinator_epoch = _number(coordinator_epoch, "coordinator_epoch", -1, 2**31)
        marker = Marker(flag(commit, "commit"), coordinator_epoch)
        return append_marker(
            self._state,
            _number(producer_id, "producer_id", 0, 2**63),
            _number(epoch, "epoch", 0, 2**15),
            marker,
            leader_epoch=leader_epoch,
            durable=flag(durable, "durable"),
            is_epoch_raised=flag(is_epoch_raised, "is_epoch_raised"),
        )

    def append_of_transaction(
        self,
        producer_id: int,
        epoch: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        timestamp: int,
        *,
        token: int | None = None,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append records as one batch of a producer's transaction, without a sequence number.

        A group coordinator uses this method for the offsets that a transaction commits.

        Args:
            timestamp: the time of all records, in ms since the epoch.
            token, leader_epoch: as for `append_encoded`.

        Raises:
            The errors that `append_encoded` raises.
        """
        layouts.kafka_layout()
        from logstore.format.kafka.markers import build_batch

        raw = build_batch(
            _number(producer_id, "producer_id", 0, 2**63),
            _number(epoch, "epoch", 0, 2**15),
            _cells(values, "values"),
            _cells(keys, "keys"),
            _number(timestamp, "timestamp", 0, 2**63),
        )
        return self.append_encoded(raw, leader_epoch=leader_epoch, token=token)

    def transactions_after(self, offset: int) -> list[tuple[RecordBatch, str]]:
        """Read the batches from an offset on, each with the outcome of its transaction.

        Returns:
            Each batch with "committed", "aborted" or "open"; a batch without a transaction counts
            as committed. Markers are left out. The list holds all batches in memory.

        Raises:
            LogStoreError: the log cannot be read.
        """
        from logstore.log.read.transactions import fates_after

        return fates_after(self._state, whole(offset, "offset", 0))

    def producer_states(self) -> list[ProducerState]:
        """List the state of each producer in the log, in the order of the producer ids.

        Raises:
            LogStoreError: the log is closed or unavailable.
        """
        return appends.states(self._state)

    def transaction_token(self, producer_id: int, epoch: int, sequence: int) -> int:
        """Begin to verify a transaction before its first batch is appended (KIP-890).

        First ask for the token, then ask the coordinator, and then append the batch with the token.
        If a marker ends the transaction before this append, the append is refused. The token 0
        means that the transaction is already open in this log. With the token 0, do not ask the
        coordinator.

        Args:
            sequence: the first sequence number of the batch.

        Raises:
            LogStoreError: the log is closed or unavailable.
        """
        return appends.verification(
            self._state,
            _number(producer_id, "producer_id", 0, 2**63),
            _number(epoch, "epoch", 0, 2**15),
            _number(sequence, "sequence", -1, 2**31),
        )

    def idempotent_producer(self, name: str) -> IdempotentProducer:
        """Make a producer that appends each record of a source once, even if the caller crashes.

        Args:
            name: the name of the source. While the log exists, it remembers the name and the number
                of the source's last record.
        """
        from logstore.log.encoded.idempotent_producer import IdempotentProducer

        return IdempotentProducer(self._state, name)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """List the aborted transactions with records in a range, as (producer id, first offset).

        A reader of encoded batches needs this list to leave out aborted records. The list is in the
        order of the first offsets. Transactions that end after the last stable offset may be
        missing.

        Raises:
            LogStoreError: the log is closed or unavailable.
        """
        from logstore.log.read.aborted_index import aborted_in

        offset, end_offset = whole(offset, "offset"), whole(end_offset, "end_offset")
        self._state.check()
        self._state.refresh()
        return aborted_in(self._state, offset, end_offset) if self._has_transactions() else []

    def read_committed_range(
        self, offset: int, max_bytes: int = 1 << 20
    ) -> tuple[FileRange, list[tuple[int, int]]]:
        """Return a range up to the last stable offset, and the aborted transactions in it.

        The results are those of `read_range` and `aborted_transactions`. But between two calls,
        retention or compaction could remove a transaction that the range still has.

        Raises:
            LogStoreError: as in `read_range`; or a later segment is damaged, so it is not known
                whether a transaction in the range was aborted.
        """
        from logstore.log.read.aborted_index import committed_range

        return committed_range(
            self._state,
            whole(offset, "offset"),
            size_of(max_bytes, "max_bytes"),
            self._has_transactions,
        )

    def _has_transactions(self) -> bool:
        """Whether the log may have transactions. In a corrupt log, the producers are unknown."""
        return self._state.producers.are_known or bool(self._state.refusal)

    def latest_record(self) -> tuple[int, int] | None:
        """Return the largest timestamp of the records, and the first offset with it, or None.

        The markers of transactions do not count as records. Records with a negative timestamp have
        no time, and are left out.

        Raises:
            LogStoreError: the log is closed or unavailable, or a batch is damaged.
        """
        from logstore.log.read.time_search import latest_record

        return latest_record(self._state)

    def first_record_at(self, timestamp: int) -> tuple[int, int] | None:
        """Return the timestamp and offset of the first record at or after a time in ms, or None.

        Raises:
            LogStoreError: the log is closed or unavailable, or a batch is damaged.
        """
        from logstore.log.read.time_search import first_record_at

        return first_record_at(self._state, whole(timestamp, "timestamp"))

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that were not used for `producer_id_expiration_ms`."""
        appends.expire(self._state, whole(now_ms, "now_ms"))

    # --- being replicated -----------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that appended batches get; it never decreases while the log is open.

        The epoch is stored only with the records. If no record has this epoch, for example after a
        truncation, the epoch is lost: the next start begins with the epoch of the last record. So a
        cluster stores the epoch elsewhere, and sets it again.
        """
        return self._state.replication.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        with self._state.lock:
            self._state.replication.raise_to(epoch)

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """The (leader epoch, first offset) pairs of the records, in rising order."""
        return tuple(self._state.replication.epochs.entries)

    @property
    def may_lack_offsets(self) -> bool:
        """Whether compaction may have removed offsets between the records of this log."""
        return bool(self._state.metadata.extra.get(SPARSE_OFFSETS))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the log's largest epoch that is not above `epoch`, and the offset where it ends.

        A follower truncates its log to the smaller of two offsets: the returned offset, and the end
        of the returned epoch in the follower's own log (KIP-101, KIP-279). The last epoch ends at
        the log end. (-1, -1) means that the log has no record of `epoch` or of an earlier epoch.
        Without such a record, the follower begins again at the log start.
        """
        state, epoch = self._state, whole(epoch, "epoch", -1)
        with state.lock:  # an append or a truncation may change the epochs and the log end
            state.check()
            return state.replication.epochs.end_offset_for(epoch, state.log_end_offset)

    def advance_high_watermark(self, offset: int) -> int:
        """Remember that all in-sync replicas have the records before `offset`.

        Returns:
            The high watermark.

        Until the first call, the high watermark is the log end. After the first call, only this
        method and `start_at` raise the high watermark, at most to the log end, and only
        `truncate_to` lowers it. An offset below the high watermark changes nothing. Neither
        retention nor `delete_records_before` removes records at or above the high watermark. Reads
        with the isolation level "read_replicated" end at the high watermark. After a crash, the
        high watermark may be the value in the last checkpoint.

        Raises:
            LogStoreError: the log is closed or unavailable, or the disk failed at the first call.
        """
        from logstore.log.write import high_watermark

        return high_watermark.advance(self._state, whole(offset, "offset", 0))
