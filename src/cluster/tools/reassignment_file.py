"""Read the file of kafka-reassign-partitions: the brokers and the log dirs of each partition."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from cluster.tools.asking import Place
from logstore.names import validate_partition, validate_topic

ANY = "any"
BROKER_MAX = 2**31 - 1  # the largest broker id


class Wanted(NamedTuple):
    """The brokers and the log dirs that a partition should have.

    Attributes:
        replicas: the brokers, the preferred leader first.
        dirs: for each broker, the path of a log dir. If a broker is not named, it chooses a log
            dir.
    """

    replicas: list[int]
    dirs: dict[int, str]


def parse_reassignment(text: str) -> dict[Place, Wanted]:
    """Read the brokers and log dirs of each partition. Raises ValueError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is not JSON: {error}") from None
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('the file has no list "partitions"')
    if not entries:
        raise ValueError('the list "partitions" is empty')
    found: dict[Place, Wanted] = {}
    for entry in entries:
        place, wanted = _entry(entry)
        if place in found:
            raise ValueError(f"{place[0]}-{place[1]} is listed twice")
        found[place] = wanted
    return found


def _entry(entry: Any) -> tuple[Place, Wanted]:
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r} is no partition")
    name, number, replicas = (entry.get(key) for key in ("topic", "partition", "replicas"))
    is_list = isinstance(replicas, list) and replicas and all(type(one) is int for one in replicas)
    if not isinstance(name, str) or not name or type(number) is not int or not is_list:
        raise ValueError(f"{json.dumps(entry)} must have a topic, a partition and replicas")
    assert isinstance(replicas, list)
    validate_topic(name)
    validate_partition(number)
    wrong = [one for one in replicas if not 0 <= one <= BROKER_MAX]
    if wrong:
        raise ValueError(f"{name}-{number}: {wrong[0]} is no broker id")
    paths = entry.get("log_dirs") or [ANY] * len(replicas)
    is_list = isinstance(paths, list) and len(paths) == len(replicas)
    if not is_list or not all(isinstance(one, str) and one for one in paths):
        raise ValueError(f'{name}-{number}: "log_dirs" must have a path or "any" for each replica')
    for path in paths:
        if path != ANY and not path.startswith("/"):
            raise ValueError(f'{name}-{number}: {path!r} is neither an absolute path nor "any"')
    dirs = {broker: path for broker, path in zip(replicas, paths, strict=True) if path != ANY}
    return (name, number), Wanted(replicas, dirs)
