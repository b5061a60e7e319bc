"""Describe the damage in a log, and the changes that the opening of the log made."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class DamageName(enum.StrEnum):
    """The kinds of damage; docs/OPERATIONS.md says what to do about each kind."""

    CORRUPTION = "corruption"
    HOLE = "hole"
    START_BEYOND_END = "start beyond end"
    FALLING_EPOCHS = "falling epochs"
    RESURRECTED_PARTITION = "resurrected partition"
    LOST_CONFIGURATION = "lost configuration"


REMEDIES = {
    DamageName.CORRUPTION: "logstore repair {0} {1} moves the damaged bytes to another file",
    DamageName.HOLE: "logstore repair {0} {1} marks the offsets as lost; all records are kept",
    DamageName.START_BEYOND_END: (
        "opening the log mends this, and only deleted records are lost; if you deleted this "
        "partition, run logstore delete {0} {1}"
    ),
    DamageName.FALLING_EPOCHS: (
        "logstore repair {0} {1} raises the leader epochs that are lower than an earlier epoch; "
        "the records do not change"
    ),
    DamageName.RESURRECTED_PARTITION: (
        "if you deleted this partition, logstore delete {0} {1} removes it again. If you did not "
        "delete it, logstore repair {0} {1} (or promote, if the replica is incomplete) accepts "
        "it in its present state"
    ),
    DamageName.LOST_CONFIGURATION: (
        "no record is lost; logstore alter {0} {1} KEY=VALUE... sets the configuration again, or "
        "logstore repair {0} {1} accepts the default configuration"
    ),
}


class Problem(NamedTuple):
    """Damage in a log.

    Attributes:
        path, position, end_position: where the damaged bytes are; if bytes are missing, both
            positions are equal.
        offset, end_offset: the range of offsets that cannot be read; if no record is lost, both
            numbers are equal.
        name: the kind of damage.
    """

    path: str
    position: int
    end_position: int
    reason: str
    offset: int
    end_offset: int
    name: DamageName = DamageName.CORRUPTION

    def remedy(self, topic: str, partition: int) -> str:
        """Describe what the user can do about the damage."""
        return REMEDIES[self.name].format(topic, partition)

    def __str__(self) -> str:
        lost = self.end_offset - self.offset
        where = f"{self.path} at position {self.position}"
        return f"{self.name} in {where}: {self.reason} ({lost} offsets lost)"


@dataclass
class RecoveryEntry:
    """The damage that the opening of one log found, and the changes that the opening made.

    Attributes:
        state: "clean" if recovery had nothing to do; "recovered" if the log was scanned after a
            crash; "corrupt" if there are `problems`.
        cut_bytes: size of the torn tail that was cut; 0 if no tail was cut.
        problems: damage that prevents appends until `repair`.
        findings: damage that loses no record and does not prevent appends.
        flushed_end: where the flushed records end, as far as recovery knows. If flushed records are
            missing at the end, this offset is after the log end.
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
    findings: list[Problem] = field(default_factory=list)
    flushed_end: int = 0

    def checkpoint_of(self, recovery_point: int) -> int:
        """Return the recovery point that the checkpoint gets.

        Until a repair, the checkpoint must show that flushed records are missing. If the recovery
        point were at the log end, the next start would treat the damage as a torn tail, and new
        records would get the offsets of the missing records.
        """
        return max(recovery_point, self.flushed_end) if self.problems else recovery_point
