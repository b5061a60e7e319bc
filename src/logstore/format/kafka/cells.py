"""Copy cells out of rows into columns: the keys or the values of many batches at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from logstore.format.columnar.columns import (
    VARIABLE,
    Buffer,
    BytesColumn,
    column_of_own,
    encode_arrays,
    encode_cells,
)
from logstore.format.kafka.bounds import Batches
from logstore.format.kafka.varints import Numbers


def column_of(cells: list[bytes | None] | list[bytes]) -> BytesColumn:
    """Create a column of cells."""
    return column_of_own(b"".join(encode_cells(cells)), len(cells))


def columns_of(batches: Batches, starts: Numbers, sizes: Numbers) -> list[BytesColumn | None]:
    """Return the cells of each batch as a column, or None for a batch in which all cells are null.

    Args:
        starts: the positions of the cells of all batches.
        sizes: the sizes of these cells; a null cell has size -1.
    """
    firsts = batches.firsts
    least, most = int(sizes.min()), int(sizes.max())
    if most < 0:
        return [None] * len(batches.counts)
    if least < 0:
        return [
            _with_nulls(batches, starts[first:end], sizes[first:end])
            for first, end in pairwise(firsts.tolist())
        ]
    cells = _back_to_back(batches, starts, sizes)
    if least == most:
        return [
            BytesColumn(cells, end - first, most, 0, 0, first * most, end * most)
            for first, end in pairwise(firsts.tolist())
        ]
    return _of_any_size(cells, firsts, sizes)


def _back_to_back(batches: Batches, starts: Numbers, sizes: Numbers) -> Buffer:
    """Copy cells one after the other; none of the cells is null."""
    size = int(sizes[0])
    if size and bool((sizes == size).all()):
        # An array of overlapping items: an item of this size begins at each position of the data.
        places = np.ndarray((len(batches.data) - size + 1,), f"V{size}", batches.data, 0, (1,))
        cells = places[starts].view(np.uint8).data
        # If there is only one batch, callers read single records.
        # For single records, slicing bytes is faster than slicing an array.
        return cells if len(batches.counts) > 1 else bytes(cells)
    data, stops = batches.data, (starts + sizes).tolist()
    return b"".join([data[start:stop] for start, stop in zip(starts.tolist(), stops, strict=True)])


def _of_any_size(cells: Buffer, firsts: Numbers, sizes: Numbers) -> list[BytesColumn | None]:
    """Return each batch's cells as a column; all columns are views of one buffer.

    The buffer contains the starts of the cells of all batches, then the cells.
    """
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    counts = np.diff(firsts)
    # Each batch has one more start than cells: the end of its last cell.
    numbers = np.arange(len(sizes) + len(counts)) - np.repeat(np.arange(len(counts)), counts + 1)
    relative = (ends[numbers] - np.repeat(ends[firsts[:-1]], counts + 1)).astype(np.uint32)
    laid = b"".join((relative.tobytes(), cells))
    first_cell = relative.nbytes
    places = zip(pairwise(firsts.tolist()), pairwise(ends[firsts].tolist()), strict=True)
    return [
        BytesColumn(
            laid,
            end - first,
            VARIABLE,
            4 * (first + number),
            0,
            first_cell + start,
            first_cell + stop,
        )
        for number, ((first, end), (start, stop)) in enumerate(places)
    ]


def _with_nulls(batches: Batches, starts: Numbers, sizes: Numbers) -> BytesColumn | None:
    """Copy the cells of one batch; some of the cells may be null."""
    is_valid = sizes >= 0
    if not is_valid.any():
        return None
    lengths = np.maximum(sizes, 0)
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    cells = _back_to_back(batches, starts, lengths)
    laid = b"".join(encode_arrays(cells, ends, None if is_valid.all() else is_valid))
    return column_of_own(laid, len(sizes))
