"""Name what a plan moves, and what it leaves out."""

from __future__ import annotations

from typing import NamedTuple


class PlannedMove(NamedTuple):
    """Name one replica and its target; source and size are None in a plan read from a document."""

    topic: str
    partition: int
    target: str
    source: str | None = None
    size_bytes: int | None = None


class SkippedMove(NamedTuple):
    """Describe a move that a plan leaves out, and why; for a whole log dir, topic is None.

    Attributes:
        is_unasked: whether the plan's document asked for no move here.
    """

    log_dir: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    is_unasked: bool = False
