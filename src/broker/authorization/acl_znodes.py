"""Read and write the znodes of ACLs: Kafka's paths and JSON.

    /kafka-acl/Topic/orders                        the entries of a LITERAL pattern
    /kafka-acl-extended/prefixed/Topic/orders-     the entries of a PREFIXED pattern
                 {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",
                                       "operation":"Read","host":"*"}]}
    /kafka-acl-changes/acl_changes_0000000007      a notice: the paths of the znodes that have
                                                   changed, each on its own line

A name may have characters that the path of a znode must not have, such as "/". These characters
are written as `%2F`. Kafka writes names as they are, so only such names, and names with "%", have
other paths than in Kafka. A pattern whose znode cannot be read is closed to all clients: it is not
known whom the znode denies what.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, unquote

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

LITERAL, EXTENDED = "/kafka-acl", "/kafka-acl-extended"
PREFIXED = f"{EXTENDED}/prefixed"
NOTICES = "/kafka-acl-changes"
NOTICE = f"{NOTICES}/acl_changes_"
VERSION = 1


def _words(name: str) -> str:
    return name.title().replace("_", "")


KINDS = {_words(kind.name): kind for kind in ResourceType if kind is not ResourceType.ANY}
OPERATIONS = {_words(one.name): one for one in Operation if one is not Operation.ANY}
PERMISSIONS = {_words(one.name): one for one in Permission if one is not Permission.ANY}
ROOTS = {PatternType.LITERAL: LITERAL, PatternType.PREFIXED: PREFIXED}
# The znodes whose children are the znodes of patterns.
FOLDERS = {
    f"{root}/{words}": (kind, pattern_type)
    for pattern_type, root in ROOTS.items()
    for words, kind in KINDS.items()
}
NOT_ALLOWED = re.compile("[/%]|[^ -~\xa0-\ud7ff]")  # in a name that is a part of a path


def parents_of(pattern: Pattern) -> list[str]:
    """Return the paths of the znodes above the znode of a pattern, from the top down."""
    root = ROOTS[pattern.pattern_type]
    above = [EXTENDED, root] if root == PREFIXED else [root]
    return [*above, f"{root}/{_words(pattern.type.name)}"]


def path_of(pattern: Pattern) -> str:
    """Return the path of the znode with the entries of a pattern."""
    return f"{parents_of(pattern)[-1]}/{_escaped(pattern.name)}"


def pattern_of(path: str) -> Pattern:
    """Return the pattern of a znode; raise ValueError if the path is not one of a pattern.

    If this module would write the name in another way, the name is taken as it is.
    """
    folder, _, name = path.rpartition("/")
    known = FOLDERS.get(folder)
    if known is None:
        raise ValueError(f"{path!r:.200} is not the path of ACLs")
    text = unquote(name)
    return Pattern(*known, text if _escaped(text) == name else name)


def is_usual(path: str) -> bool:
    """Report whether this module would write the pattern of a znode to the same path."""
    return path_of(pattern_of(path)) == path


def _escaped(name: str) -> str:
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return NOT_ALLOWED.sub(lambda found: quote(found.group(), safe=""), name)


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


def parse_entries(path: str, data: bytes) -> tuple[frozenset[Entry], str]:
    """Read the entries of a pattern, and why they cannot be read; "" if they can.

    If the entries cannot be read, the pattern is closed.
    """
    pattern = pattern_of(path)
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise ValueError(f"the version is {document['version']!r}, not {VERSION}")
        entries = frozenset(_entry_of(row) for row in document["acls"])
        for entry in entries:
            checked(Binding(pattern, entry))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return frozenset({CLOSED}), f"{path}: the ACLs cannot be read: {error!r:.300}"
    return entries, ""


def _entry_of(row: dict[str, str]) -> Entry:
    principal, host = row["principal"], row["host"]
    if not isinstance(principal, str) or not isinstance(host, str):
        raise TypeError("a principal or a host is not text")
    return Entry(principal, host, OPERATIONS[row["operation"]], PERMISSIONS[row["permissionType"]])
