"""Messages of the admin socket are read back unchanged, errors as errors."""

from __future__ import annotations

import json

import pytest

from logstore import errors
from logstore.store.admin.protocol import decode_error, decode_line, encode_error, encode_line

FACTS = {
    "path": "/disk1/logs", "position": 7, "reason": "it is odd", "pid": 12, "topic": "orders",
    "partition": 3, "paths": ["/a", "/b"], "version": 2, "offset": 1, "log_start_offset": 2,
    "log_end_offset": 3, "size_bytes": 4, "max_message_bytes": 5,
    "record_expansion_bytes_max": 6, "producer_id": 8, "epoch": 1, "current_epoch": 2,
    "sequence": 9, "expected_sequence": 10, "coordinator_epoch": 3, "leader_epoch": 1,
    "timestamp": 4, "timestamp_min": 5, "timestamp_max": 6, "number": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_keeps_class_words_and_facts(name: str) -> None:
    """The client raises the same error as the owner."""
    error = getattr(errors, name)(**FACTS)
    line = encode_line({"error": encode_error(error)})
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    again = decode_error(decode_line(line)["error"])
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.facts == error.facts  # type: ignore[attr-defined]
    assert again.retriable == error.retriable  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [ValueError, TypeError])
def test_wrong_arguments_stay_wrong_arguments(kind: type[Exception]) -> None:
    """They count as errors of the caller on both sides."""
    again = decode_error(encode_error(kind("not so")))
    assert type(again) is kind and str(again) == "not so"


def test_an_error_of_another_package_is_found_by_its_name() -> None:
    """Packages that build on this library have errors of the same tree."""

    class LostMoveError(errors.LogStoreError):
        _template = "the move of {topic} is lost"

    again = decode_error(encode_error(LostMoveError(topic="orders")))
    assert type(again) is LostMoveError and again.facts["topic"] == "orders"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "NewerError", "message": "what a later version says"}, "a later version"),
        ({"kind": "LogDirError", "message": "m", "facts": "none"}, "m"),
        ("nonsense", "nonsense"),
        (encode_error(RuntimeError("a bug")), "a bug"),
        (encode_error(KeyboardInterrupt()), "KeyboardInterrupt"),
    ],
)
def test_what_is_not_known_is_an_error_all_the_same(document: object, said: str) -> None:
    """No answer of an owner makes the client raise an unexpected error."""
    again = decode_error(document)
    assert type(again) is errors.LogStoreError and said in str(again)


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000, b"null"])
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    """A ValueError is raised, whatever the line is."""
    with pytest.raises(ValueError, match=r"."):
        decode_line(line)


def test_what_json_has_no_word_for_goes_as_text() -> None:
    """A result can always be sent."""
    assert json.loads(encode_line({"result": {1, 2}, "x": b"1"}))["x"] == "b'1'"
