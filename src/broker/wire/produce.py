"""Decode Produce requests: the records of each partition are a view of the frame. Encode answers.

For speed, functions in this module read the partitions, and write the answers without errors. The
codec does the rest. Without these functions, the codec would give the same messages and bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from broker.wire import codec, messages
from broker.wire.byte_cursor import Cursor, Data
from broker.wire.frames import SIZE, encode_response, response_header
from broker.wire.primitives import STRING_BYTES, Kind, Read, write_uvarint
from broker.wire.schemas import schema_of

# The memory of one decoded partition: a tuple of two, an int, and a memoryview of 184 bytes.
PARTITION_BYTES = 4 * STRING_BYTES
_INDEX_AND_SIZE = struct.Struct(">ii")
_INDEX = struct.Struct(">i")
_NAME_SIZE = struct.Struct(">h")
PRODUCE, FLEXIBLE, BY_ID = 0, 9, 13  # the API key, and the first versions with tags and ids
ONE_BYTE = 0x80  # smaller numbers are one byte as a varint
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_NO_ID = bytes(16)


def decode_produce(data: Data, version: int) -> Any:
    """Decode the body of a ProduceRequest; ignore bytes after its end, as Kafka does."""
    if version >= FLEXIBLE:
        plain = _plain_request(memoryview(data), version)
        if plain is not None:
            return plain
    return codec.read_by(_plan(version), data)


def _plain_request(data: memoryview, version: int) -> Any:
    """Decode a usual request; return None for every other request, also for a damaged one.

    A usual request has no transactional id, no tags, and fewer than 127 topics, each with fewer
    than 127 partitions. In a usual request, the number of topics has one byte, each number of
    partitions has one byte, and the length of a short name has one byte.
    """
    new, topics = tuple.__new__, []
    message_of, topic_class, partition_class = _request_classes()
    try:
        if data[0]:
            return None
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, 1)
        count, at = data[7], 8
        if not 1 <= count < ONE_BYTE:
            return None
        for _ in range(count - 1):
            name, topic_id = "", _NO_ID
            if version >= BY_ID:
                topic_id, at = bytes(data[at : at + 16]), at + 16
            else:
                end = at + data[at]
                if not at < end < at + ONE_BYTE:
                    return None
                name, at = str(data[at + 1 : end], "utf-8"), end
            count, at = data[at], at + 1
            if not 1 <= count < ONE_BYTE:
                return None
            partitions = []
            for _ in range(count - 1):
                (index,) = _INDEX.unpack_from(data, at)
                size, at = data[at + 4], at + 5
                if size >= ONE_BYTE:
                    size, at = _rest_of_size(size, data, at)
                end = at + size - 1
                if size < 1 or data[end]:
                    return None
                partitions.append(new(partition_class, (index, data[at:end])))
                at = end + 1
            if data[at]:
                return None
            at += 1
            topics.append(new(topic_class, (name, topic_id, tuple(partitions))))
        is_whole = data[at] == 0 and at + 1 == len(data)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return message_of(None, acks, timeout_ms, tuple(topics)) if is_whole else None


@functools.cache
def _request_classes() -> tuple[Any, Any, Any]:
    """Return the classes of a request, a topic and a partition; the first call reads a schema."""
    kind = messages.ProduceRequest
    return kind, kind.TopicProduceData, kind.PartitionProduceData


@functools.cache
def _no_error() -> tuple[Any, ...]:
    """Return the last fields of a partition's row that has no error."""
    return ((), None, messages.ProduceResponse.LeaderIdAndEpoch())


def _rest_of_size(size: int, data: memoryview, at: int) -> tuple[int, int]:
    """Read the other bytes of a compact length, which may be too large for the data."""
    size &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < ONE_BYTE:
            return size, at
    raise IndexError


def encode_produced(version: int, correlation_id: int, response: Any) -> bytearray:
    """Encode a ProduceResponse as a frame with its size."""
    no_error = _no_error()
    is_plain = not response.node_endpoints and all(
        row.error_code == 0 and row[5:] == no_error
        for topic in response.responses
        for row in topic.partition_responses
    )
    if not is_plain:
        return encode_response(PRODUCE, version, correlation_id, response)
    is_flexible, (pack, fields, rest) = version >= FLEXIBLE, _row_layout(version)
    out = bytearray(SIZE.size)
    out += response_header(PRODUCE, version, correlation_id)
    _write_count(out, len(response.responses), is_flexible)
    for name, topic_id, rows in response.responses:
        if version >= BY_ID:
            out += topic_id
        else:
            data = name.encode()
            if is_flexible:
                write_uvarint(out, len(data) + 1)
            else:
                out += _NAME_SIZE.pack(len(data))
            out += data
        _write_count(out, len(rows), is_flexible)
        for row in rows:
            out += pack(*row[:fields])
            out += rest
        if is_flexible:
            out.append(0)
    out += SIZE.pack(response.throttle_time_ms)
    if is_flexible:
        out.append(0)
    SIZE.pack_into(out, 0, len(out) - SIZE.size)
    return out


def _write_count(out: bytearray, count: int, is_flexible: bool) -> None:
    """Write the length of an array."""
    if is_flexible:
        write_uvarint(out, count + 1)
    else:
        out += SIZE.pack(count)


@functools.cache
def _row_layout(version: int) -> tuple[Callable[..., bytes], int, bytes]:
    """Return how to write a partition without an error: a pack function, field count, and suffix.

    The suffix means an empty list of errors of records, a null message, and no tags.
    """
    letters = "ihqq" if version < 5 else "ihqqq"
    rest = b"" if version < 8 else b"\1\0\0" if version >= FLEXIBLE else b"\0\0\0\0\xff\xff"
    return struct.Struct(">" + letters).pack, len(letters), rest


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
