"""Answer ListOffsets (2) and OffsetForLeaderEpoch (23)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

from broker.catalog.client_appends import check_format
from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.fetch import READ_COMMITTED, end_of_epoch
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import ListOffsetsResponse, OffsetForLeaderEpochResponse
from logstore import Log, LogStoreError

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
# For each special timestamp, the first version of ListOffsets that knows the timestamp.
KNOWN_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
UNKNOWN_END_FROM = 5  # the first version that knows the error OFFSET_NOT_AVAILABLE
NOTHING = (-1, -1)
NO_RACK = ""  # the request has no rack, so only the leader answers

Row = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochRow = OffsetForLeaderEpochResponse.EpochEndOffset


def answer(call: Call) -> Answer:
    """Find an offset in each partition. A partition that is named twice gets an error, as in Kafka.

    Without this error, a short request could make the broker search a partition thousands of times.
    """
    asked = call.request.message()
    Topic = ListOffsetsResponse.ListOffsetsTopicResponse  # noqa: N806 - a class
    named = Counter(
        (topic.name, one.partition_index) for topic in asked.topics for one in topic.partitions
    )
    topics = []
    for topic in asked.topics:
        rows = [
            _row(call, topic.name, one, asked.isolation_level)
            if named[topic.name, one.partition_index] == 1
            else Row(one.partition_index, ErrorCode.INVALID_REQUEST)
            for one in topic.partitions
        ]
        topics.append(Topic(topic.name, rows))
    return call.answer(ListOffsetsResponse(topics=topics))


def _row(call: Call, name: str, asked: Any, isolation_level: int) -> Any:
    number, wanted = asked.partition_index, asked.timestamp
    if wanted < LATEST_TIERED or call.request.version < KNOWN_FROM.get(wanted, 0):
        return Row(number, ErrorCode.UNSUPPORTED_VERSION)
    leadership = call.services.leadership
    try:
        log = leadership.log(name, number, asked.current_leader_epoch)
        check_format(log)
        is_committed = isolation_level == READ_COMMITTED
        end = log.last_stable_offset if is_committed else log.high_watermark
        with call.services.decompression.lease():
            timestamp, offset = offset_of(log, wanted, end)
        if wanted == LATEST or (offset < 0 and wanted != LATEST_TIERED):
            fault = leadership.fault_of_end(name, number)
            if fault:
                is_old = call.request.version < UNKNOWN_END_FROM
                return Row(number, ErrorCode.LEADER_NOT_AVAILABLE if is_old else fault)
    except LogStoreError as error:
        return Row(number, code_of(error))
    epoch = log.leader_epoch if wanted == LATEST else epoch_of(log, offset)
    return Row(number, ErrorCode.NONE, timestamp, offset, epoch)


def offset_of(log: Log, wanted: int, end: int) -> tuple[int, int]:
    """Return the timestamp and the offset for a point in time, or for a special timestamp.

    Args:
        end: the client may see only records before this offset.
    """
    if wanted == LATEST:
        return -1, end
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset
    if wanted == LATEST_TIERED:  # this broker has no tiered storage
        return NOTHING
    if wanted == MAX_TIMESTAMP:
        latest = log.latest_record()
        return NOTHING if latest is None or latest[1] >= end else latest
    first = log.first_record_at(wanted)
    return NOTHING if first is None or first[1] >= end else first


def epoch_of(log: Log, offset: int) -> int:
    """Return the leader epoch of the record at an offset; -1 if it is not known."""
    epochs = log.leader_epochs
    at = bisect_right(epochs, offset, key=lambda entry: entry[1]) - 1
    return epochs[at][0] if at >= 0 <= offset else -1


def answer_epochs(call: Call) -> Answer:
    """Return the end offsets of the leader epochs that the client names."""
    asked = call.request.message()
    Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult  # noqa: N806 - a class
    topics = [
        Topic(topic.topic, [_epoch_row(call, topic.topic, one) for one in topic.partitions])
        for topic in asked.topics
    ]
    return call.answer(OffsetForLeaderEpochResponse(topics=topics))


def _epoch_row(call: Call, name: str, asked: Any) -> Any:
    try:
        leadership, known = call.services.leadership, asked.current_leader_epoch
        reading = leadership.log_for_rack(name, asked.partition, known, NO_RACK)
        epoch, end_offset = end_of_epoch(reading, asked.leader_epoch)
    except LogStoreError as error:
        return EpochRow(code_of(error), asked.partition)
    return EpochRow(ErrorCode.NONE, asked.partition, epoch, end_offset)
