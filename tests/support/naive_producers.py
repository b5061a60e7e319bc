"""Know a log's producers in the plainest way: keep the whole log and walk over it at each question.

Written from KIP-98, KIP-360 and KIP-890, and not from the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka.header import CONTROL, MAGIC, TRANSACTIONAL

SEQUENCES = 2**31


class Entry(NamedTuple):
    """A batch or a marker in a log; `commit` is None for a batch."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    records: int
    timestamp: int
    is_transactional: bool = False
    commit: bool | None = None
    coordinator_epoch: int = -1
    used_ms: int = 0

    @property
    def last(self) -> int:
        """The offset of its last record."""
        return self.offset + self.records - 1

    @property
    def header(self) -> BatchHeader:
        """The header of its batch, with its offsets in the log."""
        bits = TRANSACTIONAL * self.is_transactional
        sequence = self.sequence
        if self.commit is not None:
            bits, sequence = TRANSACTIONAL | CONTROL, -1
        return BatchHeader(
            self.offset, 100, 0, MAGIC, bits, self.records, self.last, 39, self.timestamp,
            self.timestamp, self.producer_id, self.epoch, sequence, 39,
        )  # fmt: skip


class Seen(NamedTuple):
    """What the log says of a producer; batches are (last sequence, last offset, delta, time)."""

    epoch: int
    coordinator_epoch: int
    timestamp: int
    used_ms: int
    open_offset: int
    batches: tuple[tuple[int, int, int, int], ...]


