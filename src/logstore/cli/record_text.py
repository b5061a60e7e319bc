"""Convert records to JSON lines and back, and to text that people read.

A JSON line is `{"key": ..., "value": ..., "timestamp": ..., "headers": [[name, value], ...]}`.
UTF-8 bytes are a JSON string, a missing value is null, and other bytes are `{"base64": "..."}`.
`append --input jsonl` can read exactly what `cat --format jsonl` prints.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from logstore import Record
from logstore.cli.output import time_text

FIELDS = frozenset(
    # `cat` also prints the fields topic, partition and offset, which `append` ignores.
    ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
)

INT64_MAX = 2**63 - 1


class InputRecord(NamedTuple):
    """Hold a record of the input, which has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_json_record(line: bytes) -> InputRecord:
    """Read one JSON line.

    Raises:
        ValueError: the line is not a record; the message says what is wrong with the line.

    """
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError('not a JSON object such as {"key": "k", "value": "v"}')
    if "value" not in document:
        raise ValueError('"value" is missing (a tombstone has "value": null)')
    if not document.keys() <= FIELDS:
        raise ValueError(f'unknown field "{min(document.keys() - FIELDS)}"')
    return InputRecord(
        value=parse_bytes(document["value"], "value"),
        key=parse_bytes(document.get("key"), "key"),
        timestamp=parse_record_timestamp(document.get("timestamp")),
        headers=parse_headers(document.get("headers")),
    )


def parse_bytes(value: Any, field: str) -> bytes | None:
    """Convert a JSON string, null or `{"base64": ...}` to bytes; null becomes None."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError(f'"{field}" has an incomplete surrogate pair') from None
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f'"{field}" is not base64') from None
    raise ValueError(f'"{field}" must be a string, null or {{"base64": "..."}}')


def parse_record_timestamp(value: Any) -> int | None:
    """Read milliseconds since the epoch, or a date and time; without a zone, the time is UTC."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return parse_moment(value)
        except ValueError:
            raise ValueError(f'"timestamp" {value!r} is not a date and time') from None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise ValueError('"timestamp" must be milliseconds since 1970, or a date and time')
    return value


def parse_headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Convert record headers from JSON: a list of pairs, or an object."""
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise ValueError('"headers" must be a list of [name, value] or an object')
    found = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError('each of "headers" must be [name, value]')
        parse_bytes(pair[0], "headers")  # the name must be valid UTF-8, too
        found.append((pair[0], parse_bytes(pair[1], "headers")))
    return tuple(found)


def parse_moment(text: str) -> int:
    """Read a point in time as milliseconds since the epoch.

    Milliseconds and ISO 8601 are accepted, such as `2013-07-04` and `2013-07-04T12:00`, with `Z` or
    the offset of a zone. A time without `Z` and without an offset is UTC.

    Raises:
        ValueError: the text is not a point in time in an accepted form.

    """
    if text.strip().lstrip("-").isdigit():
        return int(text)
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def bytes_to_json(data: bytes | None) -> str | dict[str, str] | None:
    """Convert bytes to a JSON value: UTF-8 bytes to a string, and any other bytes to base64."""
    if data is None:
        return None
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def record_to_json(record: Record) -> dict[str, Any]:
    """Build the JSON object of a record."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_to_json(record.key),
        "value": bytes_to_json(record.value),
        "headers": [[name, bytes_to_json(value)] for name, value in record.headers],
    }


def record_to_line(record: Record) -> str:
    """Format a record for people: offset, time, key, value and headers, separated by tabs."""
    parts = [
        str(record.offset),
        time_text(record.timestamp),
        printable(record.key),
        printable(record.value),
    ]
    if record.headers:
        parts.append(", ".join(f"{name}={printable(value)}" for name, value in record.headers))
    return "\t".join(parts)


def printable(data: bytes | None) -> str:
    """Format bytes for printing, so that the bytes cannot control the terminal."""
    if data is None:
        return "(null)"
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )
