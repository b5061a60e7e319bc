"""A cache keeps to its capacity, gives what was used a second chance, and shares what it has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from logstore.disk import files
from logstore.log.segments.cache import Cache, Handle


def test_the_weight_stays_within_the_capacity() -> None:
    """The oldest item that was not used is evicted first."""
    cache, home = Cache(3), dict[Any, Any]()
    for key in "abc":
        cache.put(home, key, key.upper(), 1)
        home[key].is_used = False
    home["a"].is_used = True
    cache.put(home, "d", "D", 1)
    assert set(home) == {"a", "c", "d"} and cache.weight == 3


def test_the_first_of_two_values_stays() -> None:
    """So two threads that made the same value share one value."""
    cache, home = Cache(3), dict[Any, Any]()
    assert cache.put(home, "a", "first", 1) == "first"
    assert cache.put(home, "a", "second", 1) == "first"
    assert cache.weight == 1


def test_what_is_larger_than_the_cache_stands_alone() -> None:
    """It stays until another value is added."""
    cache, home = Cache(3), dict[Any, Any]()
    cache.put(home, "a", "A", 1)
    cache.put(home, "large", "L", 100)
    assert set(home) == {"large"}
    cache.put(home, "b", "B", 1)
    assert set(home) == {"b"} and cache.weight == 1


def test_what_is_dropped_weighs_nothing() -> None:
    """This holds for single values and for a whole home; a missing value may be dropped, too."""
    cache, home, other = Cache(100), dict[Any, Any](), dict[Any, Any]()
    for key in range(50):
        cache.put(home, key, key, 1)
    cache.put(other, 0, 0, 1)
    cache.drop(home, 7)
    cache.drop(home, 7)
    assert cache.weight == 50 and 7 not in home
    cache.drop_all(home)
    assert (cache.weight, home, set(other)) == (1, {}, {0})
    assert len(cache._ring) <= 3


def test_a_handle_closes_when_nobody_holds_it(tmp_path: Path) -> None:
    """While any object refers to the handle, it stays open, whatever the cache does."""
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    cache, home = Cache(1), dict[Any, Any]()
    held = cache.put(home, "a", Handle(fd), 1)
    cache.drop_all(home)
    assert os.fstat(held.fd)
    del held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_regression_nothing_is_closed_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All log dirs share the lock: a close that hangs on one disk must not block the others."""
    cache, home, is_locked = Cache(1), dict[Any, Any](), list[bool]()
    real = files.close

    def close(fd: int) -> None:
        is_locked.append(cache._lock.locked())
        real(fd)

    monkeypatch.setattr(files, "close", close)
    for number in range(4):
        fd = os.open(tmp_path / f"file{number}", os.O_CREAT | os.O_RDWR)
        cache.put(home, number, Handle(fd), 1)
        home[number].is_used = False
    assert is_locked == [False] * 3
    cache.drop(home, 3)
    assert is_locked == [False] * 4
