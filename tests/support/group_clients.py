"""Behave as Kafka's consumers do: what they ask of a group, and what they keep of its answers."""

from __future__ import annotations

from typing import Any

from broker.groups.exchange import JoinAnswer, Joining, SyncAnswer, Syncing

Protocols = tuple[tuple[str, bytes], ...]


class Client:
    """One process with one consumer; it never sends a second request before the answer.

    Attributes:
        stage: what it does next: "join", "sync" or "stable", where it sends heartbeats.
        heard: when the group has last heard of it; `waits_since`: when it began to wait.
        is_in: whether it was told that it is in a generation, and nothing else since.
        sent: the protocols of its last join.
    """

    def __init__(self, instance: str | None, protocols: Protocols, **limits: Any) -> None:
        self.instance, self.protocols = instance, protocols
        self.session: float = limits["session"]
        self.rebalance: float = limits["rebalance"]
        self.version: int = limits["version"]
        self.member_id, self.generation, self.stage = "", -1, "join"
        self.told: JoinAnswer | None = None
        self.ticket: Ticket | None = None
        self.heard = self.waits_since = 0.0
        self.is_alive, self.is_in = True, False
        self.sent: Protocols = ()

    def joining(self) -> Joining:
        return Joining(
            self.member_id, self.instance, "client", "/host", self.rebalance, self.session,
            "consumer", self.protocols, self.version >= 4, self.version >= 9,
        )  # fmt: skip

    def syncing(self, size: int = 4) -> Syncing:
        given = {}
        if self.told is not None and self.told.members and not self.told.skips_assignment:
            for number, (member_id, _, _) in enumerate(self.told.members):
                given[member_id] = f"{self.generation}/{number}/{member_id}".encode() + bytes(size)
        protocol = None if self.told is None else self.told.protocol
        return Syncing(
            self.member_id, self.instance, self.generation, "consumer", protocol, given
        )  # fmt: skip

    def forget(self, *, keeps_id: bool = False) -> None:
        """Begin anew, after an error."""
        self.member_id = self.member_id if keeps_id else ""
        self.generation, self.stage, self.told, self.is_in = -1, "join", None, False


class Ticket:
    """A request that waits, or waited; it is answered once."""

    def __init__(self, client: Client, kind: str, at: float) -> None:
        self.client, self.kind, self.at = client, kind, at
        self.answer: JoinAnswer | SyncAnswer | None = None


class Generation:
    """What the members of one generation were told."""

    def __init__(self, answer: JoinAnswer, at: float) -> None:
        self.protocol, self.leader, self.at = answer.protocol, answer.leader_id, at
        self.informed: set[str] = set()  # who got the list of the members
        self.assigned: dict[str, bytes] | None = None
        self.synced: set[str] = set()  # the first ids of those that asked for an assignment
