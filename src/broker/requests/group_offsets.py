"""Answer OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.waiter import Waiter
from broker.groups.group import CONSUMERS, State
from broker.groups.offsets import Committed, Key
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse

GROUPS_FROM = 8  # the first version of OffsetFetch that asks for several groups
CODE_FROM = 2  # the first version of OffsetFetch with an error code for the whole answer
EPOCHS_FROM = MISSING_FROM = (
    9  # the first version of OffsetCommit with an error code for an unknown group
)
MS_MAX = 2**63 - 1  # the largest time that a record of the log can have
NOTHING = Committed(-1, -1, "", -1)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
# After COORDINATOR_NOT_AVAILABLE, clients do not send OffsetFetch again.
LATER = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def answer_commit(call: Call) -> Answer | Pending:
    """Commit offsets.

    If one partition has an error, the offsets of all other partitions are still committed.

    In a cluster, the request waits until the offsets are replicated.
    """
    services, asked = call.services, call.request.message()
    now_ms = services.groups.now().wall_ms
    kept_ms = asked.retention_time_ms
    expires_ms = min(now_ms + kept_ms, MS_MAX) if kept_ms >= 0 else -1
    codes: dict[Key, ErrorCode] = {}
    wanted: dict[Key, Committed] = {}
    for topic in asked.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            metadata = one.committed_metadata or ""
            codes[key] = fault_of_offset(services, key, metadata)
            if not codes[key]:
                wanted[key] = Committed(
                    one.committed_offset, one.committed_leader_epoch, metadata, now_ms, expires_ms,
                    services.topics.id_of(*key),
                )  # fmt: skip

    def encode(code: ErrorCode) -> Answer:
        return _answer_to_commit(call, asked, code, codes)

    deadline = services.clock() + services.groups.commit_seconds
    waiter = Waiter(deadline, encode, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    code = _commit(call, asked, wanted, waiter)
    return waiter if code is None else encode(code)


def _answer_to_commit(
    call: Call, asked: Any, code: ErrorCode, codes: dict[Key, ErrorCode]
) -> Answer:
    """Answer with the code of the whole commit, or with the codes of its partitions."""
    Row = OffsetCommitResponse.OffsetCommitResponsePartition  # noqa: N806 - a class
    Topic = OffsetCommitResponse.OffsetCommitResponseTopic  # noqa: N806 - a class
    topics = [
        Topic(
            name=topic.name,
            partitions=[
                Row(one.partition_index, code or codes[topic.name, one.partition_index])
                for one in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    return call.answer(OffsetCommitResponse(topics=topics))


def fault_of_offset(services: Services, key: Key, metadata: str) -> ErrorCode:
    """Return NONE if an offset of a partition may be committed; otherwise return an error."""
    is_known = services.topics.is_known
    topic = services.topics.get(key[0])
    if topic is None or key[1] not in topic.partitions:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return unknown if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE
    if len(metadata.encode()) > services.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _commit(
    call: Call, asked: Any, wanted: dict[Key, Committed], waiter: Waiter
) -> ErrorCode | None:
    """Commit offsets. If `waiter` gets the code later, return None."""
    generation, is_old = asked.generation_id_or_member_epoch, call.request.version < EPOCHS_FROM
    try:
        code = call.services.groups.commit(
            asked.group_id, asked.member_id, asked.group_instance_id, generation, wanted, waiter
        )
        is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.UNSUPPORTED_VERSION if is_stale and is_old else code
    except CoordinatorError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and call.request.version < MISSING_FROM:
            return ErrorCode.ILLEGAL_GENERATION
        return error.code


def answer_fetch(call: Call) -> Answer:
    """Return committed offsets. If a partition has no committed offset, return -1.

    Raises:
        CloseConnectionError: another broker coordinates the group; see `_check_coordinator`.
    """
    asked = call.request.message()
    if call.request.version < GROUPS_FROM:
        Topic = OffsetFetchResponse.OffsetFetchResponseTopic  # noqa: N806 - a class
        Row = OffsetFetchResponse.OffsetFetchResponsePartition  # noqa: N806 - a class
        code, topics = _fetch(call, asked.group_id, asked.topics, Topic, Row)
        _check_coordinator([code])
        if code and call.request.version >= CODE_FROM:
            topics = []
        return call.answer(OffsetFetchResponse(topics=topics, error_code=code))
    Group = OffsetFetchResponse.OffsetFetchResponseGroup  # noqa: N806 - a class
    Topic = OffsetFetchResponse.OffsetFetchResponseTopics  # noqa: N806 - a class
    Row = OffsetFetchResponse.OffsetFetchResponsePartitions  # noqa: N806 - a class
    groups = []
    for one in asked.groups:
        member = one.member_id, one.member_epoch
        code, topics = _fetch(call, one.group_id, one.topics, Topic, Row, member)
        groups.append(Group(one.group_id, [] if code else topics, code))
    _check_coordinator([one.error_code for one in groups])
    return call.answer(OffsetFetchResponse(groups=groups))


def _check_coordinator(codes: Sequence[int]) -> None:
    """If a client asks the wrong broker for the offsets of a group, close its connection.

    After the error NOT_COORDINATOR, a consumer of librdkafka 2.16 finds the coordinator, but never
    asks it for the offsets. So a consumer that got NOT_COORDINATOR would never read a record. After
    the end of a connection, each client finds the coordinator and asks again. A request about
    several groups gets an error for each group.
    """
    if list(codes) == [ErrorCode.NOT_COORDINATOR]:
        raise CloseConnectionError("another broker coordinates the group of an OffsetFetch")


def _fetch(
    call: Call,
    group: str,
    topics: Sequence[Any] | None,
    topic_kind: Any,
    row_kind: Any,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[ErrorCode, list[Any]]:
    """Return the committed offsets of one group, for the named topics or for all topics.

    If the client wants stable offsets, and an open transaction changes an offset, this offset gets
    an error.
    """
    code, known, unstable = _offsets_of(call.services, group, member)
    if not call.request.message().require_stable:
        unstable = frozenset()
    if topics is None:
        names: dict[str, list[int]] = {}
        for name, partition in sorted(known.keys() | unstable):
            names.setdefault(name, []).append(partition)
    else:
        names = {topic.name: list(topic.partition_indexes) for topic in topics}
    rows = []
    for name, partitions in names.items():
        found = [(number, known.get((name, number), NOTHING)) for number in partitions]
        rows.append(
            topic_kind(
                name=name,
                partitions=[
                    row_kind(number, *NOTHING[:3], code or UNSTABLE)
                    if (name, number) in unstable
                    else row_kind(number, one.offset, one.leader_epoch, one.metadata, code)
                    for number, one in found
                ],
            )
        )
    return code, rows


def _offsets_of(
    services: Services, group: str, member: tuple[str | None, int]
) -> tuple[ErrorCode, dict[Key, Committed], frozenset[Key]]:
    try:
        known, unstable = services.groups.offsets_with_unstable(group, *member)
    except CoordinatorError as error:
        return LATER.get(error.code, error.code), {}, frozenset()
    # A crash, or a log dir that did not work, may leave offsets of a deleted topic.
    # So offsets with another topic id are left out.
    present = {key: one for key, one in known.items() if one.is_of(services.topics.id_of(*key))}
    return ErrorCode.NONE, present, unstable


def answer_delete(call: Call) -> Answer | Pending:
    """Delete offsets of topics to which no member of the group has subscribed.

    In a cluster, the request waits until all in-sync replicas have the deletion.
    """
    services, asked = call.services, call.request.message()
    Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic  # noqa: N806 - a class
    Row = OffsetDeleteResponse.OffsetDeleteResponsePartition  # noqa: N806 - a class
    codes: dict[Key, ErrorCode] = {}

    def encode(code: ErrorCode) -> Answer:
        if code:
            return call.answer(OffsetDeleteResponse(error_code=code))
        topics = [
            Topic(
                topic.name,
                [
                    Row(one.partition_index, codes[topic.name, one.partition_index])
                    for one in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return call.answer(OffsetDeleteResponse(topics=topics))

    deadline = services.clock() + services.groups.commit_seconds
    waiter = Waiter(deadline, encode, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not asked.group_id:
        return call.answer(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    try:
        with services.groups.using(asked.group_id) as (shard, hosted):
            group = hosted.group
            has_members, subscribed = group.state is not State.EMPTY, group_kinds.subscribed(group)
            if has_members and group.protocol_type != CONSUMERS:
                raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)
            for topic in asked.topics:
                is_used = has_members and (subscribed is None or topic.name in subscribed)
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else ErrorCode.NONE
                for one in topic.partitions:
                    key = (topic.name, one.partition_index)
                    codes[key] = code or fault_of_offset(services, key, "")
            gone = [key for key, code in codes.items() if not code and key in hosted.offsets]
            result = services.groups.delete_offsets(shard, hosted, gone, waiter)
    except CoordinatorError as error:
        return encode(error.code)
    return waiter if result is None else encode(result)
