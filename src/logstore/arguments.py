"""Check the arguments that callers pass.

An error names the argument, describes the expected value, and shows the given value. A wrong type
gives a TypeError. A value out of range gives a ValueError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from operator import index as as_index
from types import FunctionType
from typing import Any, TypeVar

TEXT_SHOWN_MAX = 60

Kind = TypeVar("Kind")
StrPath = str | os.PathLike[str]


def shown(given: object) -> str:
    """Describe the value of an argument in a few words."""
    if isinstance(given, str):
        return repr(given if len(given) <= TEXT_SHOWN_MAX else given[:TEXT_SHOWN_MAX] + "...")
    if given is None or isinstance(given, bool | float):
        return repr(given)
    if isinstance(given, int) and given.bit_length() <= 64:
        return repr(given)
    return f"one {type(given).__name__}"


def wrong(name: str, wanted: str, given: object) -> TypeError:
    """Create the error for an argument of the wrong type."""
    return TypeError(f"{name} must be {wanted}, not {shown(given)}")


def whole(given: Any, name: str, low: int | None = None) -> int:
    """Check a whole number; NumPy's whole numbers are accepted, bool and float are refused.

    Args:
        low: the least allowed value, or None to check no range.
    """
    try:
        number = as_index(given)
    except TypeError:
        raise wrong(name, "a whole number", given) from None
    if isinstance(given, bool):
        raise wrong(name, "a whole number", given)
    if low is not None and number < low:
        raise ValueError(f"{name} {shown(number)} is less than {low}")
    return number


def timestamp_of(given: Any, name: str = "a timestamp") -> int:
    """Check a time: ms since the epoch, or a datetime with a zone, which is rounded down to ms."""
    from datetime import UTC, datetime, timedelta

    if not isinstance(given, datetime):
        try:
            return whole(given, name)
        except TypeError:
            form = "a whole number of ms since the epoch, or a datetime with a zone"
            raise wrong(name, form, given) from None
    if given.utcoffset() is None:
        raise ValueError(
            f"{name} {given} has no zone, so it may mean any of 24 hours: use "
            "datetime.now(timezone.utc), .replace(tzinfo=...), or .astimezone() for local time"
        )
    return (given - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def seconds(given: Any, name: str = "timeout") -> float:
    """Check a waiting time in seconds: it must be finite and not below 0."""
    number: Any = given
    if isinstance(given, bool) or not isinstance(given, Real):
        raise wrong(name, "a number of seconds", given)
    if not 0 <= number <= threading.TIMEOUT_MAX:  # NaN is refused, too
        raise ValueError(
            f"{name} {shown(given)} is not a time to wait: 0 to {threading.TIMEOUT_MAX:.0f} seconds"
        )
    return float(number)


def timeout_of(given: Any) -> float | None:
    """Check a `timeout`: seconds, or None to wait without limit."""
    return None if given is None else seconds(given)


def flag(given: Any, name: str) -> bool:
    """Check that an argument is True or False; the text "false" is refused."""
    if given is True or given is False:
        return given
    import numpy as np

    if isinstance(given, np.bool_):
        return bool(given)
    raise wrong(name, "True or False", given)


def text(given: Any, name: str) -> str:
    """Check that an argument is a str."""
    if not isinstance(given, str):
        raise wrong(name, "text", given)
    return given


def path_of(given: Any, name: str) -> str:
    """Check a path: a str or a PathLike."""
    found = given
    if not isinstance(given, str):
        try:
            found = os.fspath(given)
        except TypeError:
            raise wrong(name, "a path", given) from None
        if not isinstance(found, str):
            raise wrong(name, "a path, as text", given)
    if not found or "\0" in found:
        raise ValueError(f"{name} must be a path, not {shown(found)}")
    return found  # type: ignore[no-any-return]


def instance(given: Any, kind: type[Kind], name: str) -> Kind:
    """Check that an argument is an object of one class."""
    if not isinstance(given, kind):
        raise wrong(name, f"a {kind.__name__}", given)
    return given


def callback(given: Any, name: str) -> Any:
    """Check that an argument is callable or None."""
    if given is not None and not callable(given):
        raise wrong(name, "a function or None", given)
    return given


def function(given: Any, name: str) -> Any:
    """Check that an argument is callable. Raises TypeError."""
    if not callable(given):
        raise wrong(name, "a function", given)
    return given


def many(given: Any, name: str, of: str) -> Iterable[Any]:
    """Check that an argument is iterable; refuse a single str, bytes or mapping as a mistake."""
    is_one = isinstance(given, str | bytes | bytearray | memoryview | Mapping)
    try:
        iter(() if is_one else given)  # `iter` also accepts an object that has only `__getitem__`
    except TypeError:
        is_one = True
    if is_one:
        raise wrong(name, f"a sequence of {of}", given)
    return given  # type: ignore[no-any-return]


def known_as(name: str) -> Callable[[type[Kind]], type[Kind]]:
    """Make Python's own errors name the public class instead of the base class with the method.

    For example, the error says "Log.read() got an unexpected keyword argument", and not
    "ReadableLog.read()".
    """

    def rename(kind: type[Kind]) -> type[Kind]:
        for method in vars(kind).values():
            while isinstance(method, FunctionType):
                method.__qualname__ = f"{name}.{method.__name__}"
                method = getattr(method, "__wrapped__", None)
        return kind

    return rename
