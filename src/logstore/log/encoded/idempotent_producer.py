"""Append each record of a named source once, even if the caller appends it again after a crash.

Each record has a sequence number: 0, 1, 2, ... The log stores this number with each record. After
a crash, a caller has two ways to continue. The caller can read `next_sequence`, and append the
record with this number next. Or the caller can append earlier records again, with the same numbers.
If the log already has a record, the record is not written again, and its offset is returned.

    number of a record      epoch of its batch x 2^31 + sequence of the record in that epoch

The producer id is derived from the name, and is in a range that no broker uses. A producer with an
id of this range does not expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from logstore.arguments import flag, text, whole
from logstore.errors import OutOfOrderSequenceError
from logstore.format import layouts
from logstore.format.producers import EMBEDDED_ID_MIN, SEQUENCES, producer_of, stamp
from logstore.log.encoded import leader_appends
from logstore.log.producers import appends
from logstore.log.write import appending, encode, flush

if TYPE_CHECKING:
    from logstore.format.batch import Record
    from logstore.log.producers.producer_state import ProducerState
    from logstore.log.state import LogState


class LastAppend(NamedTuple):
    """The sequence number and the offset of the last record under a name."""

    sequence: int
    offset: int


class IdempotentProducer:
    """Append records under a name; `Log.idempotent_producer` makes this object.

    Any number of threads may use one producer, and any number of producers may have the same name.
    """

    def __init__(self, state: LogState, name: str) -> None:
        self._state = state
        self.name = text(name, "name")
        self.producer_id = EMBEDDED_ID_MIN | producer_of(name) >> 1

    def __repr__(self) -> str:
        return f"<IdempotentProducer {self.name!r} of {self._state.name}>"

    @property
    def last(self) -> LastAppend | None:
        """The last record under this name, which may be unflushed, or None if there is none."""
        known = self._known()
        if known is None or not known.batches:
            return None
        return LastAppend(_next_sequence(known) - 1, known.batches[0].last_offset)

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next record: the number of records appended so far."""
        return _next_sequence(self._known())

    def append(
        self,
        value: bytes | None,
        *,
        sequence: int | None = None,
        key: bytes | None = None,
        timestamp: encode.Timestamp | None = None,
        headers: encode.HeadersLike = (),
        durable: bool = False,
    ) -> int:
        """Append one record unless the log already has it; return its offset in the log.

        Args:
            sequence: the sequence number of the record. If the log already has a record with this
                number, nothing is written. If `sequence` is None, the record gets the next number,
                and is always written.

        Raises:
            The errors that `extend` raises.
        """
        keys = None if key is None else [key]
        return self.extend(
            [value], sequence=sequence, keys=keys, timestamps=timestamp, headers=[headers],
            durable=durable,
        ).start  # fmt: skip

    def extend(
        self,
        values: Iterable[bytes | None] | Iterable[Record],
        *,
        sequence: int | None = None,
        keys: Iterable[bytes | None] | None = None,
        timestamps: encode.Timestamps = None,
        headers: Iterable[encode.HeadersLike | None] | None = None,
        durable: bool = False,
    ) -> range:
        """Append all records or none; if the log already has them, only return their offsets.

        Args:
            values, keys, timestamps, headers, durable: as for `Log.extend`.
            sequence: the number of the first record, as for `append`.

        Raises:
            OutOfOrderSequenceError: records with smaller numbers are missing, or the log has the
                records already, but got them before the last five appends. The log knows only the
                offsets of the last five appends.
            ValueError: the log has the first of the records, but not all records.
            LogStoreError, TypeError: as for `Log.extend`.
        """
        given = None if sequence is None else whole(sequence, "sequence", 0)
        flag(durable, "durable")
        columns = _repeatable(appending.columns_of(values, keys, timestamps, headers))
        count = len(columns.values)
        if not count:
            self._state.check()
            end = self._state.log_end_offset
            return range(end, end)
        while True:
            known = self._known()
            expected = _next_sequence(known)
            first = expected if given is None else given
            if first != expected:
                found = _find(known, self.producer_id, first, count)
                if durable:
                    flush.flush_appended(self._state, found.stop)
                return found
            try:
                raw = b"".join(self._encode(columns, first))
                info = leader_appends.append_encoded(
                    self._state, raw, durable=durable, takes_known=False, is_checked=False
                )
            except OutOfOrderSequenceError:
                if self.next_sequence == expected:
                    raise
                continue  # another thread appended under this name meanwhile
            return info.offsets

    def _known(self) -> ProducerState | None:
        with self._state.lock:
            self._state.check()
            return appends.current(self._state).state_of(self.producer_id)

    def _encode(self, columns: appending.Columns, first: int) -> Iterator[bytes]:
        """Encode records as one batch, or as two batches if their numbers belong to two epochs."""
        start, count = 0, len(columns.values)
        while start < count:
            epoch, sequence = divmod(first + start, SEQUENCES)
            end = min(start + SEQUENCES - sequence, count)
            payload = appending.build(self._state, *columns.part(start, end))
            data = b"".join(layouts.frame(payload, 0, 0))
            yield stamp(data, self.producer_id, sequence, epoch)
            start = end


def _repeatable(columns: appending.Columns) -> appending.Columns:
    """Copy one-time iterables into lists, because the records may be encoded twice."""
    times, headers = columns.timestamps, columns.headers
    if isinstance(times, Iterable) and not hasattr(times, "__len__"):
        times = list(times)
    if headers is not None:
        headers = [encode.check_headers(pairs) for pairs in headers]
    return columns._replace(timestamps=times, headers=headers)


def _next_sequence(known: ProducerState | None) -> int:
    if known is None or not known.batches:
        return 0
    return known.epoch * SEQUENCES + known.last_sequence + 1


def _find(known: ProducerState | None, producer_id: int, first: int, count: int) -> range:
    """Find, by sequence number, the offsets of records that the log must already have."""
    epoch, expected = 0 if known is None else known.epoch, _next_sequence(known)
    for batch in () if known is None else known.batches:
        last = epoch * SEQUENCES + batch.last_sequence
        if last - batch.offset_delta <= first and first + count - 1 <= last:
            offset = batch.last_offset - (last - first)
            return range(offset, offset + count)
    if first < expected < first + count:
        raise ValueError(
            f"the log has the first {expected - first} of these {count} records already: append "
            f"those from sequence {expected} on"
        )
    raise OutOfOrderSequenceError(
        f"record {first} is already in the log, but not in the last five appends, so its offset "
        f"is unknown: continue with sequence {expected}" if first < expected else
        f"sequence {first} would leave a gap, because {expected} is the next sequence: append the "
        "missing records first",
        producer_id=producer_id, epoch=epoch, sequence=first, expected_sequence=expected,
    )  # fmt: skip
