"""Write src/broker/wire/schemas.json: the message schemas of Apache Kafka that the broker speaks.

    python scripts/wire_schemas.py kafka-clients-4.1.0.jar kafka-clients-3.9.1.jar \
        kafka-group-coordinator-4.1.0.jar kafka-transaction-coordinator-4.1.0.jar

The jars come from Maven Central (`mvn dependency:copy -DoutputDirectory=.
-Dartifact=org.apache.kafka:kafka-clients:4.1.0`). The first jar gives every message; keys 4 to 7,
which Kafka 4.0 removed, come from the second; the others give the records of `__consumer_offsets`
and `__transaction_state`.
Comments and descriptions are left out, and so is what only Java's code generator needs. The same
jars give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "src" / "broker" / "wire" / "schemas.json"
FOLDER = "common/message/"
KEYS = {
    0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 32, 33, 34, 35, 36, 37, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 55, 56, 57, 60, 61,
    65, 66, 68, 69, 74, 75,
}  # fmt: skip
REMOVED_KEYS = {4, 5, 6, 7}
HEADERS = {"RequestHeader", "ResponseHeader"}
DATA = {"ConsumerProtocolAssignment", "ConsumerProtocolSubscription"}  # inside members' metadata
RECORDS = {
    name + part
    for name in (
        "OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata", "ConsumerGroupMemberMetadata",
        "ConsumerGroupPartitionMetadata", "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupTargetAssignmentMember", "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupRegularExpression", "TransactionLog",
    )
    for part in ("Key", "Value")
}  # fmt: skip
MESSAGE_FACTS = ("apiKey", "type", "name", "validVersions", "flexibleVersions")
FIELD_FACTS = (
    "name", "type", "versions", "nullableVersions", "flexibleVersions", "tag", "taggedVersions",
    "default",
)  # fmt: skip


def schemas(jar: Path) -> Iterator[dict[str, Any]]:
    """Give the schemas of a jar; a `//` inside a string does not occur in them."""
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(FOLDER) and name.endswith(".json"):
                yield json.loads(re.sub("//.*", "", archive.read(name).decode()))


def stripped(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave of each field what decides about its bytes."""
    found = []
    for field in fields:
        kept = {fact: field[fact] for fact in FIELD_FACTS if fact in field}
        if kept.get("default", "") is None:  # the schemas write it in two ways
            kept["default"] = "null"
        kept.setdefault("versions", kept.get("taggedVersions"))  # a tagged field may leave it out
        if "fields" in field:
            kept["fields"] = stripped(field["fields"])
        found.append(kept)
    return found


def message(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave of a message what decides about its bytes."""
    kept = {fact: schema[fact] for fact in MESSAGE_FACTS if fact in schema}
    kept["fields"] = stripped(schema["fields"])
    if "commonStructs" in schema:
        kept["commonStructs"] = [
            {"name": struct["name"], "fields": stripped(struct["fields"])}
            for struct in schema["commonStructs"]
        ]
    return kept


def record(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave of a record's schema what decides about its bytes; its number is that of no API."""
    kept = message(schema)
    del kept["apiKey"]
    return {**kept, "type": "data"}


def document(newest: Path, older: Path, *coordinators: Path) -> str:
    """Give the whole file: a head, then one line a message, in the order of their names."""
    messages = [
        message(schema)
        for schema in schemas(newest)
        if schema.get("apiKey") in KEYS or schema["name"] in HEADERS | DATA
    ]
    messages += [
        message(schema) for schema in schemas(older) if schema.get("apiKey") in REMOVED_KEYS
    ]
    messages += [
        record(one) for jar in coordinators for one in schemas(jar) if one["name"] in RECORDS
    ]
    missing = (KEYS | REMOVED_KEYS) - {kept.get("apiKey") for kept in messages}
    if missing:
        raise ValueError(f"no schema has the keys {sorted(missing)}")
    head = {
        "generated_by": "scripts/wire_schemas.py",
        "license": "Apache-2.0; see KAFKA_NOTICE.txt beside this file",
        "sources": [
            {"jar": jar.name, "sha256": hashlib.sha256(jar.read_bytes()).hexdigest()}
            for jar in (newest, older, *coordinators)
        ],
    }
    lines = [
        json.dumps(kept, separators=(",", ":"), sort_keys=True)
        for kept in sorted(messages, key=lambda kept: str(kept["name"]))
    ]
    opening = json.dumps(head, separators=(",", ":"), sort_keys=True).removesuffix("}")
    return opening + ',"messages":[\n' + ",\n".join(lines) + "\n]}\n"


def main(arguments: list[str]) -> None:
    """Read two jars and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("newest", type=Path, help="kafka-clients of the version that is spoken")
    parser.add_argument("older", type=Path, help="kafka-clients of a version with keys 4 to 7")
    parser.add_argument(
        "coordinators", type=Path, nargs="+", help="the coordinators' jars, as `newest`"
    )
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    text = document(options.newest, options.older, *options.coordinators)
    options.target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
