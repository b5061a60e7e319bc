"""Arguments are converted to one form, or refused with their name and what is expected."""

from __future__ import annotations

import decimal
import fractions
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logstore.arguments import flag, many, path_of, seconds, shown, timeout_of, whole


@pytest.mark.parametrize("given", [0, 7, np.int8(7), np.uint64(7), np.array(7)])
def test_whole_numbers_come_as_ints(given: Any) -> None:
    """NumPy's whole numbers, which could overflow, become ints, too."""
    assert type(whole(given, "n")) is int
    assert whole(given, "n") == given


@pytest.mark.parametrize("given", [True, np.bool_(True), 1.0, "1", b"1", None, [1], np.zeros(2)])
def test_what_is_no_whole_number_is_a_type_error(given: Any) -> None:
    """Other types are not converted by guessing."""
    with pytest.raises(TypeError, match=r"^n must be a whole number, not "):
        whole(given, "n")


def test_a_number_below_the_least_is_a_value_error() -> None:
    """This holds for any number, however small."""
    assert whole(1, "n", 1) == 1
    with pytest.raises(ValueError, match=r"^n 0 is less than 1$"):
        whole(0, "n", 1)
    with pytest.raises(ValueError, match=r"^n one int is less than 1$"):
        whole(-(10**5000), "n", 1)


@pytest.mark.parametrize("given", [0, 1.5, np.float32(1.5), fractions.Fraction(3, 2)])
def test_seconds_are_any_real_number(given: Any) -> None:
    """The result is a float."""
    assert type(seconds(given)) is float
    assert seconds(given) == given


@pytest.mark.parametrize(
    "given", [-1, -0.1, float("nan"), float("inf"), -float("inf"), threading.TIMEOUT_MAX * 2, 2**70]
)
def test_what_is_no_time_to_wait_is_a_value_error(given: Any) -> None:
    """NaN compares with nothing, so a wait for NaN seconds never ended."""
    with pytest.raises(ValueError, match=r"^timeout .* is not a time to wait: 0 to "):
        seconds(given)


@pytest.mark.parametrize("given", [True, "1", None, [1], 1j, decimal.Decimal(1), np.zeros(2)])
def test_seconds_of_another_kind_are_a_type_error(given: Any) -> None:
    """True and False are not numbers of seconds."""
    with pytest.raises(TypeError, match=r"^linger must be a number of seconds, not "):
        seconds(given, "linger")


def test_a_timeout_may_be_none() -> None:
    """None means to wait without limit."""
    assert timeout_of(None) is None
    assert timeout_of(2) == 2.0


@pytest.mark.parametrize("given", [0, 1, "false", None, "", []])
def test_a_flag_is_true_or_false(given: Any) -> None:
    """The text "false" is refused, because it would count as true."""
    assert flag(True, "f") is flag(np.bool_(True), "f") is True
    with pytest.raises(TypeError, match=r"^f must be True or False, not "):
        flag(given, "f")


@pytest.mark.parametrize("given", [5, None, b"x", [], True])
def test_a_path_is_text_or_a_path(given: Any) -> None:
    """Bytes are refused: the library returns paths as text."""
    assert path_of(Path("a/b"), "p") == path_of("a/b", "p") == "a/b"
    with pytest.raises(TypeError, match=r"^p must be a path"):
        path_of(given, "p")


@pytest.mark.parametrize("given", ["", "a\0b"])
def test_a_path_names_something(given: str) -> None:
    """A path that no system call accepts is refused before any call."""
    with pytest.raises(ValueError, match=r"^p must be a path, not "):
        path_of(given, "p")


@pytest.mark.parametrize("given", ["ab", b"ab", bytearray(2), memoryview(b"ab"), {"a": 1}, 5, None])
def test_one_thing_is_not_many(given: Any) -> None:
    """A text could be iterated letter by letter, which is never intended."""
    for good in ([1], (1,), {1}, iter([1]), np.ones(1), range(1, 2)):
        assert list(many(good, "m", "numbers")) == [1]
    with pytest.raises(TypeError, match=r"^m must be a sequence of numbers, not "):
        many(given, "m", "numbers")


def test_what_was_given_is_shown_short() -> None:
    """An error message stays readable, whatever the argument is."""
    assert shown("x" * 1000) == repr("x" * 60 + "...")
    assert shown(10**5000) == "one int"
    assert shown(bytes(1000)) == "one bytes"
    assert shown(np.zeros(1000)) == "one ndarray"
    assert [shown(one) for one in (None, True, -5, 1.5)] == ["None", "True", "-5", "1.5"]
