"""Check batches against the earlier batches of their producers, and remember appended batches.

`check` is called before a write and `take` after the write, both under the log's lock. So if a
write fails, the recorded state of the producers does not change. This module does no I/O and has no
lock and no clock: times are arguments. The offset of a producer's last batch says how recently the
producer was used, so all replicas forget the same producers first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.format.layouts import KAFKA_MAGIC
from logstore.format.producer_file import PRODUCERS_MAX as PRODUCERS_IN_FILE_MAX
from logstore.format.producer_file import ROW_BYTES, Snapshot
from logstore.format.producers import SEQUENCE_MAX
from logstore.log.producers import rules
from logstore.log.producers.open_transactions import Ended, OpenTransactions, Verification
from logstore.log.producers.rules import Known
from logstore.log.producers.table import (
    EPOCH_AND_BATCHES,
    LAST,
    MARKER,
    MARKER_AT,
    USED_AND_BATCHES,
    USED_AT,
    ProducerBatch,
    ProducerTable,
)

if TYPE_CHECKING:
    from logstore.format.kafka.markers import Marker  # `Marker` needs logstore[kafka]

EXPIRATION_MS = 24 * 3600 * 1000  # Kafka's default of producer.id.expiration.ms
PRODUCERS_MAX = 100_000
FORGOTTEN_AT_ONCE = 4096  # this limit keeps the wait of an append at a few ms

_read_last = LAST.unpack_from
_read_batches = EPOCH_AND_BATCHES.unpack_from
_write_batches = USED_AND_BATCHES.pack_into


class Duplicate(NamedTuple):
    """A batch that the log already has, and its place in the log.

    Attributes:
        number: the index of the batch among the checked batches.
    """

    number: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """The state of one producer in a log.

    Attributes:
        timestamp: the timestamp of the producer's last batch or marker.
        open_offset: where the producer's open transaction begins; -1 if no transaction is open.
        batches: the producer's last five batches, the newest first.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    timestamp: int
    used_ms: int
    open_offset: int
    batches: tuple[ProducerBatch, ...]

    @property
    def last_sequence(self) -> int:
        """The sequence of the producer's last record, or -1 if this epoch has no record."""
        return self.batches[0].last_sequence if self.batches else rules.NO_SEQUENCE


