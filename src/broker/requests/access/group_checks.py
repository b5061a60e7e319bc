"""Check the requests about groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.authorization.bindings import Operation
from broker.requests.access.checks import (
    CLUSTER,
    GROUP,
    MESSAGE,
    NO_GROUP,
    NO_TOPIC,
    NO_TRANSACTIONAL_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asking,
    Check,
    Checked,
    Refused,
    each,
    each_topic,
    split,
)
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)

TRANSACTION = 1  # the type of a coordinator's key
BATCHED = 4  # the first version of FindCoordinator with several keys
GROUPS_FROM = 8  # the first version of OffsetFetch that asks for several groups
CODE_FROM = 2  # the first version of OffsetFetch with an error code for the whole answer
NO_OFFSET = -1


# --- members --------------------------------------------------------------------------------------


def _member(refuse: Callable[[Any], Any]) -> Check:
    """Make a check for requests of a member of one group."""

    def check(asked: Any, asking: Asking) -> Checked | Refused:
        if asking.may(Operation.READ, GROUP, asked.group_id):
            return Checked(asked)
        return Refused(refuse(asked))

    return check


check_join = _member(
    lambda asked: JoinGroupResponse(
        error_code=NO_GROUP, generation_id=-1, protocol_name="", member_id=asked.member_id
    )
)
check_sync = _member(lambda asked: SyncGroupResponse(error_code=NO_GROUP))
check_heartbeat = _member(lambda asked: HeartbeatResponse(error_code=NO_GROUP))
check_leave = _member(lambda asked: LeaveGroupResponse(error_code=NO_GROUP))


# --- all groups -----------------------------------------------------------------------------------

check_describe = each(
    "groups",
    lambda name, asking: asking.may(Operation.DESCRIBE, GROUP, name),
    DescribeGroupsResponse,
    "groups",
    lambda name: DescribeGroupsResponse.DescribedGroup(
        error_code=NO_GROUP, error_message=MESSAGE, group_id=name
    ),
)
check_delete = each(
    "groups_names",
    lambda name, asking: asking.may(Operation.DELETE, GROUP, name),
    DeleteGroupsResponse,
    "results",
    lambda name: DeleteGroupsResponse.DeletableGroupResult(name, NO_GROUP),
)


def check_list(asked: Any, asking: Asking) -> Checked | Refused:
    """List only groups that the client may describe."""
    if asking.sees(Operation.DESCRIBE, CLUSTER):
        return Checked(asked)

    def finish(answer: Any) -> Any:
        rows = [
            row for row in answer.groups if asking.sees(Operation.DESCRIBE, GROUP, row.group_id)
        ]
        return ListGroupsResponse(error_code=answer.error_code, groups=rows)

    return Checked(asked, finish)


def _code_for_coordinator(kind: int, key: str, asking: Asking) -> ErrorCode:
    if kind == TRANSACTION:
        is_allowed = asking.may(Operation.DESCRIBE, TRANSACTIONAL_ID, key)
        return ErrorCode.NONE if is_allowed else NO_TRANSACTIONAL_ID
    return ErrorCode.NONE if asking.may(Operation.DESCRIBE, GROUP, key) else NO_GROUP


def check_coordinators(asked: Any, asking: Asking) -> Checked | Refused:
    """Return coordinators only of groups and transactional ids that the client may describe."""
    Row = FindCoordinatorResponse.Coordinator  # noqa: N806 - a class
    if asking.version < BATCHED:
        code = _code_for_coordinator(asked.key_type, asked.key, asking)
        if not code:
            return Checked(asked)
        return Refused(FindCoordinatorResponse(0, code, MESSAGE, -1, "", -1))
    check = each(
        "coordinator_keys",
        lambda key, asking: not _code_for_coordinator(asked.key_type, key, asking),
        FindCoordinatorResponse,
        "coordinators",
        lambda key: Row(
            key, -1, "", -1, NO_TRANSACTIONAL_ID if asked.key_type == TRANSACTION else NO_GROUP,
            MESSAGE,
        ),
    )  # fmt: skip
    return check(asked, asking)


# --- groups of KIP-848 ----------------------------------------------------------------------------


def check_member(asked: Any, asking: Asking) -> Checked | Refused:
    """Allow a heartbeat if the client may READ the group and DESCRIBE all topics that it names.

    If a topic matches the client's regular expression, but the client may not see the topic, the
    group ignores the topic.
    """
    Response = ConsumerGroupHeartbeatResponse  # noqa: N806 - a class
    if not asking.may(Operation.READ, GROUP, asked.group_id):
        return Refused(Response(error_code=NO_GROUP, error_message=MESSAGE))
    names = asked.subscribed_topic_names or ()
    if all(asking.may(Operation.DESCRIBE, TOPIC, name) for name in names):
        return Checked(asked)
    return Refused(Response(error_code=NO_TOPIC, error_message=MESSAGE))


_check_described = each(
    "group_ids",
    lambda name, asking: asking.may(Operation.DESCRIBE, GROUP, name),
    ConsumerGroupDescribeResponse,
    "groups",
    lambda name: ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=NO_GROUP, error_message=MESSAGE, group_id=name
    ),
)


def check_describe_consumers(asked: Any, asking: Asking) -> Checked | Refused:
    """Describe groups that the client may describe, if it may also describe all their topics."""
    found = _check_described(asked, asking)
    if isinstance(found, Refused):
        return found
    finish = found.finish

    def shown(answer: Any) -> Any:
        groups = [_without_topics(row, asking) for row in answer.groups]
        answer = answer._replace(groups=groups)
        return answer if finish is None else finish(answer)

    return Checked(found.asked, shown)


def _without_topics(group: Any, asking: Asking) -> Any:
    names = {
        name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for name in (one.topic_name for one in assignment.topic_partitions)
    }
    names.update(name for member in group.members for name in member.subscribed_topic_names)
    if all(asking.sees(Operation.DESCRIBE, TOPIC, name) for name in names):
        return group
    return ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=NO_TOPIC, error_message=MESSAGE, group_id=group.group_id
    )


# --- offsets --------------------------------------------------------------------------------------


def _commit_row(topic: Any, code: ErrorCode) -> Any:
    Row = OffsetCommitResponse.OffsetCommitResponsePartition  # noqa: N806 - a class
    rows = [Row(one.partition_index, code) for one in topic.partitions]
    return OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=rows)


_check_committed_topics = each_topic(
    Operation.READ, "topics", OffsetCommitResponse, "topics",
    lambda topic: _commit_row(topic, NO_TOPIC),
)  # fmt: skip


def check_commit(asked: Any, asking: Asking) -> Checked | Refused:
    """Commit offsets of topics that the client may read, for a group that it may read."""
    if not asking.may(Operation.READ, GROUP, asked.group_id):
        rows = [_commit_row(topic, NO_GROUP) for topic in asked.topics]
        return Refused(OffsetCommitResponse(topics=rows))
    return _check_committed_topics(asked, asking)


def _deleted_offsets_row(topic: Any) -> Any:
    Row = OffsetDeleteResponse.OffsetDeleteResponsePartition  # noqa: N806 - a class
    rows = [Row(one.partition_index, NO_TOPIC) for one in topic.partitions]
    return OffsetDeleteResponse.OffsetDeleteResponseTopic(topic.name, rows)


_check_deleted_topics = each_topic(
    Operation.READ, "topics", OffsetDeleteResponse, "topics", _deleted_offsets_row
)


def check_delete_offsets(asked: Any, asking: Asking) -> Checked | Refused:
    """Delete offsets of topics that the client may read, of a group that it may delete."""
    if not asking.may(Operation.DELETE, GROUP, asked.group_id):
        return Refused(OffsetDeleteResponse(error_code=NO_GROUP))
    return _check_deleted_topics(asked, asking)


def check_fetch(asked: Any, asking: Asking) -> Checked | Refused:
    """Return offsets of topics that the client may describe, of groups that it may describe."""
    if asking.version < GROUPS_FROM:
        return _check_one_group(asked, asking)
    allowed, refused = split(
        asked.groups, lambda group: asking.may(Operation.DESCRIBE, GROUP, group.group_id)
    )
    Row = OffsetFetchResponse.OffsetFetchResponseGroup  # noqa: N806 - a class
    rows = [Row(group.group_id, [], NO_GROUP) for group in refused]
    groups, hidden = [], []
    for group in allowed:
        topics, without = _topics_of(group.topics, asking)
        groups.append(group._replace(topics=topics))
        hidden.append(without)

    def finish(answer: Any) -> Any:
        made = [
            row if row.error_code else row._replace(topics=_shown(row.topics, without, asking))
            for row, without in zip(answer.groups, hidden, strict=True)
        ]
        return answer._replace(groups=[*made, *rows])

    return Checked(asked._replace(groups=groups), finish)


def _check_one_group(asked: Any, asking: Asking) -> Checked | Refused:
    Topic = OffsetFetchResponse.OffsetFetchResponseTopic  # noqa: N806 - a class
    Row = OffsetFetchResponse.OffsetFetchResponsePartition  # noqa: N806 - a class
    if not asking.may(Operation.DESCRIBE, GROUP, asked.group_id):
        rows = [_no_offsets(topic, NO_GROUP, Topic, Row) for topic in asked.topics or ()]
        if asking.version >= CODE_FROM:
            rows = []
        return Refused(OffsetFetchResponse(topics=rows, error_code=NO_GROUP))
    topics, without = _topics_of(asked.topics, asking)

    def finish(answer: Any) -> Any:
        if answer.error_code:
            return answer
        shown = _shown(answer.topics, without, asking, Topic, Row)
        return answer._replace(topics=shown)

    return Checked(asked._replace(topics=topics), finish)


def _topics_of(topics: Any, asking: Asking) -> tuple[list[Any] | None, list[Any] | None]:
    """Split the topics of a group; None means that the client asks for all topics."""
    if topics is None:
        return None, None
    return split(topics, lambda topic: asking.may(Operation.DESCRIBE, TOPIC, topic.name))


def _shown(
    rows: list[Any],
    without: list[Any] | None,
    asking: Asking,
    topic_kind: Any = OffsetFetchResponse.OffsetFetchResponseTopics,
    row_kind: Any = OffsetFetchResponse.OffsetFetchResponsePartitions,
) -> list[Any]:
    if without is None:
        return [row for row in rows if asking.sees(Operation.DESCRIBE, TOPIC, row.name)]
    return [*rows, *(_no_offsets(topic, NO_TOPIC, topic_kind, row_kind) for topic in without)]


def _no_offsets(topic: Any, code: ErrorCode, topic_kind: Any, row_kind: Any) -> Any:
    rows = [row_kind(number, NO_OFFSET, -1, "", code) for number in topic.partition_indexes]
    return topic_kind(name=topic.name, partitions=rows)
