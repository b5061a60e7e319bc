"""Refuse consumer groups: the brokers of a cluster do not coordinate them yet."""

from __future__ import annotations

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.shard import Shard
from broker.wire.error_codes import ErrorCode


class ClosedGroups(GroupCoordinator):
    """A coordinator that has no groups, and takes none; clients try again later."""

    def shards(self) -> list[Shard]:
        """Return no shard."""
        return []

    def shard_of(self, name: str) -> Shard:
        """Raise CoordinatorError."""
        raise CoordinatorError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "the brokers of a cluster do not coordinate groups yet",
        )
