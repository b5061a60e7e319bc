"""Read and write small text files: one JSON document and its checksum, replaced as a whole.

    {"version": 1, ...}
    xxh3-64 0123456789abcdef

If the checksum of a document is wrong, its content is *unknown*, never zero and never empty. The
function that reads the document raises `CorruptCheckpointError`, and its caller uses the log itself
instead of the document. An offsets checkpoint also contains its kind and the id of its log dir. So
a valid file in the wrong place (a copy from another log dir, or a file of another kind) is also
detected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from logstore.disk import files
from logstore.disk.documents import fields
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

if TYPE_CHECKING:
    import json

VERSION = 1
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

_ALGORITHM = "xxh3-64"


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Encode a document: the JSON line, then the line with its checksum."""
    import json

    line = json.dumps(document, separators=(", ", ": "), ensure_ascii=False).encode()
    return b"%s\n%s %s\n" % (line, _ALGORITHM.encode(), xxhash.xxh3_64_hexdigest(line).encode())


def decode_document(data: bytes, path: str) -> dict[str, Any]:
    """Decode the bytes that `encode_document` made.

    Raises:
        CorruptCheckpointError: a byte of the document is wrong.
        UnsupportedFormatError: the document is valid, but a later version of this library wrote it.
    """
    line, _, rest = data.partition(b"\n")
    expected = b"%s %s\n" % (_ALGORITHM.encode(), xxhash.xxh3_64_hexdigest(line).encode())
    if not line or rest != expected:
        reason = "the document is empty" if not data else "the checksum does not match the content"
        raise CorruptCheckpointError(path=path, position=0, reason=reason)
    try:
        document = _decoder().decode(line.decode())
        version = fields.number(document["version"], "its version", low=VERSION)
    except (*fields.WRONG, RecursionError):
        raise CorruptCheckpointError(
            path=path, position=0, reason="the file is not a document with a version"
        ) from None
    if version != VERSION:
        raise UnsupportedFormatError(path=path, version=version)
    return dict(document)


@cache
def _decoder() -> json.JSONDecoder:
    import json

    return json.JSONDecoder(parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> float:
    """Refuse `Infinity` and `NaN`: they are not JSON, and no field may be `Infinity` or `NaN`."""
    raise ValueError(name)


def write_document(
    path: str, document: Mapping[str, Any], guard: files.Guard = nullcontext
) -> None:
    """Replace a document durably: after a crash, the file has the old or the new document."""
    files.write_atomically(path, encode_document(document), guard)


def read_document(path: str, bytes_max: int = files.DOCUMENT_BYTES_MAX) -> dict[str, Any] | None:
    """Read a document; return None if there is no such file.

    Raises:
        CorruptCheckpointError: the checksum is wrong, the file is too large, or it is not a regular
            file.
        OSError: the disk could not read the file.
    """
    try:
        data = files.read_file(path, bytes_max)
    except FileNotFoundError:
        return None
    except files.UnfitError as error:
        raise CorruptCheckpointError(path=path, position=0, reason=error.reason) from None
    return decode_document(data, path)


class Offsets(NamedTuple):
    """The contents of an offsets checkpoint.

    Attributes:
        topic_ids: the topic ids of the replicas in the rows. A later topic of the same name must
            not get the offsets of an earlier topic. Earlier versions of this library wrote no topic
            ids.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[TopicPartition, bytes]


def write_offsets(
    path: str, kind: str, directory_id: str, found: Offsets, guard: files.Guard = nullcontext
) -> None:
    """Replace an offsets checkpoint durably."""
    offsets, topic_ids = found
    document = {
        "version": VERSION,
        "kind": kind,
        "directory_id": directory_id,
        "offsets": [[topic, partition, offset] for (topic, partition), offset in offsets.items()],
        # The ids are in a separate list, in the order of the rows.
        # Earlier versions of this library ignore this list, and can still read the rows.
        "topic_ids": [topic_ids.get(key, b"").hex() for key in offsets],
    }
    write_document(path, document, guard)


def read_offsets(path: str, kind: str, directory_id: str) -> Offsets | None:
    """Read an offsets checkpoint; return None if there is no such file.

    Raises:
        CorruptCheckpointError: the checksum is wrong, or the file is in the wrong place.
        OSError: the disk could not read the file.
    """
    document = read_document(path, files.LIST_BYTES_MAX)
    if document is None:
        return None
    try:
        fields.check_kind(document, kind, directory_id)
        rows = fields.rows(document["offsets"], "offsets", 3)
        offsets = {
            fields.partition_key(topic, partition): fields.number(
                offset, "an offset", fields.OFFSET_MAX
            )
            for topic, partition, offset in rows
        }
        return Offsets(offsets, _topic_ids(document, list(offsets)))
    except fields.WRONG as error:
        raise CorruptCheckpointError(path=path, position=0, reason=fields.told(error)) from None


def _topic_ids(
    document: Mapping[str, Any], keys: Sequence[TopicPartition]
) -> dict[TopicPartition, bytes]:
    """Read the topic ids of the rows; skip empty ids. Raises an error of `fields.WRONG`."""
    written = document.get("topic_ids", [""] * len(keys))
    if not isinstance(written, list) or len(written) != len(keys):
        raise ValueError("topic_ids is not a list with one id for each row")
    pairs = zip(keys, written, strict=True)
    return {key: fields.id_bytes(one, "a topic id") for key, one in pairs if one != ""}
