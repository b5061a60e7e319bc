"""Select ACL bindings, as DescribeAcls and DeleteAcls do.

In a filter, None and ANY match everything. A filter compares a principal and a host only as texts.
For example, a filter for `User:alice` does not find bindings for `User:*`.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.authorization.bindings import (
    WILDCARD,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)


class BindingFilter(NamedTuple):
    """The bindings that a client wants to see or to delete."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: Binding) -> bool:
        """Report whether the filter selects a binding."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Report whether the filter selects a pattern.

        If the type is MATCH, the filter selects each pattern that matches the resource with this
        name.
        """
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or _is_matched(pattern, self.name)
        is_type = self.pattern_type in (PatternType.ANY, pattern.pattern_type)
        return is_type and self.name in (None, pattern.name)

    def matches_entry(self, entry: Entry) -> bool:
        """Report whether the filter selects an entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def _is_matched(pattern: Pattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)
