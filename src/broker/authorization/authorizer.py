"""Decide by the present ACLs what clients may do, and cache the decisions.

New ACLs and an empty cache replace the old ACLs and the old cache in one step. So no decision is
used after its ACLs have changed. Until the ACLs are read for the first time, only super users may
do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.authorization.acl_snapshot import AclSnapshot
from broker.authorization.bindings import OPERATIONS_ON, Operation, ResourceType, check_principal

CACHED_MAX = 10_000
CACHED_NAME_MAX = 256  # if a name or principal is longer, its decision is not kept

ALL_BITS = {kind: sum(1 << one for one in some) for kind, some in OPERATIONS_ON.items()}

Key = tuple[str, str, Operation, ResourceType, str | None]


class AuthorizerSettings(NamedTuple):
    """Configure an authorizer.

    Attributes:
        super_users: these principals may do everything.
        allows_if_no_acl: whether every client may do everything with a resource that has no ACLs.
    """

    super_users: frozenset[str] = frozenset()
    allows_if_no_acl: bool = False


def parse_super_users(text: str) -> frozenset[str]:
    """Read a list such as `User:alice;User:CN=b,O=c`. Raises ValueError."""
    parts = [one.strip() for one in text.split(";")]
    return frozenset(check_principal(one) for one in parts if one)


class _State(NamedTuple):
    """The ACLs, and the decisions that were made from them."""

    snapshot: AclSnapshot | None
    decisions: dict[Key, bool]


class Authorizer:
    """Decide what clients may do.

    Threads: any thread may call any method. `_state` is replaced as a whole. `_state.decisions`
    changes only in two ways: an entry is added, or all entries are cleared.
    """

    def __init__(self, settings: AuthorizerSettings, cached_max: int = CACHED_MAX) -> None:
        """Begin without ACLs. Until `replace` is called, only super users may do anything."""
        self.settings = settings
        self._cached_max = cached_max
        self._state = _State(None, {})

    @property
    def snapshot(self) -> AclSnapshot | None:
        """The ACLs of this moment; None before they are read."""
        return self._state.snapshot

    @property
    def cached_count(self) -> int:
        """The number of cached decisions."""
        return len(self._state.decisions)

    def replace(self, snapshot: AclSnapshot | None) -> None:
        """Use these ACLs for all later decisions; None means that the ACLs are not known."""
        self._state = _State(snapshot, {})

    def may(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Report whether a client may do an operation on a resource."""
        state = self._state
        known = state.decisions.get((principal, host, operation, kind, name))
        if known is not None:
            return known
        if principal in self.settings.super_users:
            return True
        if state.snapshot is None:
            return False
        decision = state.snapshot.decide(principal, host, operation, kind, name)
        if decision is None:
            decision = self.settings.allows_if_no_acl
        return self._kept(state, (principal, host, operation, kind, name), decision)

    def may_with_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Report whether a client may do an operation on at least one resource of a type."""
        state, default = self._state, self.settings.allows_if_no_acl
        known = state.decisions.get((principal, host, operation, kind, None))
        if known is not None:
            return known
        if principal in self.settings.super_users:
            return True
        if state.snapshot is None:
            return False
        decision = state.snapshot.decide_any(principal, host, operation, kind, default=default)
        return self._kept(state, (principal, host, operation, kind, None), decision)

    def _kept(self, state: _State, key: Key, decision: bool) -> bool:
        """Cache a decision; if the cache is full, clear it first."""
        if len(key[0]) <= CACHED_NAME_MAX and len(key[4] or "") <= CACHED_NAME_MAX:
            if len(state.decisions) >= self._cached_max:
                state.decisions.clear()
            state.decisions[key] = decision
        return decision


class TopicViewer(NamedTuple):
    """The topics that one client may see. Two viewers are equal if their clients are equal."""

    authorizer: Authorizer
    principal: str
    host: str

    @property
    def version(self) -> object:
        """An object that is replaced when the ACLs change."""
        return self.authorizer.snapshot

    def sees(self, name: str) -> bool:
        """Report whether the client may DESCRIBE a topic."""
        return self.authorizer.may(
            self.principal, self.host, Operation.DESCRIBE, ResourceType.TOPIC, name
        )


class Rights:
    """The rights of one client, during one request."""

    __slots__ = ("_authorizer", "_host", "_principal", "_report", "_request")

    def __init__(
        self,
        authorizer: Authorizer | None,
        principal: str,
        host: str,
        request: str,
        report: Callable[[str, str], object],
    ) -> None:
        """Use an authorizer. If `authorizer` is None, the client may do everything.

        Args:
            request: the name of the API, for the log.
            report: if the client named the resource, this function gets the kind and the text of
                each denial.
        """
        self._authorizer, self._principal, self._host = authorizer, principal, host
        self._request, self._report = request, report

    def sees(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Report whether the client may do an operation. Do not log a denial."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.may(
            self._principal, self._host, operation, kind, name
        )

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Report whether the client may do an operation on a resource that it has named."""
        return self.sees(operation, kind, name) or self._denied(operation, kind, name)

    def sees_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Report whether the client may do an operation on at least one resource of a type."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.may_with_any(
            self._principal, self._host, operation, kind
        )

    def viewer(self) -> TopicViewer | None:
        """Return a viewer, which is valid after the request; None if the client sees all topics."""
        if self._authorizer is None:
            return None
        return TopicViewer(self._authorizer, self._principal, self._host)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the operations that the client may do with a resource: bit N for operation N."""
        if self._authorizer is None:
            return ALL_BITS[kind]
        return sum(1 << one for one in OPERATIONS_ON[kind] if self.sees(one, kind, name))

    def _denied(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        thing = kind.name.lower().replace("_", " ")
        self._report(
            f"denied {operation.name} {kind.name}",
            f"{self._principal[:249]!r} at {self._host} has no right to {operation.name} the "
            f"{thing} {name[:249]!r}, which {self._request} needs",
        )
        return False


EVERYTHING = Rights(None, "", "", "", lambda kind, text: None)
