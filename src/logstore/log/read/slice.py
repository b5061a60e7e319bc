"""Present a range of a log as a sequence that reads records only when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, overload

from logstore.arguments import flag, whole
from logstore.format.batch import Record, RecordBatch

if TYPE_CHECKING:
    import pyarrow

    from logstore.log.replica import Replica


class SlicedLog(Protocol):
    """The public methods of a log that a slice uses."""

    topic: str
    partition: int

    def record_at(self, offset: int) -> Record:
        """Give one record."""

    def read_batches(
        self, offset: int, *, end_offset: int, zero_copy: bool
    ) -> Iterator[RecordBatch]:
        """Yield a range of offsets as batches of columns."""


class LogSlice:
    """The offsets `start..stop` of a log; `log[start:stop]` makes this object.

    A slice is lazy. The length of a slice counts offsets, as the length of a log does. Iterating
    over a slice gives records; `read_batches` gives columns. pandas, Polars, DuckDB and pyarrow
    read a slice directly, through the Arrow stream capsule.
    """

    # A slice is not a collections.abc.Sequence, because Polars reads such an object item by item.
    # Polars uses the Arrow capsule only for objects of other types.

    __slots__ = ("log", "start", "stop")

    def __init__(self, log: SlicedLog, start: int, stop: int) -> None:
        self.log = log
        self.start = start
        self.stop = max(start, stop)

    def __len__(self) -> int:
        return self.stop - self.start

    def __repr__(self) -> str:
        return f"LogSlice({self.log.topic}-{self.log.partition}[{self.start}:{self.stop}])"

    def read_batches(self, *, zero_copy: bool = False) -> Iterator[RecordBatch]:
        """Yield the records as batches of columns."""
        flag(zero_copy, "zero_copy")
        if self.stop == self.start:
            return iter(())
        return self.log.read_batches(self.start, end_offset=self.stop, zero_copy=zero_copy)

    def __iter__(self) -> Iterator[Record]:
        for batch in self.read_batches():
            yield from batch.records(self.log.topic, self.log.partition)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LogSlice: ...
    def __getitem__(self, index: int | slice) -> Record | LogSlice:
        """Return a record or a smaller slice; index 0 is the first offset of this slice."""
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ValueError("a log cannot be sliced with a step: use step 1")
            size = len(self)
            start, stop = bound(index.start, 0, size, 0), bound(index.stop, 0, size, size)
            return LogSlice(self.log, self.start + start, self.start + stop)
        index = whole(index, "an index")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is not in a slice of length {len(self)}")
        return self.log.record_at((self.stop if index < 0 else self.start) + index)

    def to_arrow(self) -> pyarrow.Table:
        """Read all records into a pyarrow Table (extra `arrow`)."""
        from logstore.arrow import to_table

        return to_table(self.read_batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        from logstore.arrow import to_reader

        return to_reader(self.read_batches()).__arrow_c_stream__(requested_schema)


def bounds_of(state: Replica, index: slice) -> tuple[int, int]:
    """Return the offsets of `log[start:stop]`; a start of 0 or more must be in the log.

    If `start` is 0 or more, but before the log start or after the log end, the slice would silently
    lack records that the caller expects. So an error is raised. If `start` is negative or missing,
    the slice contains the wanted records that the log still has. `stop` is only an upper bound: if
    it is after the log end, the slice ends at the log end.

    Raises:
        OffsetOutOfRangeError: `start` is 0 or more, and before the log start or after the log end.
    """
    if index.step not in (None, 1):
        raise ValueError("a log cannot be sliced with a step: use step 1")
    first, end = state.log_start_offset, state.log_end_offset
    start = bound(index.start, first, end, first)
    if index.start is not None:
        wanted = whole(index.start, "a bound of a slice")
        if wanted >= 0 and wanted != start:
            raise state.out_of_range(wanted)
    return start, bound(index.stop, first, end, end)


def bound(value: int | None, start: int, end: int, default: int) -> int:
    """Limit a bound of a slice to a range, as Python's sequences do."""
    if value is None:
        return default
    offset = whole(value, "a bound of a slice")
    if offset < 0:
        offset += end
    return min(max(offset, start), end)
