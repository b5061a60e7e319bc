"""Read the schemas of Kafka's messages: the fields of each version, and their types.

The script scripts/wire_schemas.py makes `schemas.json` from jars of Kafka. `own_fields` adds a few
tagged fields to the messages between brokers.
"""

from __future__ import annotations

import functools
import json
import pkgutil
import re
from typing import Any, NamedTuple

from broker.wire.own_fields import with_own_fields

LAST = 1 << 15  # the end of an open range such as `3+`: the largest int16 plus 1


class Versions(NamedTuple):
    """A range of versions. `end` is the first version after the range."""

    first: int
    end: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version < self.end


NONE = Versions(0, 0)


def versions_of(text: str) -> Versions:
    """Read a range in the form that the schemas use: `none`, `4`, `4+` or `4-7`."""
    if text == "none":
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), LAST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first) + 1)


class Field(NamedTuple):
    """One field of a message, or of a struct inside a message."""

    name: str  # the name in snake_case
    json_name: str  # the name that Kafka uses in JSON
    type: str  # the type of the field; if the field is an array, the type of an element
    is_array: bool
    versions: Versions
    nullable: Versions
    flexible: Versions | None  # None means the same versions as for the message
    tagged: Versions
    tag: int
    default: Any  # the default in the schema; None if there is none


class Schema(NamedTuple):
    """The fields and the structs of a message. Headers and record data are messages, too."""

    name: str
    key: int | None
    versions: Versions
    flexible: Versions
    # The fields of each struct; the key is the name of the struct.
    # The fields of the message itself have the name of the message.
    structs: dict[str, tuple[Field, ...]]

    def is_flexible(self, version: int) -> bool:
        """Report whether a version has compact lengths and tagged fields."""
        return version in self.flexible


def _fields(rows: list[dict[str, Any]], structs: dict[str, tuple[Field, ...]]) -> tuple[Field, ...]:
    """Read the fields of a struct, and add the structs inside it to `structs`."""
    fields = []
    for row in rows:
        kind = row["type"].removeprefix("[]")
        if "fields" in row:
            structs[kind] = _fields(row["fields"], structs)
        flexible = row.get("flexibleVersions")
        fields.append(
            Field(
                re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", row["name"]).lower(),
                row["name"][0].lower() + row["name"][1:],
                kind,
                row["type"].startswith("[]"),
                versions_of(row["versions"]),
                versions_of(row.get("nullableVersions", "none")),
                None if flexible is None else versions_of(flexible),
                versions_of(row.get("taggedVersions", "none")),
                row.get("tag", -1),
                row.get("default"),
            )
        )
    return tuple(fields)


@functools.cache
def _rows() -> dict[str, dict[str, Any]]:
    """Read `schemas.json`, and return its messages by name."""
    data = pkgutil.get_data(__package__, "schemas.json")
    assert data is not None
    return {row["name"]: with_own_fields(row) for row in json.loads(data)["messages"]}


@functools.cache
def schema_of(name: str) -> Schema:
    """Return the schema of a message; raise KeyError if no message has this name."""
    row = _rows()[name]
    structs = {
        struct["name"]: _fields(struct["fields"], {}) for struct in row.get("commonStructs", ())
    }
    structs[name] = _fields(row["fields"], structs)
    return Schema(
        name,
        row.get("apiKey"),
        versions_of(row["validVersions"]),
        versions_of(row["flexibleVersions"]),
        structs,
    )


@functools.cache
def api_names() -> dict[int, str]:
    """Map the key of each API to the name of the API, such as 3 to `Metadata`."""
    return {
        row["apiKey"]: name.removesuffix("Request")
        for name, row in _rows().items()
        if row["type"] == "request"
    }


def names() -> list[str]:
    """List the names of all messages."""
    return sorted(_rows())
