"""Say what was found wrong in a log, and what opening it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Problem(NamedTuple):
    """Tell of damage in a log.

    Attributes:
        path, position, end_position: the bytes; equal positions when bytes are missing.
        offset, end_offset: the offsets that cannot be read; equal when none is lost.
    """

    path: str
    position: int
    end_position: int
    reason: str
    offset: int
    end_offset: int

    def __str__(self) -> str:
        lost = self.end_offset - self.offset
        return f"{self.path} at position {self.position}: {self.reason} ({lost} offsets lost)"


@dataclass
class RecoveryEntry:
    """Tell what opening one log found and did.

    Attributes:
        state: "clean" nothing to do, "recovered" scanned after a crash, "corrupt" see `problems`.
        cut_bytes: size of the torn tail that was cut; 0 for none.
    """

    topic: str
    partition: int
    log_dir: str
    state: str = "clean"
    cut_bytes: int = 0
    cut_reason: str = ""
    scanned_bytes: int = 0
    scanned_batches: int = 0
    rebuilt_indexes: int = 0
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
