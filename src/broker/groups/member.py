"""Hold what a group knows of one member."""

from __future__ import annotations

from typing import Any

from broker.groups.exchange import Joining


class Member:
    """One member of a group.

    Attributes:
        deadline: when its session ends, unless it sends something earlier.
        joining, syncing: the request with which it waits for the others; None if it does not wait.
        is_new: whether it waits for its first generation.
    """

    __slots__ = (
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
        """Take over what a request says of the member; its instance cannot change."""
        self.client_id = asked.client_id
        self.client_host = asked.client_host
        self.rebalance_timeout = asked.rebalance_timeout
        self.session_timeout = asked.session_timeout
        self.protocols = asked.protocols

    def hear(self, now: float) -> None:
        """Note that the member lives; a new one has more time, until its first generation."""
        if not self.is_new:
            self.deadline = now + self.session_timeout

    def has_expired(self, now: float) -> bool:
        """Report whether its session has ended; a member whose request waits sends nothing."""
        is_waiting = self.joining is not None or self.syncing is not None
        return self.deadline <= now and (self.is_new or not is_waiting)

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return what the member said with a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    @property
    def size_bytes(self) -> int:
        """About the bytes that it takes in the record of its group."""
        names = (self.id, self.instance_id or "", self.client_id, self.client_host)
        largest = max((len(data) for _, data in self.protocols), default=0)
        return 64 + sum(len(name.encode()) for name in names) + largest + len(self.assignment)
