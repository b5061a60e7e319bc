"""Write and read the documents that hold ACLs: each resource pattern has one document.

    literal/Topic/orders       the entries of a LITERAL pattern
    prefixed/Topic/orders-     the entries of a PREFIXED pattern
                 {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",
                                       "operation":"Read","host":"*"}]}

The JSON is the same as in Kafka's znodes. If the document of a pattern cannot be read, the pattern
is closed: no client may use its resources, because the document may have DENY entries.
"""

from __future__ import annotations

import json

from broker.authorization.bindings import (
    CLOSED,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    checked,
)

VERSION = 1


def _words(name: str) -> str:
    return name.title().replace("_", "")


KINDS = {_words(kind.name): kind for kind in ResourceType if kind is not ResourceType.ANY}
OPERATIONS = {_words(one.name): one for one in Operation if one is not Operation.ANY}
PERMISSIONS = {_words(one.name): one for one in Permission if one is not Permission.ANY}
PATTERN_TYPES = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}


def name_of(pattern: Pattern) -> str:
    """Return the name of the document with the entries of a pattern."""
    return f"{pattern.pattern_type.name.lower()}/{_words(pattern.type.name)}/{pattern.name}"


def pattern_of(name: str) -> Pattern:
    """Return the pattern of a document; raise ValueError if the document has a wrong name."""
    pattern_type, _, rest = name.partition("/")
    kind, _, resource = rest.partition("/")
    if pattern_type not in PATTERN_TYPES or kind not in KINDS or not resource:
        raise ValueError(f"{name!r:.200} is not the name of a document of ACLs")
    return Pattern(KINDS[kind], PATTERN_TYPES[pattern_type], resource)


def encode_entries(entries: frozenset[Entry]) -> bytes:
    """Write the entries of a pattern."""
    rows = [
        {
            "principal": one.principal,
            "permissionType": _words(one.permission.name),
            "operation": _words(one.operation.name),
            "host": one.host,
        }
        for one in sorted(entries)
    ]
    return json.dumps({"version": VERSION, "acls": rows}, separators=(",", ":")).encode()


def parse_entries(name: str, data: bytes) -> tuple[frozenset[Entry], str]:
    """Return the entries of a pattern; if they cannot be read, return the reason, too, or else "".

    If the entries cannot be read, return an entry that denies everything to all clients.
    """
    pattern = pattern_of(name)
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise ValueError(f"the version is {document['version']!r}, not {VERSION}")
        entries = frozenset(_entry_of(row) for row in document["acls"])
        for entry in entries:
            checked(Binding(pattern, entry))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return frozenset({CLOSED}), f"{name}: the ACLs cannot be read: {error!r:.300}"
    return entries, ""


def _entry_of(row: dict[str, str]) -> Entry:
    principal, host = row["principal"], row["host"]
    if not isinstance(principal, str) or not isinstance(host, str):
        raise TypeError("a principal or a host is not a string")
    return Entry(principal, host, OPERATIONS[row["operation"]], PERMISSIONS[row["permissionType"]])
