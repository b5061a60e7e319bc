"""Provide the class of each message: `from broker.wire.messages import MetadataResponse`.

A message is a named tuple with the fields of all its versions, in snake_case. The classes of a
message's structs are attributes of the message's class, such as
`MetadataResponse.MetadataResponseBroker`. If no value was given for a field, it has the default of
the schema. A decoded message also has the default of a field that its version lacks. An encoder
leaves out the fields that its version does not have. So one message can be encoded in every version
(ADR 21).
"""

from __future__ import annotations

import functools
import threading
from collections import namedtuple
from typing import Any

from broker.wire import schemas

_namedtuple: Any = namedtuple  # the fields are read from a file, so a type checker cannot know them
_made: dict[str, dict[str, Any]] = {}
_making = threading.Lock()  # guards `_made`
INTEGERS = {"int8", "int16", "int32", "int64", "uint16", "uint32"}
EMPTY: dict[str, Any] = {
    "string": "", "bytes": b"", "records": None, "uuid": bytes(16), "bool": False, "float64": 0.0,
    **dict.fromkeys(INTEGERS, 0),
}  # fmt: skip


def default_of(field: schemas.Field, classes: dict[str, Any]) -> Any:
    """Return the value that a field has if no value was given."""
    default = field.default
    if default == "null":
        return None
    if field.is_array:
        return ()
    if field.type not in EMPTY:
        return classes[field.type]()
    if default is None:
        return EMPTY[field.type]
    if field.type in INTEGERS:
        return int(str(default), 0)
    return str(default).lower() == "true" if field.type == "bool" else default


@functools.cache
def classes_of(name: str) -> dict[str, Any]:
    """Map the names of a message and of its structs in the schema to their classes.

    The classes are made only once, even if several threads need them at the same time. If a class
    were made twice, messages of one of the two classes could not be encoded.
    """
    with _making:
        if name not in _made:
            _made[name] = _classes_of(name)
        return _made[name]


def _classes_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = dict(schemas.schema_of(name).structs)
    while waiting:
        for struct, fields in list(waiting.items()):
            if any(not field.is_array and field.type in waiting for field in fields):
                continue  # the default needs a struct whose class does not exist yet
            kind = _namedtuple(
                struct,
                [field.name for field in fields],
                defaults=[default_of(field, found) for field in fields],
                module=__name__,
            )
            kind.__doc__ = f"{struct} of {name}, of any version." if struct != name else f"{name}."
            found[struct] = kind
            del waiting[struct]
    for struct, kind in found.items():
        if struct != name:
            setattr(found[name], struct, kind)
    return found


def __getattr__(name: str) -> Any:
    """Make the class of a message when its name is first used."""
    try:
        return classes_of(name)[name]
    except KeyError:
        raise AttributeError(f"no message is named {name!r}") from None
