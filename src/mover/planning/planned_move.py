"""Define the entries of a plan: the moves, and the moves that the plan leaves out."""

from __future__ import annotations

from typing import NamedTuple


class PlannedMove(NamedTuple):
    """Name a replica and its target; source and size are None if the plan is from a document."""

    topic: str
    partition: int
    target: str
    source: str | None = None
    size_bytes: int | None = None


class SkippedMove(NamedTuple):
    """Name a move that a plan leaves out, and the reason; if `topic` is None, name a whole log dir.

    Attributes:
        is_unasked: whether the plan's document accepts any log dir for this replica ("any").
    """

    log_dir: str
    reason: str
    topic: str | None = None
    partition: int | None = None
    is_unasked: bool = False
