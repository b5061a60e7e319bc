"""Store a number or a list in every log dir, so that it still exists after a disk is lost."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from logstore import LogStore, LogStoreError

WRITE_SECONDS_MAX = 2.0  # how long a write waits for a slow log dir


def largest(store: LogStore, fact: str) -> int:
    """Return the largest number in the log dirs that work; return 0 if there is no number."""
    found = [value for value in values(store, fact) if isinstance(value, int)]
    return max(found, default=0)


def newest(store: LogStore, fact: str) -> tuple[int, int]:
    """Return the pair (time, number) with the latest time; return (0, 0) if there is no pair."""
    pairs = [
        (value[0], value[1])
        for value in values(store, fact)
        if isinstance(value, list) and [type(one) for one in value] == [int, int]
    ]
    return max(pairs, default=(0, 0))


def values(store: LogStore, fact: str) -> list[Any]:
    """Return the value of each log dir that works; None for a log dir that has no value."""
    found = []
    for path in store.log_dirs:
        with suppress(LogStoreError):  # the log dir does not work
            found.append(store.facts(path).get(fact))
    return found


def spread(store: LogStore, fact: str, number: int) -> None:
    """Write a number to all log dirs, if the number is certain and a log dir lacks it.

    The number is certain if a log dir stores it, or if every log dir works.

    Raises:
        LogStoreError: no log dir has written the number.
    """
    known = values(store, fact)
    is_certain = number in known or len(known) == len(store.log_dirs)
    if is_certain and known.count(number) < len(known):
        remember(store, fact, number)


def remember(store: LogStore, fact: str, value: int | list[Any]) -> None:
    """Write a value to all log dirs at the same time. It is enough if one write succeeds.

    Raises:
        LogStoreError: no log dir has written the value.
    """
    failures: dict[str, LogStoreError] = {}
    done: list[str] = []

    def write(path: str) -> None:
        try:
            store.facts(path)[fact] = value
            done.append(path)
        except LogStoreError as error:
            failures[path] = error

    threads = [
        threading.Thread(target=write, args=(path,), name="broker-facts", daemon=True)
        for path in store.log_dirs
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WRITE_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if not done:
        raise next(iter(failures.values()), LogStoreError("no log dir answers"))
