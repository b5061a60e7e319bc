"""Encode the messages of the admin socket: one JSON object per line, one request per connection.

    client -> owner    {"command": "cordon", "path": "/disk1/logs"}
    owner -> client    {"progress": ...}        any number of times, then one of
                       {"result": ...}
                       {"error": {"kind": "LogDirOfflineError", "message": ..., "facts": {...}}}

If the owner raised an error of this library, the client raises the same error, with the same class,
message and facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from logstore.errors import LogStoreError

REQUEST_BYTES_MAX = 4 << 20
USAGE_ERRORS: dict[str, type[Exception]] = {"TypeError": TypeError, "ValueError": ValueError}


def encode_line(document: dict[str, Any]) -> bytes:
    """Encode a document as a line; a value that JSON cannot represent becomes text."""
    return json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    """Decode a line into a document.

    Raises:
        ValueError: the line is not one JSON object.
    """
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("the line is not a JSON object")
    return document


def encode_error(error: BaseException) -> dict[str, Any]:
    """Encode an error: its class, its message, and its facts."""
    facts = error.facts if isinstance(error, LogStoreError) else {}
    text = str(error) if isinstance(error, LogStoreError | ValueError | TypeError) else repr(error)
    return {"kind": type(error).__name__, "message": text, "facts": facts}


def decode_error(document: object) -> Exception:
    """Make an exception from an error that the owner reported.

    If the owner has a later version, and reports a class that this version does not have, the
    exception is a LogStoreError.
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
    """Iterate over an error class and all its imported subclasses."""
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
