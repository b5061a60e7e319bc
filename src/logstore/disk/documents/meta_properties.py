"""Read and write `meta.properties`: the id of a log dir, and the id of the log dir's store.

The file consists of `key=value` lines, as in Kafka. The last line is the checksum of all other
lines. The file of every log dir has the *roster*: the ids of all log dirs of the store. The roster
shows whether a log dir is missing or foreign. If the rosters of two log dirs differ, the roster
with the higher epoch is used.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import xxhash

from logstore.disk.documents import fields
from logstore.errors import (
    CorruptCheckpointError,
    LogDirIdentityError,
    UnsupportedFormatError,
)

FILE_NAME = "meta.properties"
VERSION = 1

_ID = re.compile(r"[0-9a-f]{32}")
_KAFKA_CLUSTER_ID = re.compile(r"(?=.*[^0-9a-f])[A-Za-z0-9_-]{22}")


class MetaProperties(NamedTuple):
    """The identity of one log dir."""

    cluster_id: str
    broker_id: int
    directory_id: str
    roster_epoch: int
    roster: tuple[str, ...]
    is_forming: bool


class Hint(NamedTuple):
    """The readable part of a damaged identity, which is used if it matches the other log dirs."""

    cluster_id: str | None
    directory_id: str | None


def new_id() -> str:
    """Make a random id for a store, a log dir or the start of a process."""
    return os.urandom(16).hex()


def encode_meta(meta: MetaProperties) -> bytes:
    """Encode an identity as the bytes of its file."""
    lines = (
        f"version={VERSION}\n"
        f"cluster.id={meta.cluster_id}\n"
        f"broker.id={meta.broker_id}\n"
        f"directory.id={meta.directory_id}\n"
        f"roster.epoch={meta.roster_epoch}\n"
        f"roster={','.join(meta.roster)}\n"
        f"roster.forming={'true' if meta.is_forming else 'false'}\n"
    ).encode()
    return lines + b"checksum=%s\n" % xxhash.xxh3_64_hexdigest(lines).encode()


def _pairs(data: bytes) -> dict[str, str]:
    """Read the `key=value` lines, and skip other lines."""
    pairs = {}
    for line in data.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            pairs[key.strip()] = value.strip()
    return pairs


def is_id(text: object) -> bool:
    """Check whether a text has the form of an id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def decode_meta(data: bytes, path: str) -> MetaProperties:
    """Decode an identity.

    Raises:
        CorruptCheckpointError: the checksum of the file is wrong.
        UnsupportedFormatError: the file is valid, but a later version of this library wrote it.
        LogDirIdentityError: the file belongs to another program, such as a Kafka broker.
    """
    lines, mark, checksum = data.rpartition(b"checksum=")
    pairs = _pairs(data)
    if not mark or checksum != b"%s\n" % xxhash.xxh3_64_hexdigest(lines).encode():
        if not mark and _KAFKA_CLUSTER_ID.fullmatch(pairs.get("cluster.id", "")):
            raise LogDirIdentityError(
                path=os.path.dirname(path),
                reason="this is the log dir of a Kafka broker; logstore does not take it over",
            )
        is_empty = not data.strip(b"\0 \n")
        reason = "the file is empty" if is_empty else "the checksum does not match the content"
        raise CorruptCheckpointError(path=path, position=0, reason=reason)
    try:
        if int(pairs["version"]) != VERSION:
            raise UnsupportedFormatError(path=path, version=int(pairs["version"]))
        return _checked(pairs)
    except (KeyError, ValueError):
        raise CorruptCheckpointError(
            path=path, position=0, reason="a line of the file is missing or wrong"
        ) from None


def _checked(pairs: dict[str, str]) -> MetaProperties:
    """Make an identity from its lines. Raises KeyError and ValueError."""
    meta = MetaProperties(
        pairs["cluster.id"],
        fields.number(int(pairs["broker.id"]), "broker.id", fields.EPOCH_MAX),
        pairs["directory.id"],
        fields.number(int(pairs["roster.epoch"]), "roster.epoch"),
        tuple(filter(None, pairs["roster"].split(","))),
        {"true": True, "false": False}[pairs["roster.forming"]],
    )
    if not all(map(is_id, (meta.cluster_id, meta.directory_id, *meta.roster))):
        raise ValueError("an id in the file is malformed")
    return meta


def hint_of(data: bytes) -> Hint:
    """Read the ids that are still readable in a damaged file."""
    pairs = _pairs(data)
    cluster_id, directory_id = pairs.get("cluster.id"), pairs.get("directory.id")
    return Hint(
        cluster_id if is_id(cluster_id) else None,
        directory_id if is_id(directory_id) else None,
    )
