"""Encode cells of bytes as one column, and view an encoded column (docs/FORMAT.md, section 4).

    u32 data_bytes | u32 cell_bytes | [starts u32 x (n + 1)] | [validity] | data

Each part is padded to a multiple of 8 bytes.

If all cells have the same size, the part `starts` is left out. Starts, validity and data are laid
out as in Arrow's `binary`. Cells are handled one by one in Python only if some cells are null.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

HEAD = struct.Struct("<II")
HEAD_BYTES = 8
VARIABLE = 0xFFFFFFFF
VARIABLE_WITH_NULLS = 0xFFFFFFFE
COLUMN_BYTES_MAX = 2**31 - 1
FEW_CELLS = 64  # up to this many cells, plain Python is faster than NumPy

Buffer = bytes | memoryview
PADDING = tuple(bytes(-size % 8) for size in range(8))


def padded(size_bytes: int) -> int:
    """Round a size up to the next multiple of 8."""
    return (size_bytes + 7) & ~7


def append_padded(parts: list[Buffer], data: Buffer) -> None:
    """Append a buffer, and zeros after it, so that the next buffer is aligned."""
    parts.append(data)
    rest = len(data) & 7
    if rest:
        parts.append(PADDING[rest])


def raw(array: NDArray[Any]) -> memoryview:
    """View a contiguous array as plain bytes."""
    return array.data.cast("B") if array.size else memoryview(b"")


# --- encoding -------------------------------------------------------------------------------------


def encode_cells(cells: Sequence[bytes | None]) -> list[Buffer]:
    """Encode a sequence of bytes-like cells as a column; a cell that is None is null.

    Raises:
        TypeError: a cell is neither bytes-like nor None.
    """
    try:
        data = b"".join(cells)  # type: ignore[arg-type]
    except TypeError:
        return _encode_with_nulls(cells)
    lengths = list(map(len, cells))  # type: ignore[arg-type]
    if not lengths:
        return [HEAD.pack(0, 0)]
    first = lengths[0]
    if first * len(lengths) == len(data) and lengths.count(first) == len(lengths):
        parts: list[Buffer] = [HEAD.pack(len(data), first)]
        append_padded(parts, data)
        return parts
    starts = np.zeros(len(lengths) + 1, np.int64)
    # NumPy reads numbers from an `array` in a quarter of the time that it needs for a list.
    np.cumsum(np.frombuffer(array("q", lengths), np.int64), out=starts[1:])
    if starts[-1] != len(data):
        raise TypeError("a value is an array whose items are wider than one byte: pass bytes")
    return encode_arrays(data, starts)


def _encode_with_nulls(cells: Sequence[bytes | None]) -> list[Buffer]:
    for cell in cells:
        if cell is not None and not isinstance(cell, bytes | bytearray | memoryview):
            raise TypeError(f"a value or key must be bytes or None, not {type(cell).__name__}")
    is_valid = np.fromiter((cell is not None for cell in cells), np.bool_, len(cells))
    filled = [b"" if cell is None else bytes(cell) for cell in cells]
    starts = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(list(map(len, filled)), out=starts[1:])
    return encode_arrays(b"".join(filled), starts, is_valid)


def encode_arrays(
    data: Buffer, starts: NDArray[Any], is_valid: NDArray[np.bool_] | None = None
) -> list[Buffer]:
    """Encode a column from its arrays.

    Args:
        data: the cells, one after the other.
        starts: shape (n + 1,), any integer type. The array begins with 0 and ends with `len(data)`.
        is_valid: shape (n,), False for each null cell. None if no cell is null.
    """
    if len(data) > COLUMN_BYTES_MAX:
        raise ValueError(f"a column of {len(data)} bytes does not fit into a batch")
    has_nulls = is_valid is not None and not is_valid.all()
    if not has_nulls and len(starts) > 1:
        cell_bytes = int(starts[1])
        if cell_bytes * (len(starts) - 1) == len(data) and bool(
            (starts[1:] - starts[:-1] == cell_bytes).all()
        ):
            parts: list[Buffer] = [HEAD.pack(len(data), cell_bytes)]
            append_padded(parts, data)
            return parts
    parts = [HEAD.pack(len(data), VARIABLE_WITH_NULLS if has_nulls else VARIABLE)]
    append_padded(parts, raw(np.ascontiguousarray(starts, np.uint32)))
    if has_nulls and is_valid is not None:
        append_padded(parts, raw(np.packbits(is_valid, bitorder="little")))
    append_padded(parts, data)
    return parts


# --- decoding -------------------------------------------------------------------------------------


class BytesColumn(Sequence["bytes | None"]):
    """Hold one column of a batch: a sequence of cells, each a bytes object, or None if it is null.

    `to_list()` and iteration create all cells at once. `data`, `starts` and `is_valid` are the
    underlying arrays, for NumPy and Arrow.
    """

    __slots__ = (
        "buffer",
        "cell_bytes",
        "cell_count",
        "data_end",
        "data_start",
        "starts_at",
        "validity_at",
    )

    def __init__(
        self,
        buffer: Buffer,
        count: int,
        cell_bytes: int,
        starts_at: int,
        validity_at: int,
        data_start: int,
        data_end: int,
    ) -> None:
        self.buffer = buffer
        self.cell_count = count
        self.cell_bytes = cell_bytes
        self.starts_at = starts_at
        self.validity_at = validity_at
        self.data_start = data_start
        self.data_end = data_end

    def __len__(self) -> int:
        return self.cell_count

    def __repr__(self) -> str:
        return f"BytesColumn({self.cell_count} cells, {self.data_end - self.data_start} bytes)"

    @property
    def is_fixed(self) -> bool:
        """Report whether every cell has `cell_bytes` bytes and no cell is null."""
        return self.cell_bytes < VARIABLE_WITH_NULLS

    @property
    def data(self) -> memoryview:
        """The cells, one after the other."""
        return memoryview(self.buffer)[self.data_start : self.data_end]

    @property
    def starts(self) -> NDArray[np.int32]:
        """Start of each cell in `data`: shape (cells + 1,), int32."""
        if self.is_fixed:
            return np.arange(self.cell_count + 1, dtype=np.int32) * np.int32(self.cell_bytes)
        return np.frombuffer(self.buffer, np.int32, self.cell_count + 1, self.starts_at)

    @property
    def validity(self) -> memoryview | None:
        """Arrow's validity bitmap, or None if no cell is null."""
        if self.cell_bytes != VARIABLE_WITH_NULLS:
            return None
        end = self.validity_at + (self.cell_count + 7) // 8
        return memoryview(self.buffer)[self.validity_at : end]

    @property
    def is_valid(self) -> NDArray[np.bool_]:
        """Whether each cell is not null: shape (cells,)."""
        bits = self.validity
        if bits is None:
            return np.ones(self.cell_count, np.bool_)
        octets = np.frombuffer(bits, np.uint8)
        return np.unpackbits(octets, count=self.cell_count, bitorder="little").astype(np.bool_)

    def to_list(self) -> list[bytes | None]:
        """Return a list of all cells: bytes, or None for a null cell."""
        count, cell_bytes = self.cell_count, self.cell_bytes
        if self.is_fixed:
            if count == 1:
                return [bytes(self.data)]
            if cell_bytes == 0:
                return [b"" for _ in range(count)]
            cells: list[bytes | None] = np.frombuffer(
                self.buffer, f"V{cell_bytes}", count, self.data_start
            ).tolist()
            return cells
        read = io.BytesIO(self.data).read
        cells = list(map(read, np.diff(self.starts).tolist()))
        if cell_bytes == VARIABLE_WITH_NULLS:
            for index in np.flatnonzero(~self.is_valid).tolist():
                cells[index] = None
        return cells

    def place(self) -> tuple[bytes, int, int, memoryview | None] | None:
        """Return where the cells are: buffer, first byte, size of each cell, start of each cell.

        If all cells have the same size, the starts are None. If some cells are null, or if the
        buffer is a memory map, return None.
        """
        if type(self.buffer) is not bytes or self.cell_bytes == VARIABLE_WITH_NULLS:
            return None
        starts = None
        if self.cell_bytes == VARIABLE:
            end = self.starts_at + 4 * (self.cell_count + 1)
            starts = memoryview(self.buffer)[self.starts_at : end].cast("I")
        return self.buffer, self.data_start, self.cell_bytes, starts

    def cell(self, index: int) -> bytes | None:
        """Return the cell at `index`, with `0 <= index < count`, without reading other cells."""
        cell_bytes = self.cell_bytes
        if cell_bytes < VARIABLE_WITH_NULLS:
            start = self.data_start + index * cell_bytes
            cell = self.buffer[start : start + cell_bytes]
            return cell if type(cell) is bytes else bytes(cell)
        if cell_bytes == VARIABLE_WITH_NULLS:
            bits = self.buffer[self.validity_at + (index >> 3)]
            if not bits >> (index & 7) & 1:
                return None
        start, end = HEAD.unpack_from(self.buffer, self.starts_at + 4 * index)
        cell = self.buffer[self.data_start + start : self.data_start + end]
        return cell if type(cell) is bytes else bytes(cell)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self.cell(i) for i in range(*index.indices(self.cell_count))]
        if not -self.cell_count <= index < self.cell_count:
            raise IndexError(f"cell {index} of a column of {self.cell_count}")
        return self.cell(index + self.cell_count if index < 0 else index)

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BytesColumn):
            return self.to_list() == other.to_list()
        if isinstance(other, Sequence):
            return self.to_list() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


