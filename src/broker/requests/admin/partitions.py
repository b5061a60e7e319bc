"""Answer CreatePartitions (37) and DeleteRecords (21)."""

from __future__ import annotations

from typing import Any

from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.requests.topic_changes import PARTITIONS_MAX
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreatePartitionsResponse, DeleteRecordsResponse
from logstore import LogStoreError

HIGH_WATERMARK = -1  # this offset in a request means: delete all records
NO_OFFSET = -1

Refusal = tuple[ErrorCode, str]


def answer_create(call: Call) -> Answer:
    """Add partitions to topics."""
    asked = call.request.message()
    Row = CreatePartitionsResponse.CreatePartitionsTopicResult  # noqa: N806 - a class
    rows = []
    for one in asked.topics:
        refusal = _fault_of_count(call.services, one)
        if refusal is None and not asked.validate_only:
            refusal = _create(call.services, one)
        code, reason = refusal or (ErrorCode.NONE, None)
        rows.append(Row(one.name, code, reason))
    return call.answer(CreatePartitionsResponse(results=rows))


def _fault_of_count(services: Services, asked: Any) -> Refusal | None:
    topic = services.topics.get(asked.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}"
    if topic.is_internal:
        reason = "the number of partitions decides where a group is kept, so it cannot change"
        return ErrorCode.INVALID_REQUEST, reason
    count = len(topic.partitions)
    if not count < asked.count <= PARTITIONS_MAX:
        reason = (
            f"the topic has {count} partitions; the new number must be larger, and at most "
            f"{PARTITIONS_MAX}, not {asked.count}"
        )
        return ErrorCode.INVALID_PARTITIONS, reason
    replicas = list(services.leadership.replica_ids)
    given = asked.assignments
    if given is not None and [list(one.broker_ids) for one in given] != [replicas] * (
        asked.count - count
    ):
        reason = f"each of the {asked.count - count} new partitions is on the brokers {replicas}"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason
    return None


def _create(services: Services, asked: Any) -> Refusal | None:
    topic = services.topics.get(asked.name)
    if topic is None:  # another client has just deleted the topic
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}"
    try:
        services.topics.add_partitions(topic, asked.count)
    except LogStoreError as error:
        return code_of(error), str(error)
    return None


def answer_delete_records(call: Call) -> Answer:
    """Delete the records before an offset; the log start offset changes at once."""
    asked = call.request.message()
    Topic = DeleteRecordsResponse.DeleteRecordsTopicResult  # noqa: N806 - a class
    topics = [
        Topic(topic.name, [_delete_records(call, topic.name, one) for one in topic.partitions])
        for topic in asked.topics
    ]
    return call.answer(DeleteRecordsResponse(topics=topics))


def _delete_records(call: Call, name: str, asked: Any) -> Any:
    Row = DeleteRecordsResponse.DeleteRecordsPartitionResult  # noqa: N806 - a class
    number, offset = asked.partition_index, asked.offset
    try:
        log = call.services.topics.log(name, number)
        if "delete" not in log.config.cleanup_policy:
            return Row(number, NO_OFFSET, ErrorCode.POLICY_VIOLATION)
        end = log.high_watermark
        wanted = end if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= end:
            return Row(number, NO_OFFSET, ErrorCode.OFFSET_OUT_OF_RANGE)
        log.delete_records_before(wanted)
        return Row(number, log.log_start_offset, ErrorCode.NONE)
    except LogStoreError as error:
        return Row(number, NO_OFFSET, code_of(error))
