"""List the fields that this project adds to Kafka's messages.

All these fields are tagged fields. If a reader does not know the tag of a field, it steps over the
field. If a field has its default, it is not written. Kafka numbers its tags from 0, so the tags
here begin at 10000.
"""

from __future__ import annotations

from typing import Any

FIRST_TAG = 10_000


def _rows(versions: str, fields: dict[str, tuple[str, Any]]) -> list[dict[str, Any]]:
    """Write fields in the form of the schemas. Each field has a type and a default."""
    return [
        {
            "name": name,
            "type": kind,
            "versions": versions,
            "taggedVersions": versions,
            "tag": FIRST_TAG + number,
            "default": default,
        }
        for number, (name, (kind, default)) in enumerate(fields.items())
    ]


# The added fields of each message and struct.
OWN_FIELDS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "DescribeLogDirsResponse": {
        # The id in the `meta.properties` of a log dir, which a program that reads files compares.
        "DescribeLogDirsResult": _rows("2+", {"DirectoryId": ("string", "")}),
    },
    "LeaderAndIsrRequest": {
        "LeaderAndIsrTopicState": _rows("7+", {"CreatedZxid": ("int64", -1)}),
        "LeaderAndIsrPartitionState": _rows(
            "7+",
            {
                "State": ("bytes", None),  # the JSON of the partition's znode
            },
        ),
    },
    "LeaderAndIsrResponse": {
        "LeaderAndIsrResponse": _rows("7+", {"RegistrationEpoch": ("int64", -1)}),
        "LeaderAndIsrPartitionError": _rows(
            "7+",
            {
                "WholeSince": ("int64", -1),
                "LastEpoch": ("int32", -1),
                "LogEndOffset": ("int64", -1),
                "PartitionEpoch": ("int32", -1),
                "HeldSince": ("int64", -1),
            },
        ),
    },
    "StopReplicaRequest": {
        "StopReplicaTopicState": _rows(
            "4+", {"TopicId": ("uuid", None), "CreatedZxid": ("int64", -1)}
        ),
        "StopReplicaPartitionState": _rows("4+", {"PartitionEpoch": ("int32", -1)}),
    },
    "WriteTxnMarkersRequest": {
        # Whether the marker's epoch is above the epoch of the transaction's batches (KIP-890).
        "WritableTxnMarker": _rows("1+", {"IsRaised": ("bool", False)}),
    },
    "WriteTxnMarkersResponse": {
        # If the marker was refused with TRANSACTION_COORDINATOR_FENCED: the epoch in the log.
        "WritableTxnMarkerPartitionResult": _rows("1+", {"CoordinatorEpoch": ("int32", -1)}),
    },
    "UpdateMetadataRequest": {
        "UpdateMetadataRequest": _rows(
            "8+", {"ChangesAfter": ("int64", -1), "LastChange": ("int64", -1)}
        ),
        "UpdateMetadataPartitionState": _rows(
            "8+", {"EligibleLeaderReplicas": ("[]int32", None), "Suspects": ("[]int32", None)}
        ),
    },
}


def with_own_fields(message: dict[str, Any]) -> dict[str, Any]:
    """Add this project's fields to the schema of a message."""
    added = OWN_FIELDS.get(message["name"])
    if added is None:
        return message
    common = [
        {**struct, "fields": _extended(struct["fields"], struct["name"], added)}
        for struct in message.get("commonStructs", ())
    ]
    fields = _extended(message["fields"], message["name"], added)
    return {**message, "fields": fields, "commonStructs": common}


def _extended(
    fields: list[dict[str, Any]], struct: str, added: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Add fields to a struct, and to the structs inside it."""
    inner = [
        {**row, "fields": _extended(row["fields"], row["type"].removeprefix("[]"), added)}
        if "fields" in row
        else row
        for row in fields
    ]
    return [*inner, *added.get(struct, ())]
