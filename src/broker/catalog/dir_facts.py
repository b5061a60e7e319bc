"""Remember a number in every log dir, so that it survives the loss of a disk."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from logstore import LogStore, LogStoreError

WRITE_SECONDS_MAX = 2.0  # a write does not wait longer for a slow log dir


def largest(store: LogStore, fact: str) -> int:
    """Return the largest number that a log dir which serves remembers; 0 if none does."""
    found = [value for value in values(store, fact) if isinstance(value, int)]
    return max(found, default=0)


def newest(store: LogStore, fact: str) -> tuple[int, int]:
    """Return the pair (time, number) with the latest time; (0, 0) if no log dir has a pair."""
    pairs = [
        (value[0], value[1])
        for value in values(store, fact)
        if isinstance(value, list) and [type(one) for one in value] == [int, int]
    ]
    return max(pairs, default=(0, 0))


def values(store: LogStore, fact: str) -> list[Any]:
    """Return what each log dir that serves remembers."""
    found = []
    for path in store.log_dirs:
        with suppress(LogStoreError):  # it does not serve
            found.append(store.facts(path).get(fact))
    return found


def spread(store: LogStore, fact: str, number: int) -> None:
    """Write a number to log dirs that lack it, if it is certain: one has it, or all serve.

    Raises:
        LogStoreError: no log dir has written it.
    """
    known = values(store, fact)
    is_certain = number in known or len(known) == len(store.log_dirs)
    if is_certain and known.count(number) < len(known):
        remember(store, fact, number)


def remember(store: LogStore, fact: str, value: int | list[Any]) -> None:
    """Write a number, or a list, to all log dirs at once; one is enough.

    Raises:
        LogStoreError: no log dir has written it.
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
