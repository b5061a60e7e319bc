"""Answer JoinGroup (11), SyncGroup (14), Heartbeat (12) and LeaveGroup (13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.waiter import Waiter
from broker.groups.exchange import JoinAnswer, Joining, SyncAnswer, Syncing
from broker.machines.exchange import Answer, Pending
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

MS = 1000
REBALANCE_TIMEOUT_FROM = 1  # the first version of JoinGroup with a rebalance timeout
KNOWN_IDS_FROM = 4  # from this version of JoinGroup on, clients join again with their new id
NULL_PROTOCOL_FROM = 7  # the first version of JoinGroup whose answer may lack a protocol
SKIP_FROM = 9  # from this version of JoinGroup on, a leader can be asked to skip the assignment
SYNC_PROTOCOL_FROM = 5  # the first version of SyncGroup that names the protocol
LEAVE_MANY_FROM = 3  # the first version of LeaveGroup with several members
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GROUP_SECONDS = 120.0  # this is added to the longest wait of a request in a group

JoinMember = JoinGroupResponse.JoinGroupResponseMember


def code_for_member(error: CoordinatorError) -> ErrorCode:
    """Return the error code for a member. If its group does not exist, the member is unknown."""
    is_missing = error.code is ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.UNKNOWN_MEMBER_ID if is_missing else error.code


def answer_join(call: Call) -> Answer | Pending:
    """Let a member join a group. The request waits until the other members have joined."""
    asked, version, config = call.request.message(), call.request.version, call.services.config
    session = asked.session_timeout_ms / MS
    rebalance = asked.rebalance_timeout_ms / MS
    if version < REBALANCE_TIMEOUT_FROM or rebalance < 0:
        rebalance = session

    def encode(said: JoinAnswer) -> Answer:
        protocol = said.protocol
        if protocol is None and version < NULL_PROTOCOL_FROM:
            protocol = ""
        return call.answer(
            JoinGroupResponse(
                error_code=said.error,
                generation_id=said.generation,
                protocol_type=said.protocol_type,
                protocol_name=protocol,
                leader=said.leader_id,
                skip_assignment=said.skips_assignment,
                member_id=said.member_id,
                members=[JoinMember(*member) for member in said.members],
            )
        )

    if not asked.group_id:
        return encode(JoinAnswer(ErrorCode.INVALID_GROUP_ID, asked.member_id))
    limits = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not limits[0] <= asked.session_timeout_ms <= limits[1]:
        return encode(JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, asked.member_id))
    joining = Joining(
        member_id=asked.member_id,
        instance_id=asked.group_instance_id,
        client_id=call.request.client_id or "",
        client_host="/" + call.client.address,
        rebalance_timeout=rebalance,
        session_timeout=session,
        protocol_type=asked.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in asked.protocols),
        needs_known_id=version >= KNOWN_IDS_FROM,
        may_skip_assignment=version >= SKIP_FROM,
    )
    late = JoinAnswer(ErrorCode.NOT_COORDINATOR, asked.member_id)
    waiter = _waiter(call, max(rebalance, session), encode, late)
    try:
        call.services.groups.join(asked.group_id, joining, waiter)
    except CoordinatorError as error:
        return encode(JoinAnswer(code_for_member(error), asked.member_id))
    return waiter


def answer_sync(call: Call) -> Answer | Pending:
    """Take the assignments of the leader. The other members wait for their assignments."""
    asked, config = call.request.message(), call.services.config
    names_protocol = call.request.version >= SYNC_PROTOCOL_FROM

    def encode(said: SyncAnswer) -> Answer:
        return call.answer(
            SyncGroupResponse(
                error_code=said.error,
                protocol_type=said.protocol_type,
                protocol_name=said.protocol,
                assignment=said.assignment,
            )
        )

    if not asked.group_id:
        return encode(SyncAnswer(ErrorCode.INVALID_GROUP_ID))
    if names_protocol and (asked.protocol_type is None or asked.protocol_name is None):
        return encode(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    syncing = Syncing(
        asked.member_id,
        asked.group_instance_id,
        asked.generation_id,
        asked.protocol_type,
        asked.protocol_name,
        {one.member_id: bytes(one.assignment) for one in asked.assignments},
    )
    late = SyncAnswer(ErrorCode.NOT_COORDINATOR)
    waiter = _waiter(call, config.group_max_session_timeout_ms / MS, encode, late)
    try:
        call.services.groups.sync(asked.group_id, syncing, waiter)
    except CoordinatorError as error:
        code = code_for_member(error)
        # If the answer to SyncGroup is error 14, some clients end.
        # So clients get error 27, and join again, as in Kafka before version 4.
        # The answer to JoinGroup may be error 14.
        return encode(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if code is LOADING else code))
    return waiter


def _waiter(call: Call, seconds: float, encode: Callable[[Any], Answer], late: Any) -> Waiter:
    return Waiter(call.services.clock() + seconds + GROUP_SECONDS, encode, late)


def answer_heartbeat(call: Call) -> Answer:
    """Remember that a member is alive. The answer says whether the member must join again."""
    asked = call.request.message()
    if not asked.group_id:
        return call.answer(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    try:
        code = call.services.groups.heartbeat(
            asked.group_id, asked.member_id, asked.group_instance_id, asked.generation_id
        )
    except CoordinatorError as error:
        code = code_for_member(error)
        if code is LOADING:  # Kafka does the same: some clients end if a heartbeat gets error 14
            code = ErrorCode.NONE
    return call.answer(HeartbeatResponse(error_code=code))


def answer_leave(call: Call) -> Answer:
    """Remove members from a group."""
    asked, Row = call.request.message(), LeaveGroupResponse.MemberResponse  # noqa: N806
    is_many = call.request.version >= LEAVE_MANY_FROM
    members = [(asked.member_id, None)]
    if is_many:
        members = [(one.member_id, one.group_instance_id) for one in asked.members]
    if not asked.group_id:
        return call.answer(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    try:
        codes = call.services.groups.leave(asked.group_id, members)
    except CoordinatorError as error:
        code = code_for_member(error)
        if code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return call.answer(LeaveGroupResponse(error_code=code))
        codes = [code] * len(members)
    if not is_many:
        return call.answer(LeaveGroupResponse(error_code=codes[0]))
    rows = [Row(*member, code) for member, code in zip(members, codes, strict=True)]
    return call.answer(LeaveGroupResponse(members=rows))
