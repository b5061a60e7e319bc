"""Answer DescribeGroups (15), ListGroups (16) and DeleteGroups (42)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.authorization.bindings import ResourceType
from broker.consumer_groups.group import ConsumerGroup
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.waiter import Asked, Gathering
from broker.groups.group import Group, State
from broker.machines.exchange import Answer, Pending
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse

# The first version of DescribeGroups in which a group that does not exist is an error.
MISSING_IS_ERROR = 6
CLASSIC, CONSUMER = "classic", "consumer"

Described = DescribeGroupsResponse.DescribedGroup


def answer_describe(call: Call) -> Answer:
    """Describe groups and their members."""
    asked = call.request.message()
    rows = [_described(call, name) for name in asked.groups]
    if asked.include_authorized_operations:
        rows = [with_operations(call, row) for row in rows]
    return call.answer(DescribeGroupsResponse(groups=rows))


def _described(call: Call, name: str) -> Any:
    try:
        with call.services.groups.using(name) as (_, hosted):
            if isinstance(hosted.group, ConsumerGroup):
                reason = f"the group {name!r} is not a classic group"
                raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
            return _row(hosted.group)
    except CoordinatorError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return Described(error_code=error.code, group_id=name)
        if call.request.version < MISSING_IS_ERROR:
            return Described(group_id=name, group_state=State.DEAD.value)
        return Described(
            error_code=error.code, error_message=str(error), group_id=name,
            group_state=State.DEAD.value,
        )  # fmt: skip


def with_operations(call: Call, row: Any) -> Any:
    """Add the operations that the client may do with a group that was described."""
    if row.error_code:
        return row
    operations = call.rights.operations(ResourceType.GROUP, row.group_id)
    return row._replace(authorized_operations=operations)


def _row(group: Group) -> Any:
    """Describe one group.

    Show the metadata and assignments of members only if the group is STABLE.
    """
    is_stable = group.state is State.STABLE
    members = [
        DescribeGroupsResponse.DescribedGroupMember(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol) if is_stable else b"",
            member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
    return Described(
        group_id=group.name,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=members,
    )


def answer_list(call: Call) -> Answer:
    """List all groups, or only the groups of some states and types."""
    asked = call.request.message()
    states = {state.lower() for state in asked.states_filter}
    types = {kind.lower() for kind in asked.types_filter}
    code, rows = ErrorCode.NONE, []
    for shard in call.services.groups.shards():
        try:
            groups = [hosted.group for hosted in shard.all()]
        except CoordinatorError as error:  # continue with the other partitions
            code = error.code
            continue
        rows += [
            ListGroupsResponse.ListedGroup(
                group.name, group.protocol_type or "", group.state.value, _type(group)
            )
            for group in groups
            if (not states or group.state.value.lower() in states)
            and (not types or _type(group) in types)
        ]
    return call.answer(ListGroupsResponse(error_code=code, groups=rows))


def _type(group: Group | ConsumerGroup) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


def answer_delete(call: Call) -> Answer | Pending:
    """Delete groups without members."""
    groups, clock = call.services.groups, call.services.clock
    names = dict.fromkeys(call.request.message().groups_names)
    Row = DeleteGroupsResponse.DeletableGroupResult  # noqa: N806 - a class

    def encode(codes: Mapping[str, ErrorCode]) -> Answer:
        rows = [Row(name, code) for name, code in codes.items()]
        return call.answer(DeleteGroupsResponse(results=rows))

    codes: dict[str, Any] = {}
    for name in names:
        asked = Asked()
        code = _delete(call.services, name, asked)
        codes[name] = asked if code is None else code
    if not any(isinstance(one, Asked) for one in codes.values()):
        return encode(codes)
    late = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return Gathering(clock() + groups.commit_seconds, codes, encode, late)


def _delete(services: Services, name: str, asked: Asked) -> ErrorCode | None:
    """Delete a group. If `asked` gets the result later, return None."""
    try:
        with services.groups.using(name) as (shard, hosted):
            if hosted.group.state is not State.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP
            return services.groups.delete(shard, hosted, asked)
    except CoordinatorError as error:
        return error.code
