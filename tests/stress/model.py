"""What a log must hold, one operation on it, and a promise that is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Key = tuple[str, int]


class State(NamedTuple):
    """What a log holds: its first offset, and its values from there on."""

    start: int
    values: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"{self.start}..{self.end} [{b' '.join(v.split(b':')[0] for v in self.values)!r}]"

    @property
    def end(self) -> int:
        return self.start + len(self.values)

    def cut(self, offset: int) -> State:
        return State(self.start, self.values[: offset - self.start])

    def begun_at(self, offset: int) -> State:
        return State(offset, self.values[offset - self.start :])

    def plus(self, *values: bytes) -> State:
        return State(self.start, (*self.values, *values))


class Step(NamedTuple):
    """One operation.

    Attributes:
        work: does it; raises AssertionError for a wrong answer.
        key: the partition that it changes, if any.
        after: what the partition is when the work returned; None: it is not there.
        between: what else it may be when the work was interrupted or raised, besides what it was.
        settle: what is done in any case, before the store is looked at.
    """

    name: str
    work: Callable[[], object]
    key: Key | None = None
    after: State | None = None
    between: Callable[[State | None], bool] = lambda state: False
    settle: Callable[[], object] = lambda: None


class Finding(AssertionError):
    """A promise that is broken."""
