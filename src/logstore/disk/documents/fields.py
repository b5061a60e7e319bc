"""Read the fields of small files: each field has a type and a range; other values are refused.

A checksum shows only that a file did not change after it was written. So each field is checked
before it is used. If a file contains its kind or the id of its log dir, both must be as expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logstore.names import TopicPartition

OFFSET_MAX = 2**62  # the largest offset that a log can have
EPOCH_MAX = PARTITION_MAX = 2**31 - 1
NUMBER_MAX = 2**53  # the bound for numbers of starts, steps and generations
TOPIC_ID_DIGITS = 32
SHOWN_CHARACTERS = 40

# The errors that a missing or wrong field raises while a document is read.
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def number(value: object, what: str, high: int = NUMBER_MAX, low: int = 0) -> int:
    """Check that a value is a whole number in its range, and return it. Raises ValueError."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{what} is {_shown(value)}, not a whole number from {low} to {high}")
    return value


def text(value: object, what: str) -> str:
    """Check that a value is text, and return it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {_shown(value)}, not text")
    return value


def flag(value: object, what: str) -> bool:
    """Check that a value is true or false, and return it. Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} is {_shown(value)}, not true or false")
    return value


def mapping(value: object, what: str) -> dict[str, Any]:
    """Check that a value is a JSON object, and return it. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {_shown(value)}, not an object")
    return value


def id_bytes(value: object, what: str) -> bytes:
    """Convert an id of 32 hex digits into its 16 bytes. Raises ValueError."""
    if not isinstance(value, str) or len(value) != TOPIC_ID_DIGITS:
        raise ValueError(f"{what} is {_shown(value)}, not {TOPIC_ID_DIGITS} hex digits")
    return bytes.fromhex(value)


def rows(value: object, what: str, width: int) -> list[list[Any]]:
    """Check that a value is a list of rows of `width` fields, and return it. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{what} is {_shown(value)}, not a list")
    for row in value:
        if not isinstance(row, list) or len(row) != width:
            raise ValueError(f"a row of {what} is {_shown(row)}, not a list of {width} fields")
    return value


def partition_key(topic: object, partition: object) -> TopicPartition:
    """Make a key of the topic and partition in a row. Raises ValueError."""
    return TopicPartition(text(topic, "a topic"), number(partition, "a partition", PARTITION_MAX))


def check_kind(document: Mapping[str, Any], kind: str, directory_id: str | None = None) -> None:
    """Raise ValueError if a document has another kind or log dir than expected.

    Older versions of this library wrote no kind into some files. If a file has no kind, but the
    right fields, the file is used.
    """
    found = document.get("kind", kind)
    whose = document.get("directory_id") if directory_id is not None else None
    if found != kind or whose != directory_id:
        if directory_id is None:
            raise ValueError(f"this is the file {_shown(found)}, not {kind}")
        raise ValueError(
            f"this is the file {_shown(found)} of log dir {_shown(whose)}, not {kind} of log dir "
            f"{directory_id}"
        )


def told(error: Exception) -> str:
    """Describe what is wrong with a document; `error` is one of the errors in `WRONG`."""
    if isinstance(error, KeyError):
        return f"the field {error.args[0]!r} is missing"
    return str(error) if type(error) is ValueError else "a field has a wrong type"


def _shown(value: object) -> str:
    """Return a value as text for a warning; a long value is shortened."""
    written = value if isinstance(value, str) else repr(value)
    if len(written) > SHOWN_CHARACTERS:
        written = f"{written[:SHOWN_CHARACTERS]}..."
    return written
