"""Word what passes through the admin socket: one JSON object a line, one request a connection.

    client -> owner    {"command": "cordon", "path": "/disk1/logs"}
    owner -> client    {"progress": ...}        any number of times, then one of
                       {"result": ...}
                       {"error": {"kind": "LogDirOfflineError", "message": ..., "facts": {...}}}

An error of this library's tree comes out at the client as the error that it was at the owner:
same class, same words, same facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from logstore.errors import LogStoreError

REQUEST_BYTES_MAX = 4 << 20
USAGE_ERRORS: dict[str, type[Exception]] = {"TypeError": TypeError, "ValueError": ValueError}


def encode_line(document: dict[str, Any]) -> bytes:
    """Make a line; what JSON has no word for goes as text."""
    return json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    """Read a line.

    Raises:
        ValueError: it is not one JSON object.
    """
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def encode_error(error: BaseException) -> dict[str, Any]:
    """Word an error: its class, what it says, and its facts."""
    facts = error.facts if isinstance(error, LogStoreError) else {}
    text = str(error) if isinstance(error, LogStoreError | ValueError | TypeError) else repr(error)
    return {"kind": type(error).__name__, "message": text, "facts": facts}


def decode_error(document: object) -> Exception:
    """Make the error that an owner told of.

    A class that is not known here (an owner of a later version has more) becomes LogStoreError.
    """
    if not isinstance(document, dict):
        return LogStoreError(f"the owner's answer cannot be read: {document!r}")
    kind, text = str(document.get("kind")), str(document.get("message"))
    if kind in USAGE_ERRORS:
        return USAGE_ERRORS[kind](text)
    facts = document.get("facts")
    known = {error.__name__: error for error in _family(LogStoreError)}
    if kind in known and isinstance(facts, dict):
        return known[kind](text, **{str(name): value for name, value in facts.items()})
    return LogStoreError(text)


def _family(kind: type[LogStoreError]) -> Iterator[type[LogStoreError]]:
    """Go through an error and all that descend from it, as far as they are imported."""
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
