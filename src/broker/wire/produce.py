"""Decode Produce requests: the records of each partition are a view of the frame.

For speed, functions in this module read the partitions, and the codec reads the rest. Without these
functions, the codec would give the same message.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from broker.wire import codec, messages
from broker.wire.byte_cursor import Cursor, Data
from broker.wire.primitives import STRING_BYTES, Kind, Read
from broker.wire.schemas import schema_of

# The memory of one decoded partition: a tuple of two, an int, and a memoryview of 184 bytes.
PARTITION_BYTES = 4 * STRING_BYTES
_INDEX_AND_SIZE = struct.Struct(">ii")
_INDEX = struct.Struct(">i")


def decode_produce(data: Data, version: int) -> Any:
    """Decode the body of a request as a ProduceRequest."""
    return codec.decode_by(_plan(version), data)


@functools.cache
def _plan(version: int) -> Kind:
    """Compile the plan for a version; functions in this module read the partitions."""
    is_flexible = schema_of("ProduceRequest").is_flexible(version)
    cls = messages.ProduceRequest.PartitionProduceData
    generic = codec.compile_plan("ProduceRequest", version, {})
    reader, size_bytes_min = (_compact(cls), 6) if is_flexible else (_fixed(cls), 8)
    partition = Kind(reader, generic.write, size_bytes_min, PARTITION_BYTES)
    return codec.compile_plan("ProduceRequest", version, {cls.__name__: partition})


def _fixed(cls: Any) -> Read:
    """Return the function that reads a partition in versions before 9."""
    unpack, new = _INDEX_AND_SIZE.unpack_from, tuple.__new__

    def read(cursor: Cursor) -> Any:
        index, size = unpack(cursor.data, cursor.at)
        cursor.at += 8
        if size < -1:
            cursor.refuse(f"the length {size} is negative")
        return new(cls, (index, cursor.take(size) if size >= 0 else None))

    return read


def _compact(cls: Any) -> Read:
    """Return the function that reads a partition in version 9 and later."""
    unpack, new = _INDEX.unpack_from, tuple.__new__

    def read(cursor: Cursor) -> Any:
        (index,) = unpack(cursor.data, cursor.at)
        cursor.at += 4
        size = cursor.uvarint() - 1
        records = cursor.take(size) if size >= 0 else None
        if cursor.data[cursor.at]:
            cursor.skip_tags()
        else:
            cursor.at += 1
        return new(cls, (index, records))

    return read
