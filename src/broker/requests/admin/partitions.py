"""Answer CreatePartitions (37) and DeleteRecords (21)."""

from __future__ import annotations

from typing import Any

from broker.catalog.admin.topic_admin import TopicRefusedError
from broker.catalog.topics import Topic
from broker.machines.exchange import Answer, Pending
from broker.requests.admin.settling import Changed, answer_when_shown
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreatePartitionsResponse, DeleteRecordsResponse
from logstore import LogStoreError

HIGH_WATERMARK = -1  # this offset in a request means: delete all records
NO_OFFSET = -1


def answer_create(call: Call) -> Answer | Pending:
    """Add partitions to topics; the answer waits until the broker's metadata has their leaders."""
    services, asked = call.services, call.request.message()
    Row = CreatePartitionsResponse.CreatePartitionsTopicResult  # noqa: N806 - a class
    rows, grown = [], {}
    for one in asked.topics:
        try:
            topic = _create(services, one, asked.validate_only)
        except TopicRefusedError as refusal:
            rows.append(Row(one.name, refusal.code, str(refusal)))
        except LogStoreError as error:
            rows.append(Row(one.name, code_of(error), str(error)))
        else:
            rows.append(Row(one.name, ErrorCode.NONE, None))
            if not asked.validate_only:
                grown[one.name] = topic

    changed = Changed(
        grown,
        services.topic_admin.is_ready,
        rows,
        lambda rows: CreatePartitionsResponse(results=rows),
    )
    return answer_when_shown(call, changed, asked.timeout_ms)


def _create(services: Services, asked: Any, is_dry: bool) -> Topic:
    given = asked.assignments
    assignment = None if given is None else [one.broker_ids for one in given]
    return services.topic_admin.add_partitions(asked.name, asked.count, assignment, is_dry=is_dry)


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
