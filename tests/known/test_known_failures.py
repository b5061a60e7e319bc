"""Every known failure of disks and logs has a test here, or a reason why it cannot happen."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from known.moves import MOVES
from known.table import DISKS, LOGS, ROWS

TESTS = Path(__file__).resolve().parents[1]


def test_no_row_is_left_out() -> None:
    """1 to 36 are about moves, 37 to 79 are about disks and log dirs, 80 to 112 about logs."""
    assert list(MOVES) == list(range(1, 37))
    assert list(DISKS) == list(range(37, 80))
    assert list(LOGS) == list(range(80, 113))


@pytest.mark.parametrize("number", ROWS)
def test_a_row_names_tests_that_exist_or_says_why_not(number: int) -> None:
    """A test that is renamed is renamed here too."""
    row = ROWS[number]
    assert bool(row.tests) is not bool(row.reason)
    for test in row.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        assert name in names, f"row {number}: there is no test {test}"
