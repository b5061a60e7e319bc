"""Read and write types that are not structs: numbers, strings, bytes, records, uuids, arrays."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.wire.byte_cursor import Cursor, WireError

Read = Callable[[Cursor], Any]
Write = Callable[[bytearray, Any], None]

# Types of a fixed size, each with its letter in the struct module.
LETTERS = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H",
    "uint32": "I", "float64": "d", "uuid": "16s",
}  # fmt: skip
POINTER_BYTES = 8
NUMBER_BYTES = 32  # memory of a Python int or float
TEXT_BYTES_MAX = 2**15 - 1  # the longest string, as in Kafka; a compact length could be larger
CUT_CHARACTERS_MAX = 2000  # the longest text of an error; it has at most 4 bytes per character
STRING_BYTES = 64  # memory of a short str or bytes object, or of a view
UUID_BYTES = 16
NULL_FIELDS = "the value is null, but this version does not allow null"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Kind(NamedTuple):
    """The functions that read and write values of one type in one version."""

    read: Read
    write: Write
    size_bytes_min: int  # the size of the shortest encoded value
    object_bytes: int  # the approximate memory of a decoded value


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def fixed(letters: str) -> struct.Struct:
    """Return the struct that reads and writes neighbouring fields of a fixed size."""
    return struct.Struct(">" + letters)


def number(letter: str) -> Kind:
    """Return the kind of one number of a fixed size."""
    layout = fixed(letter)
    unpack, pack, size = layout.unpack_from, layout.pack, layout.size

    def read(cursor: Cursor) -> Any:
        (value,) = unpack(cursor.data, cursor.at)
        cursor.at += size
        return value

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Kind(read, write, size, NUMBER_BYTES)


@functools.cache
def length(letter: str, is_nullable: bool) -> tuple[Read, Write, int]:
    """Return the functions that read and write a length, and the smallest size of a length.

    For these functions, the length of a null value is None.

    Args:
        letter: `h` or `i` if the length has a fixed size; "" if the length is compact.
        is_nullable: whether null is allowed.
    """
    if letter:
        layout = _INT16 if letter == "h" else _INT32
        unpack, pack, size = layout.unpack_from, layout.pack, layout.size

        def read(cursor: Cursor) -> int | None:
            (value,) = unpack(cursor.data, cursor.at)
            if value < 0 and not (is_nullable and value == -1):
                cursor.refuse(NULL_FIELDS if value == -1 else f"the length {value} is negative")
            cursor.at += size
            return value if value >= 0 else None

        def write(out: bytearray, value: int | None) -> None:
            if value is None and not is_nullable:
                raise ValueError(NULL_FIELDS)
            out += pack(-1 if value is None else value)

        return read, write, size

    def read_compact(cursor: Cursor) -> int | None:
        value = cursor.uvarint()
        if value == 0 and not is_nullable:
            cursor.refuse(NULL_FIELDS)
        return value - 1 if value else None

    def write_compact(out: bytearray, value: int | None) -> None:
        if value is None:
            if not is_nullable:
                raise ValueError(NULL_FIELDS)
            out.append(0)
        else:
            write_uvarint(out, value + 1)

    return read_compact, write_compact, 1


def text(is_compact: bool, is_nullable: bool, *, is_cut: bool = False) -> Kind:
    """Return the kind of a string.

    Args:
        is_cut: whether the end of a long string may be left out.
    """
    read_length, write_length, size = length("" if is_compact else "h", is_nullable)

    def read(cursor: Cursor) -> str | None:
        size = read_length(cursor)
        if size is None:
            return None
        if size > TEXT_BYTES_MAX:
            cursor.refuse(f"the string has {size} bytes, more than {TEXT_BYTES_MAX}")
        try:
            return str(cursor.take(size), "utf-8")
        except UnicodeDecodeError as error:
            cursor.at -= size
            cursor.refuse(f"the string is not UTF-8: {error.reason}")

    def write(out: bytearray, value: str | None) -> None:
        if value is None:
            write_length(out, None)
            return
        if is_cut and len(value) > CUT_CHARACTERS_MAX:
            value = f"{value[:CUT_CHARACTERS_MAX]}..."
        data = value.encode()
        write_length(out, len(data))
        out += data

    return Kind(read, write, size, STRING_BYTES)


def binary(is_compact: bool, is_nullable: bool, as_view: bool) -> Kind:
    """Return the kind of bytes. A read returns a copy; if `as_view` is True, a view."""
    read_length, write_length, size = length("" if is_compact else "i", is_nullable)
    convert: Callable[[memoryview], bytes | memoryview] = memoryview if as_view else bytes

    def read(cursor: Cursor) -> bytes | memoryview | None:
        size = read_length(cursor)
        return None if size is None else convert(cursor.take(size))

    def write(out: bytearray, value: bytes | memoryview | None) -> None:
        write_length(out, None if value is None else len(value))
        if value is not None:
            out += value

    return Kind(read, write, size, STRING_BYTES)


def array(element: Kind, is_compact: bool, is_nullable: bool) -> Kind:
    """Return the kind of an array. A read returns a tuple; any sequence can be written."""
    read_length, write_length, size = length("" if is_compact else "i", is_nullable)
    read_element, write_element, size_min, object_bytes = element
    object_bytes += POINTER_BYTES

    def read(cursor: Cursor) -> tuple[Any, ...] | None:
        count = read_length(cursor)
        if not count:
            return None if count is None else ()
        cursor.reserve(count, size_min, object_bytes)
        elements: list[Any] = []
        try:
            for _ in range(count):
                elements.append(read_element(cursor))  # noqa: PERF401 - the path has its length
        except WireError as error:
            error.inside(f"[{len(elements)}]")
            raise
        return tuple(elements)

    def write(out: bytearray, value: Any) -> None:
        write_length(out, None if value is None else len(value))
        for one in value or ():
            write_element(out, one)

    return Kind(read, write, size, POINTER_BYTES)


def numbers(letter: str, is_compact: bool, is_nullable: bool) -> Kind:
    """Return the kind of an array of numbers. One call reads or writes the whole array."""
    read_length, write_length, size = length("" if is_compact else "i", is_nullable)
    size_of_one = struct.calcsize(">" + letter)
    # Short arrays, such as lists of replicas, are frequent.
    calls = {count: struct.Struct(f">{count}{letter}") for count in range(1, 8)}

    def layout(count: int) -> struct.Struct:
        return calls.get(count) or struct.Struct(f">{count}{letter}")

    def read(cursor: Cursor) -> tuple[Any, ...] | None:
        count = read_length(cursor)
        if not count:
            return None if count is None else ()
        cursor.reserve(count, size_of_one, NUMBER_BYTES + POINTER_BYTES)
        values = layout(count).unpack_from(cursor.data, cursor.at)
        cursor.at += count * size_of_one
        return values

    def write(out: bytearray, value: Any) -> None:
        write_length(out, None if value is None else len(value))
        if value:
            out += layout(len(value)).pack(*value)

    return Kind(read, write, size, POINTER_BYTES)