def decode_column(buffer: Buffer, position: int, end: int, count: int) -> tuple[BytesColumn, int]:
    """View a column of `count` cells at `position`; return the column and its end.

    The starts are checked here, because code that later reads the column, such as Arrow, does not
    check them.

    Raises:
        ValueError: the column does not fit before `end`, or its cells do not follow one another.
    """
    column, behind = _column_at(buffer, position, end, count)
    if column.cell_bytes >= VARIABLE_WITH_NULLS and not _follow(column):
        raise ValueError("a column's cells do not follow one another")
    return column, behind


def column_of_own(data: Buffer, count: int) -> BytesColumn:
    """View a column that this process has just encoded; check only the column's size."""
    return _column_at(data, 0, len(data), count)[0]


def _follow(column: BytesColumn) -> bool:
    """Report whether the starts begin at 0, never decrease, and end at the end of the data."""
    buffer, at, count = column.buffer, column.starts_at, column.cell_count
    if count <= FEW_CELLS:
        starts = memoryview(buffer)[at : at + 4 * (count + 1)].cast("I").tolist()
        return starts[0] == 0 and starts[-1] == len(column.data) and starts == sorted(starts)
    # The starts are compared as uint32, because differences of int32 could overflow.
    numbers = np.frombuffer(buffer, np.uint32, count + 1, at)
    is_whole = numbers[0] == 0 and numbers[-1] == len(column.data)
    return bool(is_whole and (numbers[1:] >= numbers[:-1]).all())


