"""Remove the names that a request repeats, so that the answer describes each of them once.

The description of a topic or a group can be thousands of times larger than its name. Without this
module, a small request that repeats a name could fill the memory of the broker with its answer.
Clients find a description by its name, so they do not miss the repeated descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

Name = Callable[[Any], Hashable]


def without_repeated(key: int, asked: Any) -> Any:
    """Return a request without the parts that repeat an earlier part."""
    change = CHANGES.get(key)
    return asked if change is None else change(asked)


def _distinct(rows: Iterable[Any], name_of: Name) -> list[Any]:
    """Keep the first row of each name."""
    found: dict[Hashable, Any] = {}
    for row in rows:
        found.setdefault(name_of(row), row)
    return list(found.values())


def _rows(field: str, name_of: Name) -> Callable[[Any], Any]:
    """Make the change of a request whose field lists what the answer describes."""

    def change(asked: Any) -> Any:
        rows = getattr(asked, field)
        return asked if not rows else asked._replace(**{field: _distinct(rows, name_of)})

    return change


def _itself(row: Any) -> Hashable:
    found: Hashable = row
    return found


def _topic(row: Any) -> tuple[str | None, bytes]:
    """Return the name of a topic in a Metadata request, or its id if it has no name."""
    return row.name, row.topic_id if row.name is None else b""


def _resource(row: Any) -> tuple[int, str, Sequence[str] | None]:
    return row.resource_type, row.resource_name, row.configuration_keys or None


def _partitions(topics: Sequence[Any]) -> list[Any]:
    """Keep each partition once. Keep each topic, even if none of its partitions is left."""
    seen: set[tuple[str, int]] = set()
    rows = []
    for topic in topics:
        numbers = dict.fromkeys(topic.partition_indexes)
        left = [one for one in numbers if (topic.name, one) not in seen]
        seen.update((topic.name, one) for one in left)
        rows.append(topic._replace(partition_indexes=left))
    return rows


def _producers(asked: Any) -> Any:
    return asked._replace(topics=_partitions(asked.topics))


def _offsets(asked: Any) -> Any:
    """Keep each group once, and each of its partitions once."""
    groups = [
        group if group.topics is None else group._replace(topics=_partitions(group.topics))
        for group in _distinct(asked.groups, lambda group: group.group_id)
    ]
    topics = None if asked.topics is None else _partitions(asked.topics)
    return asked._replace(groups=groups, topics=topics)


# The changes of the requests whose answers describe what they name. The keys are those of the APIs.
CHANGES: Mapping[int, Callable[[Any], Any]] = {
    3: _rows("topics", _topic),
    9: _offsets,
    15: _rows("groups", _itself),
    32: _rows("resources", _resource),
    61: _producers,
    65: _rows("transactional_ids", _itself),
    69: _rows("group_ids", _itself),
}
