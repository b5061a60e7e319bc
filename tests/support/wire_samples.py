"""Make up messages of the wire protocol from their schemas: any field, any version."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from broker.wire.own_fields import FIRST_TAG
from broker.wire.schemas import Field, Schema, names, schema_of

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
WORDS = ["", "a", "topic-1", "größer", "数据", "x" * 127, "y" * 200]
VERSIONS = [(name, version) for name in names() for version in range(*schema_of(name).versions)]


def sample(name: str, version: int, rng: random.Random, elements_max: int = 2) -> Any:
    """Make up a message; fields that its version does not have keep their defaults."""
    return _struct(schema_of(name), name, version, rng, elements_max)


def _struct(schema: Schema, name: str, version: int, rng: random.Random, elements_max: int) -> Any:
    """Make up a struct; a tagged field is left out every other time.

    Fields that are not Kafka's keep their defaults, because Kafka's classes do not know them.
    """
    given = {
        field.name: _value(schema, field, version, rng, elements_max)
        for field in schema.structs[name]
        if field.tag < FIRST_TAG
        if version in field.versions and not (version in field.tagged and rng.random() < 0.5)
    }
    return messages.classes_of(schema.name)[name](**given)


def _value(
    schema: Schema, field: Field, version: int, rng: random.Random, elements_max: int
) -> Any:
    """Make up the value of a field; null one time in five, where it may be."""
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        count = rng.randint(0, elements_max)
        return tuple(_one(schema, field, version, rng, elements_max) for _ in range(count))
    return _one(schema, field, version, rng, elements_max)


def _one(schema: Schema, field: Field, version: int, rng: random.Random, elements_max: int) -> Any:
    """Make up a value of a type, or of an element of an array."""
    kind = field.type
    if kind in BITS:
        if field.name.endswith("error_code"):
            return int(rng.choice(list(ErrorCode)))
        if field.name.endswith(("_ms", "timestamp")):
            return rng.choice([-1, 0, 1, 30_000, 2**31 - 1])
        half = 1 << (BITS[kind] - 1)
        return rng.choice([0, 1, -1, half - 1, -half, rng.randrange(-half, half)])
    if kind == "string":
        return rng.choice(WORDS)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 1, 126, 127, 300]))
    simple: dict[str, Callable[[], Any]] = {
        "bool": lambda: rng.random() < 0.5,
        "uint16": lambda: rng.choice([0, 9092, 65535]),
        "uint32": lambda: rng.choice([0, 1, 2**32 - 1]),
        "float64": lambda: rng.choice([0.0, -1.5, 1e300]),
        "uuid": lambda: rng.choice([bytes(16), rng.randbytes(16)]),
    }
    if kind in simple:
        return simple[kind]()
    return _struct(schema, kind, version, rng, elements_max)
