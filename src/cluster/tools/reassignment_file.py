"""Read the file of kafka-reassign-partitions: which brokers shall have each partition."""

from __future__ import annotations

import json
from typing import Any

from cluster.tools.asking import Place

ANY = "any"
ELSEWHERE = "log dirs are changed by `logstore reassign`, or by kafka-reassign-partitions"


def parse_reassignment(text: str) -> dict[Place, list[int]]:
    """Read the brokers of each partition.

    Raises:
        ValueError: the text is not such a file, or asks for log dirs.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no JSON: {error}") from None
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError('the file has no list "partitions"')
    found: dict[Place, list[int]] = {}
    for entry in entries:
        place, replicas = _entry(entry)
        if place in found:
            raise ValueError(f"{place[0]}-{place[1]} is listed twice")
        found[place] = replicas
    return found


def _entry(entry: Any) -> tuple[Place, list[int]]:
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r} is no partition")
    name, number, replicas = (entry.get(key) for key in ("topic", "partition", "replicas"))
    is_list = isinstance(replicas, list) and replicas and all(type(one) is int for one in replicas)
    if not isinstance(name, str) or not name or type(number) is not int or not is_list:
        raise ValueError(f"{json.dumps(entry)} must have a topic, a partition and replicas")
    if any(one != ANY for one in entry.get("log_dirs") or ()):
        raise ValueError(f"{name}-{number}: {ELSEWHERE}")
    assert isinstance(replicas, list)
    return (name, number), replicas
