"""Propose brokers for the partitions of topics, as `kafka-reassign-partitions --generate` does.

    {"version": 1, "topics": [{"topic": "orders"}]}      the file of the topics

The proposal places all replicas of each topic as if the topic were new. So the proposal spreads the
replicas evenly, but may move replicas that could have stayed. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from cluster.admin.placement import place
from cluster.tools.asking import Place

ANY = "any"
Assignment = Mapping[Place, Sequence[int]]


def parse_topics(text: str) -> list[str]:
    """Read the names of the topics. Raises ValueError if the text does not have this format."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is no JSON: {error}") from None
    entries = document.get("topics") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError('the file has no list "topics"')
    names: list[str] = []
    for entry in entries:
        name = entry.get("topic") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            raise ValueError(f"{json.dumps(entry)} must have a topic")
        names.append(name)
    if len(set(names)) < len(names):
        raise ValueError("a topic is listed twice")
    return names


def parse_brokers(text: str) -> list[int]:
    """Read broker ids that are separated by commas. Raises ValueError."""
    words = [one.strip() for one in text.split(",")]
    for one in words:
        if not (one.isascii() and one.isdigit()):
            raise ValueError(f"{one!r} is no broker id")
    return [int(one) for one in words]


def current(metadata: Any, names: Sequence[str]) -> Assignment:
    """Return the brokers of the topics' partitions. Raises ValueError for an unknown topic."""
    topics = {topic.name: topic for topic in metadata.topics}
    for name in names:
        if name not in topics:
            raise ValueError(f"there is no topic {name}")
    return {
        (name, one.partition_index): list(one.replica_nodes)
        for name in names
        for one in sorted(topics[name].partitions, key=lambda row: row.partition_index)
    }


def proposed(
    metadata: Any, names: Sequence[str], brokers: Sequence[int], random: Random
) -> Assignment:
    """Place all replicas of the topics on these brokers. All brokers must be live.

    Raises:
        ValueError: a broker is not live, or there are fewer brokers than replicas.
    """
    alive = {one.node_id: one.rack or "" for one in metadata.brokers}
    for broker in brokers:
        if broker not in alive:
            raise ValueError(f"broker {broker} is not registered")
    racks = {broker: alive[broker] for broker in brokers}
    now = current(metadata, names)
    found: dict[Place, Sequence[int]] = {}
    for name in names:
        rows = {one: row for one, row in now.items() if one[0] == name}
        factor = min(len(row) for row in rows.values())  # a reassignment adds replicas for a time
        start, shift = random.randrange(len(racks)), random.randrange(len(racks))
        placed = place(racks, len(rows), factor, start=start, shift=shift)
        found.update(zip(rows, map(list, placed), strict=True))
    return found


def assignment_json(assignment: Assignment) -> dict[str, Any]:
    """Return the document that `--execute` reads."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": name,
                "partition": number,
                "replicas": list(replicas),
                "log_dirs": [ANY] * len(replicas),
            }
            for (name, number), replicas in assignment.items()
        ],
    }
