"""Tell the brokers of a cluster from its other clients, by their principals."""

from __future__ import annotations

from collections.abc import Iterable


class PeerRule:
    """The principals whose requests between brokers are obeyed.

    Attributes:
        is_open: whether nobody proves who it is, so that any client may send such requests.
    """

    def __init__(self, principals: Iterable[str] | None) -> None:
        """Remember the principals; None means that any client may be a broker."""
        self.is_open = principals is None
        self._principals = frozenset(principals or ())

    def accepts(self, principal: str) -> bool:
        """Report whether a client with this principal may send the requests of brokers."""
        return self.is_open or principal in self._principals


ANYBODY = PeerRule(None)
