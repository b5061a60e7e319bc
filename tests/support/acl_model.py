"""A naive authorizer: every rule in a line, every ACL looked at; and draws of small worlds."""

from __future__ import annotations

import random
from collections.abc import Iterable

from broker.authorization.bindings import (
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

PRINCIPALS = ("User:a", "User:b")
HOSTS = ("127.0.0.1", "::1")
NAMES = ("a", "ab", "abc", "*", "a*", "b", "")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
    Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS,
)  # fmt: skip
FRESH = "\x7f"  # no pattern's name has it
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def is_about(pattern: Pattern, kind: ResourceType, name: str) -> bool:
    """Report whether a pattern matches a resource."""
    if pattern.type != kind:
        return False
    if pattern.pattern_type == PatternType.PREFIXED:
        return name[: len(pattern.name)] == pattern.name
    return pattern.name in (name, "*")


def is_of(entry: Entry, principal: str, host: str) -> bool:
    """Report whether an entry is about a client."""
    return entry.principal in (principal, "User:*") and entry.host in (host, "*")


def may(
    bindings: Iterable[Binding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    """Decide as Kafka's documentation says."""
    of_resource = [one.entry for one in bindings if is_about(one.pattern, kind, name)]
    if not of_resource:
        return default
    of_client = [entry for entry in of_resource if is_of(entry, principal, host)]
    denied = {e.operation for e in of_client if e.permission == Permission.DENY}
    allowed = {e.operation for e in of_client if e.permission == Permission.ALLOW}
    if denied & {operation, Operation.ALL}:
        return False
    return bool(allowed & {operation, Operation.ALL, *IMPLYING.get(operation, ())})


def may_with_any(
    bindings: list[Binding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    *,
    default: bool,
) -> bool:
    """Try all names that differ: each pattern's, each with a letter more, and a fresh one."""
    named = {one.pattern.name for one in bindings}
    names = named | {name + FRESH for name in named} | {FRESH}
    return any(
        may(bindings, principal, host, operation, kind, name, default=default) for name in names
    )


def drawn_pattern(rng: random.Random) -> Pattern:
    """Draw a pattern; few names, so that many match one another."""
    name = rng.choice((*NAMES[:-1], "*"))
    kind = rng.choice((PatternType.PREFIXED, PatternType.LITERAL, PatternType.PREFIXED))
    return Pattern(rng.choice(KINDS), kind, name)


def drawn_entry(rng: random.Random) -> Entry:
    """Draw an entry."""
    return Entry(
        rng.choice((*PRINCIPALS, "User:*")),
        rng.choice((*HOSTS, "*", "*")),
        rng.choice((*OPERATIONS, Operation.ALL)),
        rng.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


def drawn_bindings(rng: random.Random) -> list[Binding]:
    """Draw a few bindings, some of which share a pattern."""
    patterns = [drawn_pattern(rng) for _ in range(rng.randrange(1, 5))]
    count = rng.randrange(0, 12)
    return [Binding(rng.choice(patterns), drawn_entry(rng)) for _ in range(count)]
