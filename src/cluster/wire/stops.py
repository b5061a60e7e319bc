"""Write and read StopReplica (5) and its answer.

Kafka's message has only the name of a topic. Tagged fields add the topic id, the creation number
and the version of the state, so that a late request deletes no replica of a later topic (P19).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import StopReplicaRequest, StopReplicaResponse
from cluster.errors import BadRequestError
from cluster.requests import StopAnswer, StopReplica
from cluster.wire.roles import Controlling
from cluster.wire.topic_ids import bytes_of, identity_of

API, VERSION = 5, 4
# Kafka uses this leader epoch for a topic that is being deleted. A broker does not check the epoch.
EPOCH_DURING_DELETE = -2

_Topic = StopReplicaRequest.StopReplicaTopicState
_Partition = StopReplicaRequest.StopReplicaPartitionState


class NamedStop(NamedTuple):
    """A StopReplica request with the name of its topic."""

    name: str
    stop: StopReplica


def encode_stops(sender: Controlling, stops: Iterable[NamedStop]) -> Any:
    """Write the deletions for one broker as one message; all have the same broker epoch."""
    ordered = sorted(stops, key=lambda one: (one.name, one.stop.topic, one.stop.partition))
    (broker_epoch,) = {one.stop.broker_epoch for one in ordered}
    return StopReplicaRequest(
        controller_id=sender.broker,
        controller_epoch=sender.epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            _Topic(
                name,
                [
                    _Partition(
                        one.stop.partition,
                        EPOCH_DURING_DELETE,
                        True,
                        partition_epoch=one.stop.version,
                    )
                    for one in group
                ],
                bytes_of(topic.topic_id),
                topic.created,
            )
            for (name, topic), group in groupby(ordered, lambda one: (one.name, one.stop.topic))
        ],
    )


def decode_stops(message: Any) -> list[NamedStop]:
    """Read the deletions of a message.

    Raises:
        BadRequestError: a topic or a version is missing, so it is not clear what to delete.
    """
    stops = []
    for topic in message.topic_states:
        identity = identity_of(topic.topic_id, topic.created_zxid)
        for one in topic.partition_states:
            numbers = topic.created_zxid, one.partition_index, one.partition_epoch
            if not topic.topic_name or not identity.topic_id or min(numbers) < 0:
                place = f"{topic.topic_name}-{one.partition_index}"
                raise BadRequestError(reason=f"the deletion of {place} does not name its topic")
            if not one.delete_partition:
                raise BadRequestError(reason="a replica is only stopped in order to delete it")
            stop = StopReplica(
                identity, one.partition_index, message.broker_epoch, one.partition_epoch
            )
            stops.append(NamedStop(topic.topic_name, stop))
    return stops


def encode_stop_answers(stops: Iterable[NamedStop], answers: Iterable[StopAnswer]) -> Any:
    """Write which replicas no longer exist.

    For each replica that may still exist, write an error, so that the controller asks again.
    """
    places = {(one.topic.topic_id, one.partition, one.version) for one in answers}
    Row = StopReplicaResponse.StopReplicaPartitionError  # noqa: N806 - a class
    return StopReplicaResponse(
        partition_errors=[
            Row(
                one.name,
                one.stop.partition,
                ErrorCode.NONE
                if (one.stop.topic.topic_id, one.stop.partition, one.stop.version) in places
                else ErrorCode.KAFKA_STORAGE_ERROR,
            )
            for one in stops
        ]
    )


def decode_stop_answers(message: Any, asked: Iterable[NamedStop], broker: int) -> list[StopAnswer]:
    """Read which of the requested replicas no longer exist on a broker."""
    if message.error_code != ErrorCode.NONE:
        return []
    gone = {
        (row.topic_name, row.partition_index)
        for row in message.partition_errors
        if row.error_code == ErrorCode.NONE
    }
    return [
        StopAnswer(one.stop.topic, one.stop.partition, broker, one.stop.version)
        for one in asked
        if (one.name, one.stop.partition) in gone
    ]
