"""Hold the data of one member of a group."""

from __future__ import annotations

from typing import Any

from broker.groups.exchange import Joining


class Member:
    """One member of a group.

    Attributes:
        deadline: the time when the member's session ends, unless the member sends a request
            earlier.
        joining, syncing: the member's JoinGroup and SyncGroup requests that wait for other members;
            None if no such request waits.
        is_new: whether the member waits for its first generation.
    """

    __slots__ = (
        "_asked_bytes",
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "id",
        "instance_id",
        "is_new",
        "joining",
        "protocols",
        "rebalance_timeout",
        "session_timeout",
        "syncing",
    )

    def __init__(self, member_id: str, asked: Joining) -> None:
        self.id = member_id
        self.instance_id = asked.instance_id
        self.assignment = b""
        self.deadline = 0.0
        self.joining: Any = None
        self.syncing: Any = None
        self.is_new = False
        self.update(asked)

    def update(self, asked: Joining) -> None:
        """Update the member from a request. The instance id stays the same."""
        self.client_id = asked.client_id
        self.client_host = asked.client_host
        self.rebalance_timeout = asked.rebalance_timeout
        self.session_timeout = asked.session_timeout
        self.protocols = asked.protocols
        self._asked_bytes = self._size()

    def hear(self, now: float) -> None:
        """Remember that the member is alive. A new member keeps its longer deadline."""
        if not self.is_new:
            self.deadline = now + self.session_timeout

    def has_expired(self, now: float) -> bool:
        """Report whether the member's session has ended.

        While a request of a member waits, the session does not end, except for a new member.
        """
        is_waiting = self.joining is not None or self.syncing is not None
        return self.deadline <= now and (self.is_new or not is_waiting)

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return the bytes that the member sent with a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def size_bytes(self) -> int:
        """The approximate size of the member in the record of its group."""
        return self._asked_bytes + len(self.assignment)

    def _size(self) -> int:
        """Return the approximate size of the member without its assignment.

        The group's record contains only one protocol of the member, so the size includes only the
        largest protocol. But all protocols are in memory, and a member may have a thousand small
        protocols. So the size includes a quarter of the size of all protocols instead, if this is
        larger.
        """
        names = (self.id, self.instance_id or "", self.client_id, self.client_host)
        sizes = [len(name) + len(data) for name, data in self.protocols]
        largest = max(0, *sizes, sum(sizes) // 4)
        return 64 + sum(len(name.encode()) for name in names) + largest
