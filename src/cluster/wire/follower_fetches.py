"""Write and read the Fetch (1) of a follower, and the answer of its leader.

All partitions of one request have the same leader, and are in one log dir of the follower. So if a
log dir hangs, no other log dir waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FetchRequest
from cluster.errors import BadRequestError
from cluster.requests import FetchAnswer, FollowerFetch
from cluster.wire.topic_ids import bytes_of, identity_of, text_of

API, VERSION = 1, 15
OFFSETS_MAX = 2**62  # no log has a larger offset
CONSUMER = -1  # the replica id of a client that only reads
# if this value replaces the registration epoch, the follower's broker is leaving (P21)
NO_EPOCH = -1
# An answer has a value of this set instead of the last stable offset. A follower finds the last
# stable offset in its own log. A broker of an earlier version ignores the value.
NO_STABLE_OFFSET, MAY_LACK_OFFSETS = -1, -2

PartitionId = tuple[str, int]  # topic id and partition


class FetchLimits(NamedTuple):
    """The limits of a fetch: how long a leader waits for records, and how many bytes it sends.

    Attributes:
        bytes_max: the largest number of bytes of records in one answer.
        partition_bytes_max: the largest number of bytes for one partition, unless it is far behind.
    """

    wait_ms: int = 500
    bytes_min: int = 1
    bytes_max: int = 32 << 20
    partition_bytes_max: int = 1 << 20


class FetchRefused(NamedTuple):
    """The answer of a leader that cannot serve a partition now."""

    request: FollowerFetch
    error: ErrorCode


def key_of(fetch: FollowerFetch) -> PartitionId:
    """Return the key by which the answer to a fetch is found."""
    return fetch.topic.topic_id, fetch.partition


def encode_fetches(
    fetches: Iterable[FollowerFetch],
    limits: FetchLimits,
    shares: Mapping[PartitionId, int] | None = None,
) -> Any:
    """Write the fetches of one follower as one message.

    Args:
        shares: how many bytes of records each partition may get, in the order of the request. By
            default, each partition may get `partition_bytes_max`.
    """
    found = {key_of(one): one for one in fetches}
    if shares is None:
        shares = dict.fromkeys(sorted(found), limits.partition_bytes_max)
    ((follower, epoch),) = {(one.follower, one.registration_epoch) for one in found.values()}
    if any(one.is_leaving for one in found.values()):
        epoch = NO_EPOCH
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(follower, epoch),
        max_wait_ms=limits.wait_ms,
        min_bytes=limits.bytes_min,
        max_bytes=limits.bytes_max,
        session_epoch=-1,  # the request belongs to no fetch session
        topics=[
            FetchRequest.FetchTopic(
                topic_id=bytes_of(topic_id),
                partitions=[_partition_of(found[key], shares[key]) for key in group],
            )
            for topic_id, group in groupby(shares, lambda key: key[0])
        ],
    )


def _partition_of(fetch: FollowerFetch, bytes_max: int) -> Any:
    return FetchRequest.FetchPartition(
        partition=fetch.partition,
        current_leader_epoch=fetch.leader_epoch,
        fetch_offset=fetch.offset,
        last_fetched_epoch=fetch.last_epoch,
        log_start_offset=fetch.log_start,
        partition_max_bytes=bytes_max,
    )


def decode_fetches(message: Any) -> list[FollowerFetch]:
    """Read the fetches in a request of a follower.

    Raises:
        BadRequestError: the request comes from a consumer, or a number is out of its range.
    """
    follower, epoch = message.replica_state
    if follower < 0 or epoch < NO_EPOCH:
        raise BadRequestError(reason="the fetch does not name its follower and registration epoch")
    fetches = []
    for topic in message.topics:
        identity = identity_of(topic.topic_id)
        for one in topic.partitions:
            numbers = one.partition, one.current_leader_epoch, one.log_start_offset
            if not identity.topic_id or min(numbers) < 0 or one.last_fetched_epoch < -1:
                raise BadRequestError(reason="a fetch has a number below 0, or no topic")
            if one.fetch_offset < one.log_start_offset:
                raise BadRequestError(reason="a follower's log ends before its start")
            fetches.append(
                FollowerFetch(
                    identity,
                    one.partition,
                    follower,
                    epoch,
                    one.current_leader_epoch,
                    one.fetch_offset,
                    one.last_fetched_epoch,
                    is_leaving=epoch == NO_EPOCH,
                    log_start=one.log_start_offset,
                )
            )
    return fetches


def decode_fetch_answers(
    message: Any, asked: Mapping[PartitionId, FollowerFetch]
) -> list[FetchAnswer | FetchRefused]:
    """Read the answer of a leader. Leave out partitions that were not requested.

    Raises:
        BadRequestError: a high watermark, log start or diverging epoch is out of its range.
    """
    found: list[FetchAnswer | FetchRefused] = []
    for topic in message.responses:
        for one in topic.partitions:
            request = asked.get((text_of(topic.topic_id), one.partition_index))
            if request is None:
                continue
            if one.error_code != ErrorCode.NONE:
                found.append(FetchRefused(request, ErrorCode(one.error_code)))
                continue
            found.append(_answer_of(request, one))
    return found


def _answer_of(request: FollowerFetch, row: Any) -> FetchAnswer:
    epoch, end = row.diverging_epoch
    mark, start = row.high_watermark, row.log_start_offset
    if mark < 0 or not 0 <= start < OFFSETS_MAX:
        raise BadRequestError(
            reason=f"a leader's high watermark is {mark}, and its log start is {start}"
        )
    may_lack = row.last_stable_offset == MAY_LACK_OFFSETS
    if end < 0:  # the message has no diverging epoch
        return FetchAnswer(request, mark, row.records, log_start=start, may_lack=may_lack)
    answer = FetchAnswer(request, mark, None, (epoch, end), start, may_lack)
    if answer.is_beginning_anew:
        return answer
    is_behind = epoch < request.last_epoch or (epoch, end) < (request.last_epoch, request.offset)
    if epoch < -1 or not is_behind:
        raise BadRequestError(
            reason=f"a leader wants to cut at the end of epoch {epoch}, offset {end}, but the "
            f"follower ends at offset {request.offset} of epoch {request.last_epoch}"
        )
    return answer
