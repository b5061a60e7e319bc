"""Decide what to do if the coordination store and the log dirs know different topics.

The table shows what to do for each partition of a topic. The first row that fits applies. "All" in
the column "log dirs" means that all log dirs work: none of them is missing, OFFLINE, SUSPECT, an
old copy, or still being opened.

| the coordination store | in the log dirs | log dirs | do |
|---|---|---|---|
| a topic is being deleted | a replica of that topic | any | delete the replica |
| anything | a replica that cannot be read now | any | wait |
| has the partition | nothing | not all | wait: error 56 |
| has it, and it is being created | nothing | all | create it |
| has it | nothing | all | create it again, empty, with a warning |
| has it | a replica with its id | any | serve it |
| has it; its topic may have several ids | a replica with another id | all | adopt it |
| has it | a replica with another id | any | refuse the replica: error 56 |
| lacks it, and lacks the topic | a replica | any | adopt it |
| lacks it | a replica with the topic's id | any | adopt it |
| lacks it; the topic may have several ids | a replica | any | adopt it |
| lacks it | a replica with another id | any | refuse the replica |

A topic is gone if three conditions hold: all log dirs work, there are replicas with the name of
the topic, and none of them has an id of the topic. The replicas then belong to another topic with
the same name. The table is applied as if the coordination store lacked the topic that is gone. When
all log dirs work and no replica of a deleted topic is left, the record of its deletion is removed.

So if the coordination store does not know the topic of a replica, this is no reason to delete the
replica. A replica is deleted only if the coordination store has a record of the deletion of its
topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.catalog.topic_znodes import TopicRecord


class Known(NamedTuple):
    """The records of the coordination store about the topics with one name.

    Attributes:
        unfinished_from: the partitions from this number on are being created; None if no partition
            is being created.
        deleted: earlier topics of this name that are being deleted.
    """

    record: TopicRecord | None
    unfinished_from: int | None = None
    deleted: Sequence[TopicRecord] = ()


class Plan(NamedTuple):
    """The changes to make for one topic; each list has numbers of partitions.

    Attributes:
        adopt, refuse: the partitions to adopt or to refuse, each with the topic id of its replica.
        is_replaced: whether the topic of the record is gone, because the replicas belong to another
            topic.
        is_created: whether an unfinished creation has now ended.
        ended: the topics whose deletion has ended.
    """

    delete: list[int]
    create: list[int]
    create_again: list[int]
    adopt: dict[int, bytes]
    refuse: dict[int, bytes]
    is_replaced: bool
    is_created: bool
    ended: list[TopicRecord]

    @property
    def is_empty(self) -> bool:
        """Whether the plan changes nothing."""
        changes = (self.delete, self.create, self.create_again, self.adopt, self.ended)
        return not (any(changes) or self.is_created)


def decide(known: Known, found: Mapping[int, bytes | None], *, is_all: bool) -> Plan:
    """Decide about the partitions of one topic.

    Args:
        found: for each replica in the log dirs, its topic id, or None if it cannot be read now.
        is_all: whether all log dirs work.
    """
    record = known.record
    doomed = [number for number, one in found.items() if _is_deleted(known, number, one)]
    living = {number: one for number, one in found.items() if number not in doomed}
    is_replaced = is_all and record is not None and _is_other_topic(record, living)
    if is_replaced:
        record = None
    plan = Plan(sorted(doomed), [], [], {}, {}, is_replaced, False, [])
    for number in sorted({*living, *(record.ids if record else ())} - {*doomed}):
        if number in living:
            _decide_found(plan, record, number, living[number], is_all)
        elif is_all:
            is_new = known.unfinished_from is not None and number >= known.unfinished_from
            (plan.create if is_new else plan.create_again).append(number)
    ended = [one for one in known.deleted if is_all and not _is_any_left(one, found)]
    is_created = (
        known.unfinished_from is not None
        and is_all
        and not (plan.create or plan.create_again or doomed)
    )
    return plan._replace(ended=ended, is_created=is_created)


def _is_deleted(known: Known, number: int, topic_id: bytes | None) -> bool:
    return topic_id is not None and any(one.ids.get(number) == topic_id for one in known.deleted)


def _is_other_topic(record: TopicRecord, living: Mapping[int, bytes | None]) -> bool:
    """Check that there is a replica, and that each replica certainly belongs to another topic."""
    return bool(living) and all(
        one is not None and one not in (record.id, record.ids.get(number))
        for number, one in living.items()
    )


def _decide_found(
    plan: Plan, record: TopicRecord | None, number: int, topic_id: bytes | None, is_all: bool
) -> None:
    """Decide about a replica of a topic that is not being deleted."""
    wanted = None if record is None else record.ids.get(number)
    if topic_id is None or topic_id == wanted:
        return
    is_lenient = record is None or record.is_mixed
    if wanted is None:
        is_ours = is_lenient or (record is not None and topic_id == record.id)
    else:
        is_ours = is_lenient and is_all
    (plan.adopt if is_ours else plan.refuse)[number] = topic_id


def _is_any_left(deleted: TopicRecord, found: Mapping[int, bytes | None]) -> bool:
    """Check whether a replica of a topic that is being deleted exists, or may exist."""
    return any(
        number in found and found[number] in (topic_id, None)
        for number, topic_id in deleted.ids.items()
    )


def adopted(
    record: TopicRecord | None, found: Mapping[int, bytes | None], replicas: Mapping[int, bytes]
) -> Mapping[int, bytes]:
    """Return the topic id of each partition of a topic, after replicas were adopted.

    If the topic was not known, and a replica cannot be read now, it counts as a replica of the
    topic.

    Args:
        found: all replicas that have the name of the topic.
        replicas: the replicas that are adopted.
    """
    if record is not None:
        return dict(sorted({**record.ids, **replicas}.items()))
    topic_id = replicas[min(replicas)]
    away = {number: topic_id for number, one in found.items() if one is None}
    return dict(sorted({**away, **replicas}.items()))
