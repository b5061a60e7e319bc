"""Leave out what a request names again, so that a short request has no endless answer.

The answer about a topic, a group or a partition can be thousands of times as long as its name in
the request. If a request named the same topic ten thousand times, and the broker described it each
time, the answer would fill the memory. So the broker describes each thing once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def _names_in(field: str) -> Callable[[Any], Any]:
    """Make the function for requests whose field has names, or tuples of names."""

    def once(asked: Any) -> Any:
        named = getattr(asked, field)
        return asked if named is None else asked._replace(**{field: list(dict.fromkeys(named))})

    return once


def _metadata_once(asked: Any) -> Any:
    """Describe a topic once. If a request has both a name and an id, the broker uses the name."""
    if asked.topics is None:
        return asked
    kept: dict[tuple[str | None, bytes], Any] = {}
    for one in asked.topics:
        kept.setdefault((one.name, one.topic_id if one.name is None else b""), one)
    return asked._replace(topics=list(kept.values()))


def _resources_once(asked: Any) -> Any:
    """Describe a resource again only if the request asks for other settings of it."""
    kept: dict[tuple[int, str, frozenset[str] | None], Any] = {}
    for one in asked.resources:
        keys = one.configuration_keys
        wanted = frozenset(keys) if keys else None  # an entry without keys asks for all settings
        kept.setdefault((one.resource_type, one.resource_name, wanted), one)
    return asked._replace(resources=list(kept.values()))


def _joined(topics: Iterable[Any]) -> list[Any]:
    """Join the mentions of each topic. In the result, each partition of a topic occurs once."""
    kept: dict[str, Any] = {}
    numbers: dict[str, dict[int, None]] = {}
    for one in topics:
        kept.setdefault(one.name, one)
        numbers.setdefault(one.name, {}).update(dict.fromkeys(one.partition_indexes))
    return [one._replace(partition_indexes=list(numbers[name])) for name, one in kept.items()]


def _topics_once(asked: Any) -> Any:
    return asked if asked.topics is None else asked._replace(topics=_joined(asked.topics))


def _offsets_once(asked: Any) -> Any:
    """Join the mentions of each group. If one mention asks for all topics, the result does, too."""
    kept: dict[str, Any] = {}
    topics: dict[str, list[Any] | None] = {}
    for one in asked.groups:
        kept.setdefault(one.group_id, one)
        known = topics.setdefault(one.group_id, [])
        if one.topics is None:
            topics[one.group_id] = None
        elif known is not None:
            known += one.topics
    groups = [
        one._replace(topics=None if named is None else _joined(named))
        for one, named in zip(kept.values(), topics.values(), strict=True)
    ]
    return _topics_once(asked)._replace(groups=groups)


_ONCE: Mapping[int, Callable[[Any], Any]] = {
    3: _metadata_once,  # Metadata
    9: _offsets_once,  # OffsetFetch
    15: _names_in("groups"),  # DescribeGroups
    32: _resources_once,  # DescribeConfigs
    61: _topics_once,  # DescribeProducers
    65: _names_in("transactional_ids"),  # DescribeTransactions
    69: _names_in("group_ids"),  # ConsumerGroupDescribe
}
DESCRIBING = frozenset(_ONCE)  # the APIs whose requests are changed


def named_once(key: int, asked: Any) -> Any:
    """Return a request of an API in `DESCRIBING` that names each thing once."""
    return _ONCE[key](asked)
