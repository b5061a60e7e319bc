"""Store a number or a list in every log dir, so that it still exists after a disk is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from logstore import LogStore, LogStoreError

LOG = logging.getLogger("broker")
WRITE_SECONDS_MAX = 2.0  # how long a write waits for a slow log dir
# The servers of ZooKeeper and the path, in a list. Without this fact, a broker of a cluster that is
# started without its ZooKeeper would serve alone, and the cluster would not know the new records.
CLUSTER = "cluster.zookeeper"


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

    def write(path: str) -> None:
        store.facts(path)[fact] = value

    failures = write_at_once(store.log_dirs, write)
    if len(failures) == len(store.log_dirs):
        raise next(iter(failures.values()), LogStoreError("no log dir answers"))


def remember_cluster(store: LogStore, zookeeper: str) -> None:
    """Store in every log dir that works that the broker is one of a cluster."""
    if values(store, CLUSTER) == [[zookeeper]] * len(store.log_dirs):
        return
    try:
        remember(store, CLUSTER, [zookeeper])
    except LogStoreError as error:  # the next start tries again
        LOG.warning("the log dirs do not store the address of their cluster: %s", error)


def cluster_of(store: LogStore) -> str:
    """Return the ZooKeeper of the broker's cluster; "" if the broker was never in a cluster."""
    for value in values(store, CLUSTER):
        match value:
            case [str(zookeeper)]:
                return zookeeper
    return ""


def write_at_once(paths: Iterable[str], write: Callable[[str], None]) -> dict[str, LogStoreError]:
    """Write to several log dirs at the same time, and wait for them at most `WRITE_SECONDS_MAX`.

    Returns:
        The log dirs that have not written, each with the reason. If a log dir does not answer in
        time, its write may still happen later.
    """
    failures = {path: LogStoreError(f"log dir {path} does not answer") for path in paths}

    def attempt(path: str) -> None:
        try:
            write(path)
        except LogStoreError as error:
            failures[path] = error
        else:
            del failures[path]

    threads = [
        threading.Thread(target=attempt, args=(path,), name="broker-facts", daemon=True)
        for path in failures
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WRITE_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(failures)
