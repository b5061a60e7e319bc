"""Say what a row of the table of known failures has."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One known failure.

    Attributes:
        tests: `file::test`, below `tests/`.
        reason: why it cannot happen here, where there is no test.
    """

    failure: str
    tests: tuple[str, ...] = ()
    reason: str = ""
