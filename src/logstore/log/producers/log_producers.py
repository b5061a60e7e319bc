"""Hold the producers of a log that this process writes, and list the snapshots on the disk.

Invariant: if a batch below the log's recovery point has a producer, the log has a snapshot. So if
the log has no snapshot when it is opened, recovery looks for producers only in the part of the log
that it scans anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.log.producers.producer_state import Producers


class LogProducers:
    """The producers of one log.

    Attributes:
        known: the state of the producers; None until the log has a batch of a producer. Written
            under `lock`.
        is_torn: True if an append was interrupted between its write and the change of `known`. Then
            `known` may lack a batch of the log. The next use of `known` first rebuilds `known`.
            Written under `lock`.
        snapshots: the offsets of the snapshots on the disk, in order. Written under `flush_lock`.
    """

    __slots__ = ("is_torn", "known", "snapshots")

    def __init__(self) -> None:
        self.known: Producers | None = None
        self.is_torn = False
        self.snapshots: tuple[int, ...] = ()

    @property
    def are_known(self) -> bool:
        """Whether the log has, or had, a batch of a producer."""
        return self.known is not None or self.is_torn

    def replace(self, known: Producers | None) -> None:
        """Set the state of the producers, which must agree with the log.

        The caller must hold `lock`.
        """
        self.known = known
        self.is_torn = False