def _column_at(buffer: Buffer, position: int, end: int, count: int) -> tuple[BytesColumn, int]:
    if position + HEAD_BYTES > end:
        raise ValueError("a column begins after the end of its batch")
    data_bytes, cell_bytes = HEAD.unpack_from(buffer, position)
    position += HEAD_BYTES
    starts_at = validity_at = 0
    if cell_bytes >= VARIABLE_WITH_NULLS:
        starts_at = position
        position += padded(4 * (count + 1))
        if cell_bytes == VARIABLE_WITH_NULLS:
            validity_at = position
            position += padded((count + 7) // 8)
    elif cell_bytes * count != data_bytes:
        raise ValueError("the size of a column's data is not the sum of its cells' sizes")
    elif count == 0:
        cell_bytes = 0  # an empty column may claim any size, but NumPy and Arrow refuse large sizes
    data_end = position + data_bytes
    if data_end > end:
        raise ValueError("a column ends after the end of its batch")
    if data_bytes > COLUMN_BYTES_MAX:
        raise ValueError(f"a column of {data_bytes} bytes does not fit into a batch")
    column = BytesColumn(buffer, count, cell_bytes, starts_at, validity_at, position, data_end)
    return column, padded(data_end)


def together(columns: Iterable[BytesColumn]) -> Iterator[BytesColumn]:
    """Merge columns whose cells are adjacent and of one size; yield other columns unchanged."""
    held: BytesColumn | None = None
    for column in columns:
        if (
            held is not None
            and held.buffer is column.buffer
            and held.data_end == column.data_start
            and held.cell_bytes == column.cell_bytes < VARIABLE_WITH_NULLS
        ):
            held = BytesColumn(
                held.buffer, held.cell_count + column.cell_count, held.cell_bytes, 0, 0,
                held.data_start, column.data_end,
            )  # fmt: skip
            continue
        if held is not None:
            yield held
        held = column
    if held is not None:
        yield held


def encode_column(column: BytesColumn) -> list[Buffer]:
    """Encode a decoded column again."""
    is_valid = None if column.validity is None else column.is_valid
    return encode_arrays(column.data, column.starts, is_valid)
