"""Write the facts as JSON documents, which scripts can read.

A document has the key `version`. While the version stays the same, keys may be added, but no key is
removed or renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.page.facts import Facts, GroupRow, PartitionRow, TopicRow
from broker.page.history import Curves
from broker.page.paging import Asked, Part, found, found_partitions, part_of
from broker.page.ranking import largest_lags, most_traffic

VERSION = 1
Document = dict[str, Any]


class NoSuchThingError(LookupError):
    """Report that the topic or group in a request does not exist on this broker."""


def _head(facts: Facts) -> Document:
    return {"version": VERSION, "at_ms": facts.at_ms}


def _part(part: Part[Any]) -> Document:
    return {"page": part.number, "pages": part.pages, "total": part.total}


def summary(facts: Facts, asked: Asked) -> Document:
    """Describe the whole broker, with the busiest topics and the groups with the largest lag."""
    return {
        **_head(facts),
        "broker": dict(facts.about),
        "counts": dict(facts.counts) | {"topic_count": len(facts.topics)},
        "trouble": facts.trouble(),
        "rates": facts.rates._asdict(),
        "log_dirs": [one._asdict() for one in facts.dirs],
        "moves": [dict(one) for one in facts.moves],
        "brokers": [one._asdict() for one in facts.brokers],
        "topics": [_topic(one) for one in most_traffic(facts.topics)],
        "groups": [_group(one) for one in largest_lags(facts.groups)],
        "slow_requests": [one._asdict() for one in facts.slow],
    }


def log_dirs(facts: Facts, asked: Asked) -> Document:
    """List the log dirs."""
    return {**_head(facts), "log_dirs": [one._asdict() for one in facts.dirs]}


def moves(facts: Facts, asked: Asked) -> Document:
    """List the moves between log dirs."""
    return {**_head(facts), "moves": [dict(one) for one in facts.moves]}


def brokers(facts: Facts, asked: Asked) -> Document:
    """List the live brokers."""
    return {**_head(facts), "brokers": [one._asdict() for one in facts.brokers]}


def partitions(facts: Facts, asked: Asked) -> Document:
    """List partitions, one page of them."""
    part = part_of(found_partitions(facts.partitions, asked), asked)
    return {**_head(facts), **_part(part), "partitions": [_partition(one) for one in part.rows]}


def topics(facts: Facts, asked: Asked) -> Document:
    """List topics and their rates, one page of them."""
    part = part_of(found(facts.topics, asked, lambda one: one.name), asked)
    return {**_head(facts), **_part(part), "topics": [_topic(one) for one in part.rows]}


def groups(facts: Facts, asked: Asked) -> Document:
    """List groups, one page of them."""
    part = part_of(found(facts.groups, asked, lambda one: one.name), asked)
    return {**_head(facts), **_part(part), "groups": [_group(one) for one in part.rows]}


def group(facts: Facts, asked: Asked) -> Document:
    """Describe one group, with its members and the lag of each partition."""
    one = group_named(facts, asked.name)
    part = part_of(one.offsets, asked)
    return {
        **_head(facts),
        **_part(part),
        **_group(one),
        "members": [member._asdict() for member in one.members],
        "offsets": [each._asdict() | {"lag": each.lag} for each in part.rows],
    }


def history(facts: Facts, asked: Asked) -> Document:
    """Return the rates of the last hour, for one topic or for all topics together."""
    curves = facts.curves if not asked.name else facts.topic_curves.get(asked.name, Curves([], []))
    rows = zip(curves.times, curves.rates, strict=True)
    return {**_head(facts), "samples": [{"at": at} | rates._asdict() for at, rates in rows]}


def slow_requests(facts: Facts, asked: Asked) -> Document:
    """List the latest slow requests, the newest first."""
    return {**_head(facts), "slow_requests": [one._asdict() for one in facts.slow]}


DOCUMENTS: dict[str, Callable[[Facts, Asked], Document]] = {
    "summary": summary,
    "log-dirs": log_dirs,
    "partitions": partitions,
    "moves": moves,
    "brokers": brokers,
    "topics": topics,
    "groups": groups,
    "group": group,
    "history": history,
    "slow-requests": slow_requests,
}


def group_named(facts: Facts, name: str) -> GroupRow:
    """Find a group; raise NoSuchThingError if this broker does not coordinate it."""
    for one in facts.groups:
        if one.name == name:
            return one
    raise NoSuchThingError("this broker coordinates no group with this name")


def _partition(one: PartitionRow) -> Document:
    flags = {"is_offline": one.is_offline, "is_under_replicated": one.is_under_replicated}
    return one._asdict() | flags


def _topic(one: TopicRow) -> Document:
    return one._asdict() | {"rates": one.rates._asdict()}


def _group(one: GroupRow) -> Document:
    return {
        "name": one.name,
        "state": one.state,
        "protocol": one.protocol,
        "member_count": len(one.members),
        "offset_count": len(one.offsets),
        "lag": one.lag,
        "unknown_count": one.unknown_count,
    }


def index(names: Sequence[str]) -> Document:
    """List the addresses of all documents."""
    return {"version": VERSION, "documents": [f"/api/v{VERSION}/{name}" for name in names]}
