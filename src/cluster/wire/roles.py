"""Write and read LeaderAndIsr (4) and its answer.

Kafka's fields of a partition lack some facts that a replica needs. So a tagged field has the whole
state as JSON text. Kafka's own fields are also written, for tools that analyse the traffic. If
Kafka's fields contradict the JSON, the request is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import LeaderAndIsrRequest, LeaderAndIsrResponse
from cluster.errors import BadRequestError, BadZnodeError
from cluster.registration import TopicIdentity
from cluster.requests import LeaderAndIsr, RoleAnswer
from cluster.state import State, encode_state, parse_state
from cluster.wire.topic_ids import bytes_of, identity_of

API, VERSION = 4, 7
RECOVERED, RECOVERING = 0, 1

_Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState
_Partition = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_TopicError = LeaderAndIsrResponse.LeaderAndIsrTopicError
_PartitionError = LeaderAndIsrResponse.LeaderAndIsrPartitionError


class Controlling(NamedTuple):
    """The controller that sends a request."""

    broker: int
    epoch: int


class NamedRole(NamedTuple):
    """A LeaderAndIsr request with the name of its topic."""

    name: str
    role: LeaderAndIsr


def encode_roles(
    sender: Controlling, roles: Iterable[NamedRole], addresses: Mapping[int, tuple[str, int]]
) -> Any:
    """Write the roles for one broker as one message.

    Args:
        roles: at least one role; all roles have the same broker epoch.
        addresses: the host and the port of each broker that leads one of the partitions.
    """
    ordered = sorted(roles, key=lambda one: (one.name, one.role.topic, one.role.partition))
    (broker_epoch,) = {one.role.broker_epoch for one in ordered}
    leaders = {one.role.state.leader for one in ordered} & addresses.keys()
    return LeaderAndIsrRequest(
        controller_id=sender.broker,
        controller_epoch=sender.epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            _Topic(
                name,
                bytes_of(topic.topic_id),
                [_partition_of(one.role) for one in group],
                created_zxid=topic.created,
            )
            for (name, topic), group in groupby(ordered, lambda one: (one.name, one.role.topic))
        ],
        live_leaders=[
            LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker, *addresses[broker])
            for broker in sorted(leaders)
        ],
    )


def _partition_of(role: LeaderAndIsr) -> Any:
    state = role.state
    target = set(state.replicas if state.target is None else state.target)
    return _Partition(
        partition_index=role.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=role.version,
        replicas=list(state.replicas),
        removing_replicas=[one for one in state.replicas if one not in target],
        is_new=role.is_new,
        leader_recovery_state=_recovery_of(state),
        state=encode_state(state),
    )


def _recovery_of(state: State) -> int:
    """Report whether the election of this leader epoch may have lost records (KIP-704)."""
    return RECOVERING if 0 <= state.unclean_epoch == state.leader_epoch else RECOVERED


def decode_roles(message: Any) -> list[NamedRole]:
    """Read the roles of a message.

    Raises:
        BadRequestError: a partition has no valid state, or is named twice.
    """
    roles = []
    for topic in message.topic_states:
        identity = identity_of(topic.topic_id, topic.created_zxid)
        if not topic.topic_name or not identity.topic_id or topic.created_zxid < 0:
            raise BadRequestError(reason=f"the topic {topic.topic_name!r} has no identity")
        roles += [
            NamedRole(topic.topic_name, _role_of(topic, identity, one, message.broker_epoch))
            for one in topic.partition_states
        ]
    _check_distinct([(one.name, one.role.partition) for one in roles])
    return roles


def _role_of(topic: Any, identity: TopicIdentity, partition: Any, epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        identity,
        partition.partition_index,
        epoch,
        partition.partition_epoch,
        _state_of(partition, f"{topic.topic_name}-{partition.partition_index}"),
        partition.is_new,
    )


def _state_of(partition: Any, place: str) -> State:
    """Read the state of a partition, and compare Kafka's fields with it."""
    if partition.partition_index < 0 or partition.partition_epoch < 0:
        raise BadRequestError(reason=f"{place} has a negative partition or version")
    try:
        state = parse_state(bytes(partition.state), place)
    except BadZnodeError as error:
        raise BadRequestError(reason=str(error)) from error
    claimed = (
        partition.controller_epoch, partition.leader, partition.leader_epoch,
        tuple(partition.isr), tuple(partition.replicas),
    )  # fmt: skip
    known = (
        state.controller_epoch, state.leader, state.leader_epoch,
        tuple(state.isr), state.replicas,
    )  # fmt: skip
    if claimed != known:
        raise BadRequestError(reason=f"the fields of {place} contradict its state")
    return state


def _check_distinct(places: Sequence[tuple[str, int]]) -> None:
    if len(set(places)) != len(places):
        raise BadRequestError(reason="a partition is named twice")


def encode_role_answers(registration_epoch: int, answers: Iterable[RoleAnswer]) -> Any:
    """Write the answers of one broker as one message."""
    ordered = sorted(answers, key=lambda one: (one.topic.topic_id, one.partition))
    return LeaderAndIsrResponse(
        topics=[
            _TopicError(bytes_of(topic_id), [_answer_row(one) for one in group])
            for topic_id, group in groupby(ordered, lambda one: one.topic.topic_id)
        ],
        registration_epoch=registration_epoch,
    )


def _answer_row(answer: RoleAnswer) -> Any:
    if answer.is_offline:
        return _PartitionError("", answer.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    return _PartitionError(
        "",
        answer.partition,
        ErrorCode.NONE,
        answer.whole_since,
        answer.last_epoch,
        answer.log_end_offset,
        answer.version,
        answer.held_since,
    )


def decode_role_answers(message: Any, broker: int) -> list[RoleAnswer]:
    """Read a broker's answers; leave out partitions with an error other than a storage error.

    Raises:
        BadRequestError: an answer lacks a fact, or a fact is out of its range.
    """
    found = []
    for topic in message.topics:
        identity = identity_of(topic.topic_id)
        for one in topic.partition_errors:
            name = f"partition {one.partition_index} of the topic {identity.topic_id}"
            is_offline = one.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            if one.error_code != ErrorCode.NONE and not is_offline:
                continue
            facts = (
                one.whole_since, one.last_epoch, one.log_end_offset, one.partition_epoch,
                one.held_since,
            )  # fmt: skip
            least = (0, -1, 0, 0, 0)
            if min(message.registration_epoch, one.partition_index) < 0 or not identity.topic_id:
                raise BadRequestError(reason=f"{name} has no identity")
            if not is_offline and any(map(int.__lt__, facts, least)):
                raise BadRequestError(reason=f"the answer about {name} lacks a fact")
            found.append(
                RoleAnswer(
                    identity,
                    one.partition_index,
                    broker,
                    message.registration_epoch,
                    is_offline,
                    *(() if is_offline else facts),
                )
            )
    return found
