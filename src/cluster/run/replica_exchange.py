"""Define the types that a hosted replica exchanges with clients, followers and its broker."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from cluster.pure import exchange as x
from cluster.state import State
from logstore import AppendInfo, Log


class Produce(Protocol):
    """A client's request to append to one partition. Only the method `append` may wait."""

    def append(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the records in this leader epoch. Raises LogStoreError or ValueError."""

    def acknowledge(self, end_offset: int) -> None:
        """Report that the records before this offset are acknowledged, as `acks` requires."""

    def refuse(self, error: x.ProduceError) -> None:
        """Report that perhaps some replicas lack the records."""

    def fail(self, error: Exception) -> None:
        """Report that the log refused the records."""


class Served(NamedTuple):
    """The answer of a leader: a divergence, or records that begin at the offset of the fetch."""

    log: Log
    high_watermark: int
    diverging: tuple[int, int] | None = None
    log_start: int = 0


class IsrSizes(NamedTuple):
    """The number of members of the ISR, the minimum for acks=all, and the number of replicas."""

    present: int
    min_isr: int
    replicas: int

    @classmethod
    def of(cls, state: State | None) -> IsrSizes:
        """Return the sizes in a state. If there is no state, all sizes are 0."""
        if state is None:
            return cls(0, 0, 0)
        return cls(len(state.isr), state.min_isr, len(state.replicas))


class Outbox(Protocol):
    """Carry out the effects outside the replica. No method waits, or calls the replica."""

    def to_controller(self, name: str, request: Any) -> None:
        """Send an answer or a proposal to the controller."""

    def flush_soon(self, replica: Any) -> None:
        """Call `replica.flush` in another thread."""

    def changed_role(self, replica: Any) -> None:
        """Handle a change of the replica's role, leader or log dir, if there was one."""

    def may_fetch(self, replica: Any) -> None:
        """Let a follower fetch at once, because it was flushed, or moved to another log dir."""

    def alarm(self, name: str, number: int, reason: str) -> None:
        """Report that a replica has stopped, and an operator has to check it."""
