"""Decode Fetch requests, and cut Fetch responses into pieces: bytes, records, bytes, and so on.

    pieces = split_response(13, correlation_id, response)

The records of a partition can be bytes or a `FileRange`. For a `FileRange`, the sender of the
pieces calls `sendfile`, so these records never come into the memory of this process. For speed,
functions in this module read the partitions of a request, and write the partitions of a response
without their records. The codec reads and writes everything else. Without these functions, the
codec would give the same messages and bytes.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from broker.wire import codec, messages, primitives
from broker.wire.byte_cursor import Cursor, Data
from broker.wire.frames import SIZE, response_header
from broker.wire.primitives import Kind, Write
from broker.wire.versions import FETCH

COPIED_BYTES_MAX = 4096  # larger records are a separate piece, and are not copied
PARTITION_BYTES = 512  # memory of a tuple with eight numbers
# The first versions with a log start offset, with a preferred replica, and with tagged fields.
LOG_START_OFFSET = 5
PREFERRED_REPLICA = 11
FLEXIBLE = 12


class FileRange(NamedTuple):
    """Records in a file: the sender's object for the file, and the range of bytes."""

    file: Any
    position: int
    size_bytes: int


class _Pieces(bytearray):
    """Collect the bytes of a response, and the places between them where records belong."""

    def __init__(self) -> None:
        super().__init__(SIZE.size)
        self.cuts: list[tuple[int, Data | FileRange]] = []

    def pieces(self) -> list[Data | FileRange]:
        """Write the size at the beginning of the frame; return the pieces that are not empty."""
        size = len(self) - SIZE.size + sum(_size_of(records) for _, records in self.cuts)
        SIZE.pack_into(self, 0, size)
        view = memoryview(self)
        pieces: list[Data | FileRange] = []
        start = 0
        for end, records in self.cuts:
            pieces += [view[start:end], records]
            start = end
        return [*pieces, view[start:]] if start < len(view) else pieces


def decode_fetch(data: Data, version: int) -> Any:
    """Decode the body of a FetchRequest; ignore bytes after its end, as Kafka does."""
    return codec.read_by(_request_plan(version), data)


def split_response(version: int, correlation_id: int, response: Any) -> list[Data | FileRange]:
    """Encode a FetchResponse as a frame with its size. The pieces are sent in their order."""
    out = _Pieces()
    out += response_header(FETCH, version, correlation_id)
    codec.write_by(_response_plan(version), out, response)
    return out.pieces()


def _size_of(records: Data | FileRange) -> int:
    """Return the number of bytes of the records."""
    return records.size_bytes if isinstance(records, FileRange) else len(records)


@functools.cache
def _request_plan(version: int) -> Kind:
    """Compile the plan for a version. From version 12 on, a function here reads the partitions."""
    cls = messages.FetchRequest.FetchPartition
    generic = codec.plan_of("FetchRequest", version)
    if version < FLEXIBLE:
        return generic
    layout = primitives.fixed("iiqiqi")
    unpack, size, new = layout.unpack_from, layout.size, tuple.__new__
    without_tags = tuple(cls()[6:])
    fields = {
        field.tag: field for field in codec.tagged_fields("FetchRequest", cls.__name__, version)
    }

    def read(cursor: Cursor) -> Any:
        values = unpack(cursor.data, cursor.at)
        cursor.at += size
        if cursor.data[cursor.at]:
            slots = [*values, *without_tags]
            codec.read_tags(cursor, fields, slots)
            return new(cls, slots)
        cursor.at += 1
        return new(cls, values + without_tags)

    partition = Kind(read, generic.write, size + 1, PARTITION_BYTES)
    return codec.compile_plan("FetchRequest", version, {cls.__name__: partition})


@functools.cache
def _response_plan(version: int) -> Kind:
    """Compile the plan for a version. A function in this module writes the partitions."""
    cls = messages.FetchResponse.PartitionData
    generic = codec.plan_of("FetchResponse", version)
    partition = Kind(generic.read, _partition_writer(cls, version), 1, PARTITION_BYTES)
    return codec.compile_plan("FetchResponse", version, {cls.__name__: partition})


def _partition_writer(cls: Any, version: int) -> Write:
    """Return the function that writes a partition: numbers, aborted transactions, records."""
    is_flexible = version >= FLEXIBLE
    count = 4 if version < LOG_START_OFFSET else 5
    pack = primitives.fixed("ihqqq"[:count]).pack
    pack_replica = primitives.fixed("i").pack
    write_aborted = codec.field_kind(
        "FetchResponse", cls.__name__, "aborted_transactions", version
    ).write
    write_size = primitives.length("" if is_flexible else "i", True)[1]
    tagged = codec.tagged_fields("FetchResponse", cls.__name__, version)
    tags = slice(5, 8)
    without_tags = cls()[tags]

    def write(out: Any, partition: Any) -> None:
        if partition.__class__ is not cls:
            raise TypeError(f"{partition!r:.100} is not a PartitionData")
        aborted, replica, records = partition[8:]
        out += pack(*partition[:count])
        write_aborted(out, aborted)
        if version >= PREFERRED_REPLICA:
            out += pack_replica(replica)
        size = None if records is None else _size_of(records)
        write_size(out, size)
        if size and (size > COPIED_BYTES_MAX or isinstance(records, FileRange)):
            out.cuts.append((len(out), records))
        elif size:
            out += records
        if is_flexible:
            if partition[tags] == without_tags:
                out.append(0)
            else:
                codec.write_tags(out, tagged, partition)

    return write
