"""Decide by a fixed set of ACL bindings. If the ACLs change, a new snapshot is made.

A lookup takes the entries of the literal name, of `*`, and of each prefix of the name. To find the
prefixes, the lookup cuts the name to each length that a prefix of this resource type has. The
entries of a pattern are grouped by principal, so the time of a lookup does not grow with the number
of principals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import (
    EVERY_PRINCIPAL,
    IMPLIED_BY,
    WILDCARD,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    usual_host,
)

# For each principal, its entries: each entry has a host, an operation and a permission.
Grouped = dict[str, tuple[tuple[str, Operation, Permission], ...]]
Entries = frozenset[Entry]


def _grouped(entries: Entries) -> Grouped:
    found: dict[str, list[tuple[str, Operation, Permission]]] = {}
    for principal, host, operation, permission in entries:
        found.setdefault(principal, []).append((usual_host(host), operation, permission))
    return {principal: tuple(rows) for principal, rows in found.items()}


class AclSnapshot:
    """The ACLs of one moment. The object is never changed, so any thread may read it.

    Attributes:
        entries: the entries of each pattern.
        count: the number of bindings.
    """

    def __init__(self, entries: Mapping[Pattern, Entries] | None = None) -> None:
        """Hold the entries of each pattern."""
        self.entries = {pattern: some for pattern, some in (entries or {}).items() if some}
        self.count = sum(len(some) for some in self.entries.values())
        self._grouped = {pattern: _grouped(some) for pattern, some in self.entries.items()}
        self._index()

    def _index(self) -> None:
        """Remember the lengths of the prefixes of each resource type."""
        lengths: dict[ResourceType, Counter[int]] = {kind: Counter() for kind in ResourceType}
        for kind, pattern_type, name in self.entries:
            if pattern_type is PatternType.PREFIXED:
                lengths[kind][len(name)] += 1
        self._lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    @classmethod
    def of(cls, bindings: Iterable[Binding]) -> AclSnapshot:
        """Make a snapshot of bindings."""
        found: dict[Pattern, set[Entry]] = {}
        for pattern, entry in bindings:
            found.setdefault(pattern, set()).add(entry)
        return cls({pattern: frozenset(some) for pattern, some in found.items()})

    def with_entries(self, changed: Mapping[Pattern, Entries]) -> AclSnapshot:
        """Return a snapshot in which some patterns have other entries."""
        made = AclSnapshot()
        made.entries, made._grouped = dict(self.entries), dict(self._grouped)
        made.count = self.count
        for pattern, some in changed.items():
            made.count += len(some) - len(made.entries.pop(pattern, ()))
            made._grouped.pop(pattern, None)
            if some:
                made.entries[pattern], made._grouped[pattern] = some, _grouped(some)
        made._index()
        return made

    def bindings(self, wanted: BindingFilter) -> Iterator[Binding]:
        """List the bindings that a filter selects."""
        for pattern, some in self.entries.items():
            if wanted.matches_pattern(pattern):
                for entry in some:
                    if wanted.matches_entry(entry):
                        yield Binding(pattern, entry)

    # --- decisions --------------------------------------------------------------------------------

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        """Report whether a client may do an operation; None if no pattern matches the resource."""
        found, is_allowed = False, False
        for groups in self._matching(kind, name):
            found = True
            verdict = _verdict(groups, principal, host, operation)
            if verdict is Permission.DENY:
                return False
            is_allowed = is_allowed or verdict is Permission.ALLOW
        return is_allowed if found else None

    def _matching(self, kind: ResourceType, name: str) -> Iterator[Grouped]:
        for literal in (name, WILDCARD):
            groups = self._grouped.get(Pattern(kind, PatternType.LITERAL, literal))
            if groups is not None:
                yield groups
        for length in self._lengths[kind]:
            if length > len(name):
                return
            groups = self._grouped.get(Pattern(kind, PatternType.PREFIXED, name[:length]))
            if groups is not None:
                yield groups

    def decide_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, *, default: bool
    ) -> bool:
        """Report whether a client may do an operation on at least one resource name.

        Args:
            default: the decision if no pattern matches a resource.
        """
        verdicts = {
            pattern: _verdict(groups, principal, host, operation)
            for pattern, groups in self._grouped.items()
            if pattern.type is kind
        }
        everything = Pattern(kind, PatternType.LITERAL, WILDCARD)
        if verdicts.get(everything) is Permission.DENY:
            return False
        if verdicts.get(everything) is Permission.ALLOW or (default and everything not in verdicts):
            return True  # some names match no PREFIXED pattern
        return any(
            verdict is Permission.ALLOW and not self._is_overruled(pattern, verdicts)
            for pattern, verdict in verdicts.items()
        )

    def _is_overruled(
        self, allowing: Pattern, verdicts: Mapping[Pattern, Permission | None]
    ) -> bool:
        """Report whether DENY entries cover every name that an allowing pattern matches.

        A literal DENY cannot cover a prefix, because many names begin with the prefix.
        """
        kind, _, name = allowing
        return any(
            verdicts.get(Pattern(kind, PatternType.PREFIXED, name[:length])) is Permission.DENY
            for length in self._lengths[kind]
            if length <= len(name)
        )


def _verdict(groups: Grouped, principal: str, host: str, operation: Operation) -> Permission | None:
    """Return whether the entries of a pattern allow a client; None if no entry names the client."""
    allowing, verdict = IMPLIED_BY[operation], None
    for one in (principal, EVERY_PRINCIPAL):
        for allowed_host, given, permission in groups.get(one, ()):
            if allowed_host not in (WILDCARD, host):
                continue
            if permission is Permission.DENY:
                if given in (operation, Operation.ALL):
                    return Permission.DENY
            elif given in allowing:
                verdict = Permission.ALLOW
    return verdict
