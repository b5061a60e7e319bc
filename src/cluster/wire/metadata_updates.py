"""Write, read and check UpdateMetadata messages (6).

The controller numbers its changes. A message has the changes after the number `changes_after`, up
to the number `last_change`; both numbers are tagged fields. So a broker knows if it lacks changes,
or if a message is late. Two tagged fields of a partition name its eligible leader replicas and its
suspects. A broker of an earlier version ignores the two tagged fields, and a controller of an
earlier version does not write these fields. A message of Kafka's type FULL contains all topics. If
a FULL message does not name a topic, the topic does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.listener_config import Endpoint
from broker.wire.messages import UpdateMetadataRequest
from cluster.errors import BadRequestError
from cluster.registration import NO_BROKER
from cluster.view import BrokerView, PartitionView, TopicUpdate
from cluster.wire.roles import Controlling

API, VERSION = 6, 8
INCREMENTAL, FULL = 1, 2  # Kafka's types of an update (KIP-866)
LEADER_DURING_DELETE = -2  # Kafka's value for the leader of a deleted partition
PLAINTEXT = 0  # Kafka's number for the security protocol
PORT_MAX = 65535
ID_BYTES = 16

_Topic = UpdateMetadataRequest.UpdateMetadataTopicState
_Partition = UpdateMetadataRequest.UpdateMetadataPartitionState
_Broker = UpdateMetadataRequest.UpdateMetadataBroker
_Endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint


class Update(NamedTuple):
    """A controller's update of a broker's metadata.

    Attributes:
        broker_epoch: the epoch of the addressed broker.
        changes_after: the broker must know all changes up to this number. This number is 0 in a
            full update.
        last_change: the number of the last change in the update.
        brokers: all live brokers.
    """

    sender: Controlling
    broker_epoch: int
    is_full: bool
    changes_after: int
    last_change: int
    brokers: Sequence[BrokerView]
    topics: Sequence[TopicUpdate]


def encode_update(update: Update) -> Any:
    """Write an update."""
    epoch = update.sender.epoch
    return UpdateMetadataRequest(
        controller_id=update.sender.broker,
        type=FULL if update.is_full else INCREMENTAL,
        controller_epoch=epoch,
        broker_epoch=update.broker_epoch,
        topic_states=[
            _Topic(
                one.name,
                one.topic_id,
                [_partition_of(number, part, epoch) for number, part in one.partitions.items()],
            )
            for one in update.topics
        ],
        live_brokers=[_broker_of(one) for one in update.brokers],
        changes_after=update.changes_after,
        last_change=update.last_change,
    )


def _partition_of(number: int, view: PartitionView | None, epoch: int) -> Any:
    if view is None:
        return _Partition(
            partition_index=number, controller_epoch=epoch, leader=LEADER_DURING_DELETE
        )
    return _Partition(
        partition_index=number,
        controller_epoch=epoch,
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        isr=view.isr,
        replicas=view.replicas,
        offline_replicas=view.offline,
        eligible_leader_replicas=view.elr,
        suspects=view.suspects,
    )


def _broker_of(view: BrokerView) -> Any:
    return _Broker(
        id=view.id,
        endpoints=[_Endpoint(one.port, one.host, one.name, PLAINTEXT) for one in view.endpoints],
        rack=view.rack or None,
    )


def decode_update(message: Any) -> Update:
    """Read an update.

    Raises:
        BadRequestError: the message contradicts itself, or lacks a fact.
    """
    _check(
        message.type in (INCREMENTAL, FULL)
        and min(message.controller_id, message.controller_epoch, message.broker_epoch) >= 0
        and 0 <= message.changes_after <= message.last_change
        and (message.type != FULL or message.changes_after == 0),
        "the message does not name its controller and its changes",
    )
    topics = [_topic_in(one) for one in message.topic_states]
    places = [(one.name, one.topic_id) for one in topics]
    _check_distinct(places, "topics")
    living = [
        one.name for one in topics if any(view is not None for view in one.partitions.values())
    ]
    _check_distinct(living, "names of topics that exist")
    _check_distinct([id_ for _, id_ in places], "topic ids")
    brokers = tuple(_broker_in(one) for one in message.live_brokers)
    _check_distinct([one.id for one in brokers], "brokers")
    return Update(
        Controlling(message.controller_id, message.controller_epoch),
        message.broker_epoch,
        message.type == FULL,
        message.changes_after,
        message.last_change,
        brokers,
        topics,
    )


def _check(holds: bool, reason: str) -> None:
    if not holds:
        raise BadRequestError(reason=f"an update of the metadata: {reason}")


def _check_distinct(found: Sequence[Any], what: str) -> None:
    _check(len(set(found)) == len(found), f"two of the {what} are the same")


def _topic_in(topic: Any) -> TopicUpdate:
    name, topic_id = topic.topic_name, bytes(topic.topic_id)
    _check(bool(name) and any(topic_id), "a topic has no name or no id")
    partitions = {one.partition_index: _partition_in(one, name) for one in topic.partition_states}
    _check(
        0 < len(partitions) == len(topic.partition_states) and min(partitions) >= 0,
        f"the topic {name} has no partition, a wrong partition, or the same partition twice",
    )
    return TopicUpdate(name, topic_id, partitions)


def _partition_in(one: Any, name: str) -> PartitionView | None:
    if one.leader == LEADER_DURING_DELETE:
        return None
    replicas, isr, offline = tuple(one.replicas), tuple(one.isr), tuple(one.offline_replicas)
    elr, suspects = tuple(one.eligible_leader_replicas), tuple(one.suspects)
    view = PartitionView(
        one.leader,
        one.leader_epoch,
        replicas,
        replicas if isr == replicas else isr,  # one tuple needs less memory than two
        offline,
        elr,
        suspects,
    )
    known = set(replicas)
    is_good = (
        0 < len(known) == len(replicas)
        and min(replicas) >= 0
        and _are_some(isr, known)
        and _are_some(offline, known)
        and _are_some((*isr, *elr, *suspects), known)
        and (one.leader == NO_BROKER or one.leader in known)
        and one.leader_epoch >= 0
    )
    _check(is_good, f"{name}-{one.partition_index} contradicts itself")
    return view


def _are_some(brokers: tuple[int, ...], known: set[int]) -> bool:
    """Check that a list names only replicas, and no replica twice."""
    return known.issuperset(brokers) and len(set(brokers)) == len(brokers)


def _broker_in(broker: Any) -> BrokerView:
    endpoints = tuple(Endpoint(one.listener, one.host, one.port) for one in broker.endpoints)
    _check(
        broker.id >= 0 and bool(endpoints) and all(map(_is_address, endpoints)),
        f"the broker {broker.id} has no address, or a bad one",
    )
    _check_distinct([one.name for one in endpoints], f"listeners of broker {broker.id}")
    return BrokerView(broker.id, endpoints, broker.rack or "")


def _is_address(endpoint: Endpoint) -> bool:
    return bool(endpoint.name and endpoint.host) and 0 < endpoint.port <= PORT_MAX
