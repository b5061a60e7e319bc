"""Encode and decode messages, for any version of any schema.

    message = decode("MetadataRequest", 12, data)
    data = encode(message, 12)

When a version of a message is first used, a plan is compiled from the schema. The plan has a step
for each field. A step has a function, and the field's slot in the named tuple. Neighbouring fields
of a fixed size share one step. A decoder raises only `WireError`. If a value does not fit its type,
an encoder raises ValueError.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from broker.wire import messages, primitives
from broker.wire.byte_cursor import Cursor, Data, WireError
from broker.wire.primitives import Kind, Read, Write
from broker.wire.schemas import Field, Schema, schema_of

# A text for people, which may quote a long text of the client. If the text is too long, it is cut.
CUT = frozenset({"batch_index_error_message", "error_message"})
_OUT_OF_BYTES = (struct.error, IndexError)  # raised if a read goes past the end of the bytes


class Step(NamedTuple):
    """The slot and the functions of one field, or of several fields of a fixed size."""

    name: str
    slot: int | slice
    read: Read
    write: Write
    size_bytes_min: int


class Tagged(NamedTuple):
    """One tagged field."""

    tag: int
    name: str
    slot: int
    default: Any
    read: Read
    write: Write


def decode(name: str, version: int, data: Data) -> Any:
    """Decode bytes that contain one message and nothing else."""
    return decode_by(plan_of(name, version), data)


def decode_by(plan: Kind, data: Data) -> Any:
    """Use a compiled plan to decode bytes that contain one message and nothing else."""
    cursor = Cursor(memoryview(data))
    message = plan.read(cursor)
    cursor.finish()
    return message


def read_by(plan: Kind, data: Data) -> Any:
    """Use a compiled plan to decode the message at the beginning of bytes, and ignore the rest."""
    return plan.read(Cursor(memoryview(data)))


def read(name: str, version: int, cursor: Cursor) -> Any:
    """Read a message at a cursor, and move the cursor past the message."""
    return plan_of(name, version).read(cursor)


def encode(message: Any, version: int) -> bytearray:
    """Return the bytes of a message."""
    out = bytearray()
    write(out, message, version)
    return out


def write(out: bytearray, message: Any, version: int) -> None:
    """Encode a message, and append the bytes to `out`."""
    write_by(plan_of(type(message).__name__, version), out, message)


def write_by(plan: Kind, out: bytearray, message: Any) -> None:
    """Use a compiled plan to encode a message, and append the bytes to `out`."""
    try:
        plan.write(out, message)
    except (struct.error, TypeError, AttributeError) as error:
        raise ValueError(f"{type(message).__name__} cannot be encoded: {error}") from error


@functools.cache
def plan_of(name: str, version: int) -> Kind:
    """Compile the plan for a version of a message; raise ValueError if it is unknown."""
    return compile_plan(name, version, {})


def compile_plan(name: str, version: int, by_hand: Mapping[str, Kind]) -> Kind:
    """Compile the plan for a version of a message; structs in `by_hand` already have a plan."""
    schema = schema_of(name)
    if version not in schema.versions:
        raise ValueError(f"{name} has no version {version}")
    return _struct(schema, name, version, by_hand)


def _struct(schema: Schema, name: str, version: int, by_hand: Mapping[str, Kind]) -> Kind:
    """Compile the plan of a struct: first the fields in their order, then the tagged fields."""
    if name in by_hand:
        return by_hand[name]
    fields = schema.structs[name]
    kinds = {
        field.name: _kind(schema, field, version, by_hand)
        for field in fields
        if version in field.versions
    }
    steps = list(_steps(fields, kinds, version))
    is_flexible = schema.is_flexible(version)
    tagged = _tagged(schema, name, version, kinds) if is_flexible else None
    size_min = sum(step.size_bytes_min for step in steps) + is_flexible
    object_bytes = 64 + len(fields) * (primitives.POINTER_BYTES + primitives.NUMBER_BYTES)
    return Kind(
        _struct_reader(schema, name, steps, tagged),
        _struct_writer(schema, name, steps, tagged),
        max(size_min, 1),
        object_bytes,
    )


def field_kind(name: str, struct: str, field: str, version: int) -> Kind:
    """Compile the plan for one field of a struct in a message."""
    schema = schema_of(name)
    (found,) = (one for one in schema.structs[struct] if one.name == field)
    return _kind(schema, found, version, {})


def tagged_fields(name: str, struct: str, version: int) -> list[Tagged]:
    """Return the tagged fields of a struct in a message, sorted by tag."""
    schema = schema_of(name)
    kinds = {
        field.name: _kind(schema, field, version, {})
        for field in schema.structs[struct]
        if version in field.tagged
    }
    return _tagged(schema, struct, version, kinds)


def _tagged(schema: Schema, name: str, version: int, kinds: dict[str, Kind]) -> list[Tagged]:
    """Return the tagged fields of a struct. `kinds` has the compiled kind of each field."""
    fields = zip(schema.structs[name], _defaults(schema, name), strict=True)
    return sorted(
        Tagged(field.tag, field.name, slot, default, *kinds[field.name][:2])
        for slot, (field, default) in enumerate(fields)
        if version in field.versions and version in field.tagged
    )


def _defaults(schema: Schema, name: str) -> list[Any]:
    """Return the default values of all fields of a struct."""
    return list(messages.classes_of(schema.name)[name]())


def _steps(fields: Sequence[Field], kinds: dict[str, Kind], version: int) -> Iterator[Step]:
    """Yield the steps for the untagged fields of a version. Fixed-size neighbours share a step."""
    present = [
        (slot, field)
        for slot, field in enumerate(fields)
        if version in field.versions and version not in field.tagged
    ]

    def run_of(place: tuple[int, tuple[int, Field]]) -> tuple[bool, int]:
        order, (slot, field) = place
        is_fixed = field.type in primitives.LETTERS and not field.is_array
        return is_fixed, slot - order if is_fixed else slot

    for (is_fixed, _), places in itertools.groupby(enumerate(present), run_of):
        run = [place for _, place in places]
        slot, field = run[0]
        if not is_fixed or len(run) == 1:
            kind = kinds[field.name]
            yield Step(field.name, slot, kind.read, kind.write, kind.size_bytes_min)
            continue
        layout = primitives.fixed("".join(primitives.LETTERS[field.type] for _, field in run))
        name = f"{field.name}..{run[-1][1].name}"
        yield Step(name, slice(slot, slot + len(run)), *_run(layout), layout.size)


def _run(layout: struct.Struct) -> tuple[Read, Write]:
    """Make the functions that read and write several fields of a fixed size in one call."""
    unpack, pack, size = layout.unpack_from, layout.pack, layout.size

    def read(cursor: Cursor) -> tuple[Any, ...]:
        values = unpack(cursor.data, cursor.at)
        cursor.at += size
        return values

    def write(out: bytearray, values: tuple[Any, ...]) -> None:
        out += pack(*values)

    return read, write


def _kind(schema: Schema, field: Field, version: int, by_hand: Mapping[str, Kind]) -> Kind:
    """Compile the plan for a field in one version of its message."""
    is_nullable = version in field.nullable
    is_compact = version in (schema.flexible if field.flexible is None else field.flexible)
    letter = primitives.LETTERS.get(field.type)
    if field.is_array and letter not in (None, "16s"):
        return primitives.numbers(str(letter), is_compact, is_nullable)
    is_null_text = is_nullable and not field.is_array
    if letter is not None:
        kind = primitives.number(letter)
    elif field.type == "string":
        kind = primitives.text(is_compact, is_null_text, is_cut=field.name in CUT)
    elif field.type in ("bytes", "records"):
        kind = primitives.binary(is_compact, is_null_text, as_view=field.type == "records")
    else:
        kind = _struct(schema, field.type, version, by_hand)
        if is_null_text:
            kind = _nullable(kind)
    return primitives.array(kind, is_compact, is_nullable) if field.is_array else kind


def _nullable(kind: Kind) -> Kind:
    """Make the kind of a struct that may be null: the byte -1 means null; 1 precedes a struct."""

    def read(cursor: Cursor) -> Any:
        mark = cursor.data[cursor.at]
        if mark not in (0xFF, 1):
            cursor.refuse(f"{mark} does not say whether the struct is null")
        cursor.at += 1
        return kind.read(cursor) if mark == 1 else None

    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            kind.write(out, value)

    return Kind(read, write, 1, kind.object_bytes)


def _struct_reader(
    schema: Schema, name: str, steps: list[Step], tagged: list[Tagged] | None
) -> Read:
    """Return the function that reads a struct."""
    cls = messages.classes_of(schema.name)[name]
    defaults = _defaults(schema, name)
    moves = [(step.name, step.slot, step.read) for step in steps]
    fields = {field.tag: field for field in tagged or ()}
    new = tuple.__new__

    def read(cursor: Cursor) -> Any:
        values = defaults.copy()
        name = ""
        try:
            for name, slot, read_step in moves:  # noqa: B007 - the path of an error uses the name
                values[slot] = read_step(cursor)
            if tagged is not None:
                name = "tags"
                if cursor.data[cursor.at]:
                    read_tags(cursor, fields, values)
                else:
                    cursor.at += 1
        except (*_OUT_OF_BYTES, WireError) as error:
            _refuse(cursor, error, name)
        return new(cls, values)

    return read


def _refuse(cursor: Cursor, error: Exception, name: str) -> NoReturn:
    """Raise a `WireError` that names the field at which the decoder stopped."""
    if not isinstance(error, WireError):
        error = WireError(cursor.at, "the bytes end inside a field")
    error.inside(name)
    raise error from None


def read_tags(cursor: Cursor, fields: Mapping[int, Tagged], values: list[Any]) -> None:
    """Read tagged fields in ascending order of their tags, and step over unknown tags."""
    for tag, size in cursor.tags():
        start = cursor.at
        field = fields.get(tag)
        if field is None:
            cursor.at += size
            continue
        try:
            values[field.slot] = field.read(cursor)
        except (*_OUT_OF_BYTES, WireError) as error:
            _refuse(cursor, error, field.name)
        if cursor.at != start + size:
            cursor.refuse(f"the field {field.name} has {cursor.at - start} bytes, not {size}")


def _struct_writer(
    schema: Schema, name: str, steps: list[Step], tagged: list[Tagged] | None
) -> Write:
    """Return the function that writes a struct."""
    cls = messages.classes_of(schema.name)[name]
    moves = [(step.slot, step.write) for step in steps]

    def write(out: bytearray, message: Any) -> None:
        if message.__class__ is not cls:
            raise TypeError(f"{message!r:.100} is not a {name}")
        for slot, write_step in moves:
            write_step(out, message[slot])
        if tagged:
            write_tags(out, tagged, message)
        elif tagged is not None:
            out.append(0)

    return write


def write_tags(out: bytearray, tagged: Sequence[Tagged], message: Any) -> None:
    """Write the tagged fields whose value differs from the default."""
    present = [field for field in tagged if not _is_default(message[field.slot], field.default)]
    primitives.write_uvarint(out, len(present))
    for field in present:
        data = bytearray()
        field.write(data, message[field.slot])
        primitives.write_uvarint(out, field.tag)
        primitives.write_uvarint(out, len(data))
        out += data


def _is_default(value: Any, default: Any) -> bool:
    """Report whether a value equals its default. An empty list equals an empty tuple."""
    return bool(value == default) or (default == () and value == [])
