"""Define the types that a hosted replica exchanges with clients and followers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cluster.pure import exchange as x
from cluster.state import State
from logstore import AppendInfo, Log


class Produce(Protocol):
    """A client's request to append to one partition. Only the method `append` may wait."""

    def append(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the records in this leader epoch; raises LogStoreError or ValueError."""

    def acknowledge(self, end_offset: int) -> None:
        """Report that the records are in the log, up to this offset, with the requested acks."""

    def refuse(self, error: x.ProduceError) -> None:
        """Report that the records may not be replicated."""

    def fail(self, error: Exception) -> None:
        """Report that the log did not take the records."""


class Served(NamedTuple):
    """The answer of a leader: records from the fetch's offset on, or a divergence."""

    log: Log
    high_watermark: int
    diverging: tuple[int, int] | None = None
    log_start: int = 0


class IsrSizes(NamedTuple):
    """The sizes of an ISR: its members, the minimum for acks=all, and all replicas."""

    present: int
    min_isr: int
    replicas: int

    @classmethod
    def of(cls, state: State | None) -> IsrSizes:
        """Return the sizes in a state; without a state, all are 0."""
        if state is None:
            return cls(0, 0, 0)
        return cls(len(state.isr), state.min_isr, len(state.replicas))
