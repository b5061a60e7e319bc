"""Columns of cells come back cell by cell, in one go, and in parts."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.columnar.columns import (
    HEAD,
    BytesColumn,
    decode_column,
    encode_cells,
    encode_column,
    together,
)

CELLS = st.one_of(
    st.lists(st.one_of(st.none(), st.binary(max_size=20))),
    st.lists(st.binary(min_size=3, max_size=3)),
    st.lists(st.just(b"")),
    st.lists(st.none()),
)


@given(cells=CELLS)
def test_cells_come_back(cells: list[bytes | None]) -> None:
    """Cells are read as a whole, one by one, from the end and as a slice; encoded again, too."""
    data = b"".join(encode_cells(cells))
    assert len(data) % 8 == 0
    column, end = decode_column(data, 0, len(data), len(cells))
    assert end == len(data) and len(column) == len(cells)
    assert column == cells and list(column) == column.to_list() == cells
    assert [column.cell(at) for at in range(len(cells))] == cells
    assert [column[at - len(cells)] for at in range(len(cells))] == cells
    assert column[1:-1] == cells[1:-1]
    assert column.is_valid.tolist() == [cell is not None for cell in cells]
    assert not cells or b"".join(encode_column(column)) == data
    with pytest.raises(IndexError):
        column[len(cells)]


@given(cells=CELLS)
def test_no_part_of_a_column_is_one(cells: list[bytes | None]) -> None:
    """A column that must end before its data is refused."""
    data = b"".join(encode_cells(cells))
    column, _ = decode_column(data, 0, len(data), len(cells))
    least = len(data) - (-len(column.data) % 8)
    for end in range(least):
        with pytest.raises(ValueError, match="batch"):
            decode_column(data, 0, end, len(cells))


@pytest.mark.parametrize("cells", [["a"], [1], [b"a", None, "b"], [array("q", [1, 2])]])
def test_what_is_no_bytes_is_refused(cells: Any) -> None:
    """Text, numbers and arrays of wider items are refused, also next to nulls."""
    with pytest.raises(TypeError):
        encode_cells(cells)


def test_columns_that_follow_one_another_become_one() -> None:
    """Cells of one size in one buffer are merged without a copy; other columns stay unchanged."""
    buffer = b"abcdefgh"
    parts = [BytesColumn(buffer, 2, 1, 0, 0, at, at + 2) for at in (0, 2, 6)]
    other = BytesColumn(bytes(buffer[:2]) + b"x", 2, 1, 0, 0, 0, 2)
    mixed = decode_column(data := b"".join(encode_cells([b"a", b"bc"])), 0, len(data), 2)[0]
    found = list(together([*parts, other, mixed, mixed]))
    assert [column.to_list() for column in found] == [
        [b"a", b"b", b"c", b"d"], [b"g", b"h"], [b"a", b"b"], [b"a", b"bc"], [b"a", b"bc"],
    ]  # fmt: skip
    assert found[0].buffer is buffer and list(together([])) == []


def test_regression_an_empty_column_may_claim_any_width() -> None:
    """NumPy has no type of this size, so a read raised a TypeError."""
    data = HEAD.pack(0, 3_672_850_860)
    column, _ = decode_column(data, 0, len(data), 0)
    assert column.to_list() == [] and column.cell_bytes == 0
