"""The JSON files that the scripts of `tests/clients/tools/cluster` give to Kafka's tools."""

from __future__ import annotations

from typing import Any

Part = tuple[str, int, list[int]] | tuple[str, int, list[int], list[str]]


def reassignment(*parts: Part) -> dict[str, Any]:
    """Make a file for kafka-reassign-partitions: topic, partition, brokers and log dirs."""
    names = "topic", "partition", "replicas", "log_dirs"
    return {"version": 1, "partitions": [dict(zip(names, part, strict=False)) for part in parts]}


def topics(*names: str) -> dict[str, Any]:
    """Make a file with the topics for which `--generate` proposes a reassignment."""
    return {"version": 1, "topics": [{"topic": name} for name in names]}


def partitions(*places: tuple[str, int]) -> dict[str, Any]:
    """Make a file for kafka-leader-election."""
    return {"partitions": [{"topic": topic, "partition": number} for topic, number in places]}


def offsets(*rows: tuple[str, int, int]) -> dict[str, Any]:
    """Make a file for kafka-delete-records."""
    names = "topic", "partition", "offset"
    return {"version": 1, "partitions": [dict(zip(names, row, strict=True)) for row in rows]}


FILES: dict[str, Any] = {
    # Reassignments between brokers.
    "topics.json": topics("r", "s"),
    "one-topic.json": topics("s"),
    "unknown-topic.json": topics("none"),
    "to-3.json": reassignment(("r", 0, [3, 2]), ("r", 1, [2, 3])),
    "to-1.json": reassignment(("r", 0, [1, 2]), ("r", 1, [2, 1])),
    "s-to-2.json": reassignment(("s", 0, [2])),
    "s-to-all.json": reassignment(("s", 0, [3, 2, 1])),
    "x-to-1.json": reassignment(("x", 0, [1])),
    "to-7.json": reassignment(("r", 0, [1, 7])),
    "no-replicas.json": reassignment(("r", 0, [])),
    "twice.json": reassignment(("r", 0, [1, 1])),
    "double.json": reassignment(("r", 0, [1, 2]), ("r", 0, [1, 3])),
    "no-topic.json": reassignment(("none", 0, [1, 2])),
    "no-partition.json": reassignment(("r", 9, [1, 2])),
    "more-dirs.json": reassignment(("r", 0, [1, 2], ["any"])),
    # Moves between log dirs.
    "d-a.json": reassignment(
        ("d", 0, [1, 2], ["<1 a>", "<2 a>"]), ("d", 1, [2, 1], ["<2 a>", "<1 a>"])
    ),
    "d-b.json": reassignment(
        ("d", 0, [1, 2], ["<1 b>", "any"]), ("d", 1, [2, 1], ["<2 b>", "<1 b>"])
    ),
    "d-to-3.json": reassignment(
        ("d", 0, [3, 2], ["<3 b>", "<2 b>"]), ("d", 1, [2, 1], ["<2 a>", "any"])
    ),
    # Where the new replica is while a slow reassignment runs is a race, also in Kafka.
    "d-slow.json": reassignment(
        ("d", 0, [3, 2], ["any", "<2 b>"]), ("d", 1, [2, 1], ["<2 a>", "any"])
    ),
    "d-any.json": reassignment(("d", 0, [3, 2], ["any", "any"])),
    "d-nowhere.json": reassignment(("d", 0, [3, 2], ["/nowhere", "any"])),
    "d-other.json": reassignment(("d", 0, [3, 2], ["<1 a>", "any"])),
    "d-relative.json": reassignment(("d", 0, [3, 2], ["disk", "any"])),
    "d-twice.json": reassignment(("d", 0, [3, 3], ["any", "any"])),
    # Log dirs that fail.
    "p-dirs.json": reassignment(
        ("p", 0, [1, 2], ["<1 a>", "<2 b>"]), ("p", 1, [1, 3], ["<1 a>", "<3 a>"])
    ),
    "q-dirs.json": reassignment(("q", 0, [2], ["<2 b>"])),
    "n-to-bad.json": reassignment(("n", 0, [2, 3], ["<2 b>", "any"])),
    "p-off-2.json": reassignment(("p", 0, [1, 3])),
    "l-dirs.json": reassignment(
        ("l", 0, [3, 1], ["<3 a>", "any"]), ("l", 1, [3, 2], ["<3 a>", "any"])
    ),
    "l-elect.json": partitions(("l", 0), ("l", 1)),
    "z-elect.json": partitions(("z", 0)),
    # Groups, records and leaders.
    "g-other-order.json": reassignment(("g", 0, [3, 1, 2]), ("g", 1, [1, 2, 3])),
    "g-elect.json": partitions(("g", 0), ("g", 1)),
    "g-records.json": offsets(("g", 0, 1), ("g", 1, -1)),
}
