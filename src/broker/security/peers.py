"""Distinguish the brokers of a cluster from other clients by their principals."""

from __future__ import annotations

from collections.abc import Iterable


class PeerRule:
    """The principals that may send the requests between brokers.

    Attributes:
        is_open: whether any client may send such requests, because clients do not authenticate.
    """

    def __init__(self, principals: Iterable[str] | None) -> None:
        """Store the principals; None means that any client may send such requests."""
        self.is_open = principals is None
        self._principals = frozenset(principals or ())

    def accepts(self, principal: str) -> bool:
        """Report whether a client with this principal may send the requests of brokers."""
        return self.is_open or principal in self._principals


ANYBODY = PeerRule(None)
