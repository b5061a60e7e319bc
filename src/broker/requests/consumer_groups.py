"""Answer ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69) of KIP-848."""

from __future__ import annotations

from typing import Any

from broker.consumer_groups.exchange import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    UNCHANGED_MS,
    Heartbeat,
    HeartbeatAnswer,
    Places,
    Refused,
)
from broker.consumer_groups.group import ConsumerGroup
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.waiter import Waiter
from broker.machines.exchange import Answer, Pending
from broker.requests.group_admin import with_operations
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse

OWN_ID_FROM = 1  # the first version of ConsumerGroupHeartbeat in which clients draw their member id
OWNED_MAX = 500_000  # the largest number of partitions that a member may report as its own
CLASSIC, NEW_PROTOCOL = 0, 1  # the type of a member in ConsumerGroupDescribe
Described = ConsumerGroupDescribeResponse.DescribedGroup


def _fault_of(call: Call, asked: Any) -> Refused | None:
    """Return why a heartbeat is not valid, or None. The checks are in Kafka's order."""
    epoch, known = asked.member_epoch, call.services.config.assignors
    needs_id = call.request.version >= OWN_ID_FROM or epoch > JOINS or epoch == LEAVES
    has_topics = (
        asked.subscribed_topic_names is not None or asked.subscribed_topic_regex is not None
    )
    joins = epoch == JOINS
    checks = (
        (needs_id and not asked.member_id, "MemberId can't be empty."),
        (not asked.group_id, "GroupId can't be empty."),
        (asked.instance_id == "", "InstanceId can't be empty."),
        (asked.rack_id == "", "RackId can't be empty."),
        (
            joins and asked.rebalance_timeout_ms == UNCHANGED_MS,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            joins and (asked.topic_partitions is None or len(asked.topic_partitions) > 0),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (joins and not has_topics, "a joining member must name topics or a regular expression."),
        (epoch == LEAVES_FOR_NOW and asked.instance_id is None, "InstanceId can't be null."),
        (
            sum(len(row.partitions) for row in asked.topic_partitions or ()) > OWNED_MAX,
            f"a member cannot have more than {OWNED_MAX} partitions.",
        ),
        (epoch < LEAVES_FOR_NOW, f"MemberEpoch is {epoch}, but must not be less than -2."),
    )
    for is_fault, reason in checks:
        if is_fault:
            return Refused(ErrorCode.INVALID_REQUEST, reason)
    if asked.server_assignor is not None and asked.server_assignor not in known:
        reason = f"ServerAssignor {asked.server_assignor} is not supported. Supported assignors: "
        return Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, reason + ", ".join(known) + ".")
    return None


def answer_heartbeat(call: Call) -> Answer | Pending:
    """Let a member join, continue or leave.

    In a cluster, the request waits until the change is replicated.
    """
    asked, services = call.request.message(), call.services

    def encode(said: HeartbeatAnswer) -> Answer:
        is_member = not said.error and said.member_epoch > JOINS
        interval = services.config.group_consumer_heartbeat_interval_ms if is_member else 0
        return call.answer(
            ConsumerGroupHeartbeatResponse(
                error_code=said.error,
                error_message=said.message,
                member_id=said.member_id,
                member_epoch=said.member_epoch,
                heartbeat_interval_ms=interval,
                assignment=None if said.assignment is None else _assignment(said.assignment),
            )
        )

    fault = _fault_of(call, asked)
    if fault is not None:
        return encode(HeartbeatAnswer(fault.code, fault.message))
    deadline = services.clock() + services.groups.commit_seconds
    waiter = Waiter(deadline, encode, HeartbeatAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    hosting, epoch = services.groups.consumers, asked.member_epoch
    try:
        if epoch < JOINS:
            hosting.leave(asked.group_id, asked.member_id, epoch, asked.instance_id, waiter)
        else:
            hosting.heartbeat(asked.group_id, _heartbeat(call, asked), waiter)
    except CoordinatorError as error:
        return encode(HeartbeatAnswer(error.code, str(error)))
    return waiter


def _heartbeat(call: Call, asked: Any) -> Heartbeat:
    names, rows = asked.subscribed_topic_names, asked.topic_partitions
    return Heartbeat(
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        client_id=call.request.client_id or "",
        client_host="/" + call.client.address,
        instance_id=asked.instance_id,
        rack_id=asked.rack_id,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        pattern=asked.subscribed_topic_regex,
        assignor=asked.server_assignor,
        viewer=call.rights.viewer(),
        owned=None
        if rows is None
        else frozenset((bytes(row.topic_id), number) for row in rows for number in row.partitions),
    )


def _assignment(places: Places) -> Any:
    Rows = ConsumerGroupHeartbeatResponse.TopicPartitions  # noqa: N806 - a class
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    return ConsumerGroupHeartbeatResponse.Assignment([Rows(*row) for row in topics.items()])


def answer_describe(call: Call) -> Answer:
    """Describe groups of the new protocol and their members."""
    asked = call.request.message()
    rows = [_described(call, name) for name in asked.group_ids]
    if asked.include_authorized_operations:
        rows = [with_operations(call, row) for row in rows]
    return call.answer(ConsumerGroupDescribeResponse(groups=rows))


def _described(call: Call, name: str) -> Any:
    if not name:
        return Described(error_code=ErrorCode.INVALID_GROUP_ID, group_id=name)
    try:
        with call.services.groups.using(name) as (_, hosted):
            if not isinstance(hosted.group, ConsumerGroup):
                reason = f"the group {name!r} is not a consumer group"
                raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
            return _row(call, hosted.group)
    except CoordinatorError as error:
        return Described(error_code=error.code, error_message=str(error), group_id=name)


def _row(call: Call, group: ConsumerGroup) -> Any:
    members = [
        ConsumerGroupDescribeResponse.Member(
            member_id=one.id,
            instance_id=one.instance_id,
            rack_id=one.rack_id,
            member_epoch=one.epoch,
            client_id=one.client_id,
            client_host=one.client_host,
            subscribed_topic_names=sorted(one.topics),
            subscribed_topic_regex=one.pattern,
            assignment=_named(call, one.assigned),
            target_assignment=_named(call, group.targets.get(one.id, frozenset())),
            member_type=NEW_PROTOCOL if one.classic is None else CLASSIC,
        )
        for one in group.members.values()
    ]
    return Described(
        group_id=group.name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
    )


def _named(call: Call, places: Places) -> Any:
    """Find the names of the topics of an assignment. Leave out deleted topics."""
    Row = ConsumerGroupDescribeResponse.TopicPartitions  # noqa: N806 - a class
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    names = {topic: call.services.topics.name_of(topic) for topic in topics}
    rows = [Row(topic, names[topic], numbers) for topic, numbers in topics.items() if names[topic]]
    return ConsumerGroupDescribeResponse.Assignment(rows)