@dataclass
class NaiveProducers:
    """The whole log, and when each producer was forgotten.

    Attributes:
        forgotten: by producer: entries below this offset do not count for it.
        used: by producer: when it was used last, if not by what the log says.
    """

    producers_max: int
    entries: list[Entry] = field(default_factory=list)
    forgotten: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.entries[-1].last + 1 if self.entries else 0

    def of(self, producer_id: int) -> list[Entry]:
        """List what the log has of a producer that counts."""
        first = self.forgotten.get(producer_id, 0)
        return [e for e in self.entries if e.producer_id == producer_id and e.offset >= first]

    def seen(self, producer_id: int) -> Seen | None:
        """Walk over a producer's entries."""
        entries = self.of(producer_id)
        if not entries:
            return None
        batches: list[tuple[int, int, int, int]] = []
        epoch, coordinator, open_offset = entries[0].epoch, -1, -1
        for entry in entries:
            if entry.epoch != epoch:
                epoch, batches = entry.epoch, []
            if entry.commit is not None:
                coordinator, open_offset = entry.coordinator_epoch, -1
                continue
            if entry.is_transactional and open_offset < 0:
                open_offset = entry.offset
            last = (entry.sequence + entry.records - 1) % SEQUENCES
            batches.insert(0, (last, entry.last, entry.records - 1, entry.timestamp))
        used = max(entries[-1].used_ms, self.used.get(producer_id, 0))
        latest = entries[-1].timestamp
        return Seen(epoch, coordinator, latest, used, open_offset, tuple(batches[:5]))

    def known(self) -> list[int]:
        """List the producers that are not forgotten."""
        return sorted({e.producer_id for e in self.entries if self.of(e.producer_id)})

    # --- what may be appended ---------------------------------------------------------------------

    def verdict(
        self, batches: list[Entry], verified: dict[int, tuple[int, int]] | None
    ) -> str | list[tuple[int, int, int]]:
        """Name the error that an append ends with, or list its duplicates: number and offsets.

        Args:
            verified: epoch and lowest sequence of the transactions that may begin, by producer;
                None: all may.
        """
        after = NaiveProducers(self.producers_max, list(self.entries), dict(self.forgotten))
        duplicates = []
        for number, batch in enumerate(batches):
            before, now = self.seen(batch.producer_id), after.seen(batch.producer_id)
            last = (batch.sequence + batch.records - 1) % SEQUENCES
            is_same = before and now and before.epoch == now.epoch == batch.epoch
            if before and now and is_same and batch.sequence != next_of(now, batch):
                same = [b for b in before.batches if (b[0], b[2]) == (last, batch.records - 1)]
                if same:
                    duplicates.append((number, same[0][1] - batch.records + 1, same[0][1]))
                    continue
            error = fault(now, batch, verified)
            if error:
                return error
            after.entries.append(batch._replace(offset=after.end))
        return duplicates

    def marker_verdict(self, marker: Entry, is_epoch_raised: bool) -> str:
        """Name the error of a marker; empty if there is none."""
        now = self.seen(marker.producer_id)
        if now is None:
            return ""
        is_late = is_epoch_raised and now.open_offset >= 0 and marker.epoch == now.epoch
        if marker.epoch < now.epoch or is_late:
            return "ProducerFencedError"
        is_old = marker.coordinator_epoch < now.coordinator_epoch
        return "CoordinatorFencedError" if is_old else ""

    def append(self, entry: Entry) -> None:
        """Add to the log; if there are too many producers, forget the least recently used one."""
        known = self.known()
        if entry.producer_id not in known and len(known) >= self.producers_max:
            idle = [p for p in known if not self.is_open(p)]
            if idle:
                self.forget(min(idle, key=self.recency))
        self.entries.append(entry)

    def is_open(self, producer_id: int) -> bool:
        """Tell whether a transaction of a producer is open."""
        seen = self.seen(producer_id)
        return seen is not None and seen.open_offset >= 0

    def recency(self, producer_id: int) -> int:
        """Give the offset of the last batch of its epoch or the last marker of a producer."""
        entries = self.of(producer_id)
        epoch = entries[-1].epoch
        return max(e.last for e in entries if e.commit is not None or e.epoch == epoch)

    def forget(self, producer_id: int) -> None:
        """Let what the log has of a producer so far not count any more."""
        self.forgotten[producer_id] = self.end

    def expire(self, limit_ms: int) -> None:
        """Forget the producers that were not used after a time."""
        for producer_id in self.known():
            seen = self.seen(producer_id)
            if seen and seen.used_ms <= limit_ms and seen.open_offset < 0:
                self.forget(producer_id)

    # --- what is decided --------------------------------------------------------------------------

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """List all transactions: producer, first offset, marker or None, whether it committed."""
        found: list[tuple[int, int, int | None, bool]] = []
        begun: dict[int, int] = {}
        for entry in self.entries:
            if entry.commit is not None:
                if entry.producer_id in begun:
                    first = begun.pop(entry.producer_id)
                    found.append((entry.producer_id, first, entry.offset, entry.commit))
            elif entry.is_transactional:
                begun.setdefault(entry.producer_id, entry.offset)
        return found + [(producer_id, first, None, False) for producer_id, first in begun.items()]

    def stable(self, high_watermark: int, log_start: int) -> int:
        """Give the last stable offset."""
        undecided = [
            first
            for _, first, marker, _ in self.transactions()
            if marker is None or marker >= high_watermark
        ]
        return max(min([high_watermark, *undecided]), log_start)

    def kept(self) -> list[int]:
        """List the last offsets that compaction must keep."""
        found = []
        for producer_id in self.known():
            seen = self.seen(producer_id)
            markers = [e.offset for e in self.of(producer_id) if e.commit is not None]
            found.append(seen.batches[0][1] if seen and seen.batches else max(markers))
        return sorted(found)


def next_of(now: Seen, batch: Entry) -> int:
    """Give the sequence that a batch of this epoch must have to be the next one."""
    is_first = batch.epoch != now.epoch or not now.batches
    return 0 if is_first else (now.batches[0][0] + 1) % SEQUENCES


def fault(now: Seen | None, batch: Entry, verified: dict[int, tuple[int, int]] | None) -> str:
    """Name the error of a batch that is no duplicate, after what is known; empty if none."""
    place = None if verified is None else verified.get(batch.producer_id)
    is_verified = verified is None or (place is not None and place[0] == batch.epoch)
    if is_verified and place is not None and batch.sequence > place[1]:
        return "OutOfOrderSequenceError"
    if now is None:
        is_refused = batch.is_transactional and not is_verified
        return "InvalidTransactionStateError" if is_refused else ""
    if batch.epoch < now.epoch:
        return "ProducerFencedError"
    if batch.sequence != next_of(now, batch):
        return "OutOfOrderSequenceError"
    is_open = now.open_offset >= 0
    if is_open and not batch.is_transactional:
        return "InvalidTransactionStateError"
    is_ongoing = is_open and now.epoch == batch.epoch
    if batch.is_transactional and not is_ongoing and not is_verified:
        return "InvalidTransactionStateError"
    return ""
