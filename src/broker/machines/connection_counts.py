"""Limit the number of all connections, and the number of connections of each address."""

from __future__ import annotations

from collections import Counter


class ConnectionCounts:
    """Count connections by address. The caller must hold a lock during each call."""

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self.limit = limit
        self.limit_per_address = limit_per_address
        self.count = 0
        self._by_address: Counter[str] = Counter()

    def add(self, address: str) -> str:
        """Count a new connection and return ""; if the broker refuses it, return the reason."""
        if self.count >= self.limit:
            return f"there are {self.count} connections; the limit is max_connections={self.limit}"
        if self._by_address[address] >= self.limit_per_address:
            return (
                f"{address} has {self._by_address[address]} connections, and "
                f"max_connections_per_ip={self.limit_per_address}"
            )
        self.count += 1
        self._by_address[address] += 1
        return ""

    def remove(self, address: str) -> None:
        """Forget a connection that was counted."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
