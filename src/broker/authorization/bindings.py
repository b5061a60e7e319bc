"""Define ACL bindings. A binding is an entry for a pattern of resources.

    Binding(Pattern(ResourceType.TOPIC, PatternType.PREFIXED, "orders-"),
            Entry("User:alice", "*", Operation.READ, Permission.ALLOW))

The numbers are those of the wire protocol. A LITERAL pattern matches the resource with the same
name. A LITERAL pattern with the name `*` matches every resource. A PREFIXED pattern matches each
resource whose name begins with the pattern's name. In an entry, the principal `User:*` means every
client, and the host `*` means every address. Any other host is one IP address; networks and names
of hosts are not supported.
"""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
EVERY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"  # the only resource of the type CLUSTER
# The longest texts of a binding, in UTF-8.
NAME_BYTES_MAX, PRINCIPAL_BYTES_MAX, HOST_BYTES_MAX = 4096, 1024, 255


class ResourceType(IntEnum):
    """The type of a protected resource; ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way to compare the name of a pattern; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation of a client; ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an entry allows or denies; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


# An ALLOW entry for any of the operations in a value also allows the operation in the key.
# A DENY entry for one operation denies only this operation.
IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
} | {
    Operation.DESCRIBE: frozenset({
        Operation.ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE,
        Operation.ALTER,
    }),
    Operation.DESCRIBE_CONFIGS: frozenset({
        Operation.ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    }),
}  # fmt: skip
# The operations that are possible for each type of resource.
OPERATIONS_ON: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip


class Pattern(NamedTuple):
    """The resources that an entry is about."""

    type: ResourceType
    pattern_type: PatternType
    name: str

    def matches(self, kind: ResourceType, name: str) -> bool:
        """Report whether the pattern matches a resource."""
        if self.type is not kind:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Entry(NamedTuple):
    """A rule that allows or denies an operation to a principal at a host."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Binding(NamedTuple):
    """One ACL: an entry, and the resources that the entry is about."""

    pattern: Pattern
    entry: Entry


# If the entries of a pattern cannot be read, this entry replaces them.
# This entry denies everything to every client.
CLOSED = Entry(EVERY_PRINCIPAL, WILDCARD, Operation.ALL, Permission.DENY)


def checked(binding: Binding) -> Binding:
    """Check that a binding can be stored, and return it.

    Raises:
        ValueError: a part of the binding is empty or too long, or is allowed only in a filter.
    """
    pattern, entry = binding
    if pattern.type is ResourceType.ANY:
        raise ValueError("a binding needs a resource type")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError("a binding needs a pattern of type LITERAL or PREFIXED")
    if entry.operation is Operation.ANY or entry.permission is Permission.ANY:
        raise ValueError("a binding needs one operation, and ALLOW or DENY")
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise ValueError(f"the only resource of type CLUSTER is {CLUSTER_NAME!r}")
    check_text("resource name", pattern.name, NAME_BYTES_MAX)
    check_text("principal", entry.principal, PRINCIPAL_BYTES_MAX)
    check_text("host", entry.host, HOST_BYTES_MAX)
    check_principal(entry.principal)
    return binding


def usual_host(host: str) -> str:
    """Return an address in the form in which the operating system writes addresses.

    Kafka writes `0:0:0:0:0:0:0:1` for `::1`. Both forms of the address must mean the same client.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def check_text(what: str, text: str, bytes_max: int) -> None:
    """Raise ValueError if a text is empty or longer than allowed."""
    size = len(text.encode())
    if not 0 < size <= bytes_max:
        raise ValueError(f"the {what} has {size} bytes; 1 to {bytes_max} are allowed")


def check_principal(principal: str) -> str:
    """Return a principal; raise ValueError if it does not have a type and a name."""
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise ValueError(f"{principal[:100]!r} is not a principal, such as User:alice")
    return principal
