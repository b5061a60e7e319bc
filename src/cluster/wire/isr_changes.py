"""Write and read AlterPartition (56) and its answer.

The answer only reports which proposals were refused. If a proposal is accepted, the leader gets the
new state by LeaderAndIsr, as it gets every other state.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from cluster.errors import BadRequestError
from cluster.requests import AlterPartition, AlterRefused
from cluster.wire.topic_ids import bytes_of, identity_of

API, VERSION = 56, 3

_Topic = AlterPartitionRequest.TopicData
_Partition = AlterPartitionRequest.PartitionData
_TopicAnswer = AlterPartitionResponse.TopicData
_PartitionAnswer = AlterPartitionResponse.PartitionData


def encode_changes(changes: Iterable[AlterPartition]) -> Any:
    """Write the proposals of one leader, made in one registration epoch, as one message."""
    ordered = sorted(changes, key=lambda one: (one.topic.topic_id, one.partition))
    ((leader, epoch),) = {(one.leader, one.leader_registration_epoch) for one in ordered}
    return AlterPartitionRequest(
        leader,
        epoch,
        [
            _Topic(bytes_of(topic_id), [_partition_of(one) for one in group])
            for topic_id, group in groupby(ordered, lambda one: one.topic.topic_id)
        ],
    )


def _partition_of(change: AlterPartition) -> Any:
    return _Partition(
        partition_index=change.partition,
        leader_epoch=change.leader_epoch,
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker, epoch) for broker, epoch in change.isr.items()
        ],
        partition_epoch=change.version,
    )


def decode_changes(message: Any) -> list[AlterPartition]:
    """Read the proposals of a message.

    Raises:
        BadRequestError: a proposal names no topic or no member, names a member twice, or has a bad
            number.
    """
    changes = []
    for topic in message.topics:
        identity = identity_of(topic.topic_id)
        for one in topic.partitions:
            isr = {member.broker_id: member.broker_epoch for member in one.new_isr_with_epochs}
            numbers = one.partition_index, one.leader_epoch, one.partition_epoch, *isr
            if not identity.topic_id or min((*numbers, *isr.values())) < 0:
                raise BadRequestError(reason="a proposal has a number below 0, or no topic")
            if not isr or len(isr) != len(one.new_isr_with_epochs):
                raise BadRequestError(reason="a proposed ISR is empty, or names a member twice")
            changes.append(
                AlterPartition(
                    identity,
                    one.partition_index,
                    message.broker_id,
                    message.broker_epoch,
                    one.leader_epoch,
                    one.partition_epoch,
                    isr,
                )
            )
    return changes


def encode_refusals(asked: Iterable[AlterPartition], refused: Iterable[AlterRefused]) -> Any:
    """Write which of the proposals were refused. The others were accepted."""
    places = {(one.topic.topic_id, one.partition, one.version) for one in refused}
    ordered = sorted(asked, key=lambda one: (one.topic.topic_id, one.partition))
    return AlterPartitionResponse(
        topics=[
            _TopicAnswer(
                bytes_of(topic_id),
                [
                    _PartitionAnswer(
                        one.partition,
                        ErrorCode.INVALID_UPDATE_VERSION
                        if (topic_id, one.partition, one.version) in places
                        else ErrorCode.NONE,
                        one.leader,
                        one.leader_epoch,
                        list(one.isr),
                        partition_epoch=one.version,
                    )
                    for one in group
                ],
            )
            for topic_id, group in groupby(ordered, lambda one: one.topic.topic_id)
        ]
    )


def decode_refusals(message: Any) -> list[AlterRefused]:
    """Read which proposals were refused."""
    return [
        AlterRefused(identity_of(topic.topic_id), one.partition_index, one.partition_epoch)
        for topic in message.topics
        for one in topic.partitions
        if one.error_code != ErrorCode.NONE
    ]
