"""Describe a broker's metadata: brokers, topics, and the leaders of partitions.

A view is never changed. An update makes a new view, which shares all unchanged parts with the old
view. So a reader needs no lock, and the brokers and topics in its view are of the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.listener_config import Endpoint
from cluster.registration import NO_BROKER


class BrokerView(NamedTuple):
    """A live broker.

    Attributes:
        endpoints: the advertised listeners of the broker, at least one.
        rack: the rack of the broker; "" if none is known.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str = ""


class PartitionView(NamedTuple):
    """A partition.

    Attributes:
        leader: the broker that leads, or NO_BROKER. The controller names only live leaders.
        replicas: the brokers that have a replica, at least one. The first broker is the preferred
            leader.
        isr: the in-sync replicas.
        offline: the replicas that cannot be used now, because their broker or log dir does not
            work.
        elr: the eligible leader replicas. An eligible leader replica left the ISR, but has all
            acknowledged records.
        suspects: former members of the ISR or ELR that may have lost records.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()


class TopicView(NamedTuple):
    """A topic.

    Attributes:
        topic_id: 16 bytes.
        partitions: the partitions by number, at least one, in the order of their numbers.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionView]


class ClusterView(NamedTuple):
    """A cluster.

    Attributes:
        controller_id: the broker that is the controller; NO_BROKER before the first update.
        brokers: the live brokers; the key is the broker id.
        topics: the topics; the key is the name.
        ids: the names of the topics; the key is the topic id.
    """

    controller_id: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]
    ids: Mapping[bytes, str]

    @property
    def is_known(self) -> bool:
        """Whether a controller has sent metadata since this broker started."""
        return self.controller_id != NO_BROKER


EMPTY = ClusterView(NO_BROKER, {}, {}, {})


class TopicUpdate(NamedTuple):
    """The changed partitions of a topic.

    Attributes:
        partitions: the partitions by number; None for a deleted partition.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionView | None]


def updated(
    view: ClusterView,
    controller_id: int,
    brokers: Sequence[BrokerView],
    changes: Sequence[TopicUpdate],
    *,
    is_full: bool,
) -> ClusterView:
    """Make the next view.

    Args:
        brokers: all live brokers.
        changes: the changed topics. If two changes have the same topic name, at most one of these
            topics still has partitions.
        is_full: whether the changes name all topics and partitions that exist.
    """
    topics = {} if is_full else dict(view.topics)
    are_ids_known = not is_full
    for change in changes:
        before = topics.get(change.name)
        after = _changed(before, change)
        if after is None:
            topics.pop(change.name, None)
        else:
            topics[change.name] = after
        are_ids_known = are_ids_known and _id_of(before) == _id_of(after)
    if is_full:
        topics = {name: _shared(view.topics.get(name), one) for name, one in topics.items()}
    ids = view.ids if are_ids_known else {one.topic_id: name for name, one in topics.items()}
    return ClusterView(controller_id, {one.id: one for one in brokers}, topics, ids)


def _id_of(topic: TopicView | None) -> bytes | None:
    return None if topic is None else topic.topic_id


def _changed(before: TopicView | None, change: TopicUpdate) -> TopicView | None:
    """Return a topic after a change; None if it is deleted.

    If a topic was created again under the same name, it has another id, and replaces the old topic.
    The later deletion of a replaced topic changes nothing.
    """
    living = {number: one for number, one in change.partitions.items() if one is not None}
    if before is None or before.topic_id != change.topic_id:
        if not living:
            return before
        return TopicView(change.name, change.topic_id, dict(sorted(living.items())))
    partitions = {**before.partitions, **living}
    for number in change.partitions.keys() - living.keys():
        partitions.pop(number, None)
    if not partitions:
        return None
    if not living.keys() <= before.partitions.keys():
        partitions = dict(sorted(partitions.items()))
    return TopicView(change.name, change.topic_id, partitions)


def _shared(before: TopicView | None, after: TopicView) -> TopicView:
    """If the two topics are equal, return the old topic, to free the memory of the new topic."""
    return before if before is not None and before == after else after