class Producers:
    """The producers of one log; every call is made under the log's lock.

    Attributes:
        end_offset: the log end offset up to which every batch was recorded by `take`.

    Args:
        expiration_ms: a producer that was not used for this time is forgotten (KIP-98).
        producers_max: if there are more producers, the least recently used are forgotten. A
            producer with an open transaction is not forgotten, so the number of producers can be
            larger than this limit.
    """

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        expiration_ms: int = EXPIRATION_MS,
        producers_max: int = PRODUCERS_MAX,
    ) -> None:
        assert 0 < producers_max <= PRODUCERS_IN_FILE_MAX
        self._expiration_ms, self._producers_max = expiration_ms, producers_max
        self.end_offset = 0
        self._table, self._transactions = ProducerTable(), OpenTransactions()
        if snapshot is not None:
            rows, self.end_offset = snapshot.rows, snapshot.offset
            begun = rows[rows["open_offset"] >= 0]
            ids, offsets = begun["producer_id"].tolist(), begun["open_offset"].tolist()
            self._table = ProducerTable(rows)
            self._transactions = OpenTransactions(
                zip(ids, offsets, strict=True), snapshot.undecided
            )
        self._rows, self._places = self._table.rows, self._table.places
        self._open = self._transactions.open

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._places

    # --- before an append -------------------------------------------------------------------------

    def check(
        self, headers: Sequence[BatchHeader], token: int | None = None
    ) -> Sequence[Duplicate]:
        """Check all batches of one append before any is written; return the duplicates among them.

        Args:
            headers: the batches in the order of the append. Of the offsets in a header, only their
                count is used.
            token: the result of `verification`; None if there is no coordinator, so that
                transactions are not verified.

        Raises:
            OutOfOrderSequenceError, ProducerFencedError, InvalidTransactionStateError: see
                `rules.after`. The caller must not write any of the batches.
        """
        if len(headers) == 1:  # this usual case takes few steps
            _, _, _, magic, attributes, _, _, _, _, _, producer_id, epoch, sequence, _ = headers[0]
            if producer_id < 0:
                return ()
            place = self._places.get(producer_id)
            if place is not None:
                known_epoch, last = _read_last(self._rows, place)
                if epoch == known_epoch and sequence == (last + 1) & SEQUENCE_MAX:
                    bits = attributes & rules.BITS if magic == KAFKA_MAGIC else 0
                    if bits == (TRANSACTIONAL if producer_id in self._open else 0):
                        return ()
        return self._check_all(headers, token)

    def _check_all(self, headers: Sequence[BatchHeader], token: int | None) -> list[Duplicate]:
        seen: dict[int, Known] = {}
        duplicates: list[Duplicate] = []
        for number, header in enumerate(headers):
            producer_id = header.producer_id
            if not rules.is_watched(header):
                continue
            known = seen.get(producer_id) or self._known(producer_id)
            found = None if known is None else self._find(number, header, known)
            if found is not None:
                duplicates.append(found)
                continue
            is_verified = self._is_verified(header, token)
            seen[producer_id] = rules.after(known, header, is_verified=is_verified)
        return duplicates

    def _known(self, producer_id: int) -> Known | None:
        place = self._places.get(producer_id)
        if place is None:
            return None
        epoch, last_sequence = _read_last(self._rows, place)
        return Known(epoch, last_sequence, producer_id in self._open)

    def _find(self, number: int, header: BatchHeader, known: Known) -> Duplicate | None:
        """Find the batch with the header's sequences among its producer's last five (KIP-98)."""
        epoch, sequence = header.producer_epoch, header.base_sequence
        place = self._places.get(header.producer_id, -1)
        is_same_epoch = place >= 0 and _read_last(self._rows, place)[0] == known.epoch == epoch
        if not is_same_epoch or sequence in (known.next_sequence, rules.NO_SEQUENCE):
            return None
        delta = header.last_offset - header.base_offset
        last_sequence = rules.last_sequence_of(sequence, delta)
        for each in self._table.batches(place):
            if each.last_sequence == last_sequence and each.offset_delta == delta:
                last = each.last_offset
                return Duplicate(number, last - delta, last, each.timestamp)
        return None

    def _is_verified(self, header: BatchHeader, token: int | None) -> bool:
        """Check whether a batch may begin a transaction. Raises OutOfOrderSequenceError (KIP-890).

        If the log does not know the producer, the log accepts any sequence. So of all batches for
        which the token was requested, the batch with the lowest sequence must be appended first.
        """
        if token is None:
            return True
        found = self._transactions.verified(header.producer_id, token)
        if found is None or found.epoch != header.producer_epoch:
            return False
        if header.base_sequence > found.lowest_sequence >= 0:
            rules.out_of_order(header, found.lowest_sequence)
        return True

    def verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """Give the token for a batch of a transaction (KIP-890).

        A caller first gets the token, and asks the coordinator whether the transaction is ongoing
        and has this partition. If the coordinator says yes, the caller appends the batch with the
        token. If a marker or another batch of the producer is appended before this batch, the token
        is no longer valid. So an outdated answer of the coordinator does no harm. If the result is
        0, the transaction is already open in this log, and the caller does not have to ask the
        coordinator.
        """
        known = self._known(producer_id)
        if known is not None and known.is_open and known.epoch == epoch:
            return 0
        return self._transactions.verification(producer_id, epoch, sequence, now_ms)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, is_epoch_raised: bool = False
    ) -> None:
        """Check a marker before it is written; see `rules`.

        Raises:
            ProducerFencedError, CoordinatorFencedError: the marker belongs to an earlier epoch.
        """
        known, place = self._known(producer_id), self._places.get(producer_id)
        if known is None or place is None:
            return
        rules.check_marker(producer_id, epoch, known, is_epoch_raised=is_epoch_raised)
        current = MARKER.unpack_from(self._rows, place + MARKER_AT)[2]
        rules.check_coordinator(producer_id, coordinator_epoch, current)

    def later_verification(
        self, producer_id: int, epoch: int, *, is_epoch_raised: bool
    ) -> Verification | None:
        """Return the verification that a marker need not cancel; pass it to `restore`.

        This verification belongs to a transaction after the marker. Usually, the epoch of such a
        verification is higher than the marker's epoch. But if each end of a transaction raises the
        epoch, the marker already has the raised epoch, and the two epochs are equal.
        """
        found = self._transactions.verification_of(producer_id)
        if found is None or found.epoch < epoch + (not is_epoch_raised):
            return None
        return found

    def restore(self, producer_id: int, verification: Verification) -> None:
        """Keep a verification that a marker has cancelled; see `later_verification`."""
        self._transactions.restore(producer_id, verification)

    # --- after an append --------------------------------------------------------------------------

    def take(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember an appended batch without a check: a follower accepts every batch of its leader.

        Args:
            header: only the count of its offsets is used. For a marker, call `take_marker`. For any
                other control batch, only `end_offset` changes.
            base_offset: the offset of the batch in the log.
        """
        old_base, _, _, magic, attributes, _, old_last, _, _, timestamp, producer_id, epoch, \
            sequence, _ = header  # fmt: skip
        offset_delta = old_last - old_base
        last_offset = base_offset + offset_delta
        self.end_offset = last_offset + 1
        bits = attributes & rules.BITS if magic == KAFKA_MAGIC else 0
        if producer_id < 0 or bits & CONTROL or (epoch < 0 and not bits):  # see `is_watched`
            return
        place, rows = self._places.get(producer_id), self._rows
        if place is None:
            place = self._add(producer_id, epoch)
        known_epoch, older = _read_batches(rows, place)
        if known_epoch != epoch:
            older = self._table.begin_epoch(place, epoch)
        last = (sequence + offset_delta) & SEQUENCE_MAX if sequence >= 0 else -1
        place += USED_AT
        _write_batches(rows, place, now_ms, last_offset, timestamp, last, offset_delta, older)
        if bits:
            self._transactions.begin(producer_id, base_offset)

    def take_marker(
        self, header: BatchHeader, offset: int, now_ms: int, marker: Marker
    ) -> Ended | None:
        """Remember an appended marker; return the transaction that it ended, or None.

        A marker with another epoch begins that epoch (KIP-890, part 2).
        """
        is_commit, coordinator_epoch = marker
        producer_id, epoch = header.producer_id, header.producer_epoch
        self.end_offset = offset + header.last_offset - header.base_offset + 1
        if producer_id < 0:
            return None
        place = self._places.get(producer_id)
        if place is None:
            place = self._add(producer_id, epoch)
        elif _read_last(self._rows, place)[0] != epoch:
            self._table.begin_epoch(place, epoch)
        timestamp = header.max_timestamp
        self._table.note_marker(place, offset, timestamp, coordinator_epoch, now_ms)
        return self._transactions.end(producer_id, offset, is_aborted=not is_commit)

    def _add(self, producer_id: int, epoch: int) -> int:
        if len(self._places) >= self._producers_max:
            count = min(max(self._producers_max // 16, 1), FORGOTTEN_AT_ONCE)
            self._table.remove(self._table.least_used(self._open, count))
        place = self._table.add(producer_id)
        self._table.begin_epoch(place, epoch)
        return place

    # --- for readers and the log's upkeep ----------------------------------------------------

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Return the last stable offset, at which readers of committed records stop (KIP-98).

        This is the first offset of the oldest transaction that is open or undecided. A transaction
        is undecided if its marker is at or after the high watermark. If there is no such
        transaction, the last stable offset is the high watermark. The result is never below the log
        start. If the first records of an open transaction are deleted, the transaction stays open:
        later records and the marker are still to come. The high watermark must not be lower than in
        an earlier call.
        """
        return self._transactions.last_stable_offset(high_watermark, log_start_offset)

    def first_open_offset(self, end_offset: int, log_start_offset: int = 0) -> int:
        """Return the last stable offset of a log that is not replicated.

        In a log that is not replicated, a marker decides its transaction immediately. The log still
        remembers decided transactions. If the log is replicated later, the first high watermark may
        be before the markers of these transactions.
        """
        return self._transactions.first_open_offset(end_offset, log_start_offset)

    def expire(self, now_ms: int) -> int:
        """Forget the producers that were not used for the expiration time; return their number.

        If the result is FORGOTTEN_AT_ONCE, more producers may have expired: let appends run, then
        call this method again.
        """
        limit_ms = now_ms - self._expiration_ms
        self._transactions.expire(limit_ms)
        idle = self._table.idle_since(limit_ms, self._open, FORGOTTEN_AT_ONCE)
        self._table.remove(idle)
        return len(idle)

    def kept_offsets(self) -> NDArray[np.int64]:
        """List, in order, one offset of each batch that compaction must keep even without records.

        For each producer, the list has the last offset of its last batch. If a producer has no
        batch, the list has the offset of its marker. From the listed batches, a log without
        snapshots rebuilds epochs and sequences (KIP-98).
        """
        return self._table.last_offsets()

    def state_of(self, producer_id: int) -> ProducerState | None:
        """Return the state of one producer, or None if the log does not know the producer."""
        place = self._places.get(producer_id)
        if place is None:
            return None
        epoch, _ = _read_last(self._rows, place)
        batches = tuple(self._table.batches(place))
        marker_offset, marker_timestamp, coordinator_epoch, used_ms = self._table.marker(place)
        is_marker = not batches or marker_offset > batches[0].last_offset
        timestamp = marker_timestamp if is_marker else batches[0].timestamp
        open_offset = self._open.get(producer_id, -1)
        return ProducerState(
            producer_id, epoch, coordinator_epoch, timestamp, used_ms, open_offset, batches
        )

    def states(self) -> list[ProducerState]:
        """Return the state of each producer, in the order of the producer ids."""
        found = [self.state_of(producer_id) for producer_id in sorted(self._places)]
        return [state for state in found if state is not None]

    def snapshot(self, end_offset: int | None = None) -> Snapshot:
        """Copy the state; the copy can be encoded and written without the lock.

        Args:
            end_offset: the log end offset; given only if no batch after the last recorded batch has
                a producer.
        """
        if end_offset is not None:
            self.end_offset = max(self.end_offset, end_offset)
        rows = self._table.copy()
        rows["open_offset"] = -1  # transactions of the loaded snapshot may have ended
        for producer_id, first_offset in self._open.items():
            rows["open_offset"][self._places[producer_id] // ROW_BYTES] = first_offset
        return Snapshot(self.end_offset, rows, self._transactions.undecided)
