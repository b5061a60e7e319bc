"""Limit the number of all connections, and the number of connections of each address.

The connections of other brokers may have a limit of their own. So clients cannot prevent brokers
from connecting, as in Kafka (KIP-402).
"""

from __future__ import annotations

from collections import Counter


class ConnectionCounts:
    """Count connections by address. The caller must hold a lock during each call."""

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self.limit = limit
        self.limit_per_address = limit_per_address
        self.count = self.peer_count = 0
        self._by_address: Counter[str] = Counter()

    def add(self, address: str, *, is_peer: bool = False) -> str:
        """Count a new connection and return ""; if it is refused, return only the reason.

        Args:
            is_peer: whether the connection is at a listener that only brokers use.
        """
        count = self.peer_count if is_peer else self.count
        if count >= self.limit:
            return f"there are {count} connections; the limit is max_connections={self.limit}"
        if self._by_address[address] >= self.limit_per_address:
            return (
                f"{address} has {self._by_address[address]} connections, and "
                f"max_connections_per_ip={self.limit_per_address}"
            )
        if is_peer:
            self.peer_count += 1
        else:
            self.count += 1
        self._by_address[address] += 1
        return ""

    def remove(self, address: str, *, is_peer: bool = False) -> None:
        """Forget a connection that was counted."""
        if is_peer:
            self.peer_count -= 1
        else:
            self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
