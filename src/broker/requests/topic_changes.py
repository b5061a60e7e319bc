"""Answer CreateTopics (19) and DeleteTopics (20), and create topics automatically."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

from broker.catalog.admin.topic_admin import (
    CreatedTopic,
    NewTopic,
    TopicRefusedError,
    check_name,
)
from broker.catalog.settings import source_of
from broker.catalog.topics import INTERNAL_TOPICS, NO_ID, Topic
from broker.machines.exchange import Answer, Pending
from broker.requests.admin.settling import Changed, answer_when_shown
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreateTopicsResponse, DeleteTopicsResponse
from logstore import LogStoreError, PartitionExistsError

_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Key = tuple[str | None, bytes]  # the name and the id of a topic in a request
TWICE = "the request names the topic twice"
BY_ID = 6  # the first version of DeleteTopics that names topics by their ids, too


def fault_of_name(name: str) -> ErrorCode:
    """Return NONE if a topic name obeys Kafka's rules; otherwise return an error."""
    try:
        check_name(name)
    except TopicRefusedError as refusal:
        return refusal.code
    return ErrorCode.NONE


def auto_create(services: Services, name: str) -> tuple[ErrorCode, Topic | None]:
    """Create a topic with the broker's defaults; return an error code, and the topic or None."""
    fault = fault_of_name(name)
    if fault or name in INTERNAL_TOPICS:
        # coordinators create these topics with special settings
        return fault or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    try:
        topic = services.topic_admin.create(NewTopic(name)).topic
    except TopicRefusedError as refusal:
        if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            # another client has just created the topic
            return ErrorCode.LEADER_NOT_AVAILABLE, services.topics.get(name)
        return refusal.code, None
    except PartitionExistsError:  # another client was faster
        return ErrorCode.LEADER_NOT_AVAILABLE, services.topics.get(name)
    except LogStoreError:
        return ErrorCode.LEADER_NOT_AVAILABLE, None
    if services.topic_admin.is_ready(topic):
        return ErrorCode.NONE, topic
    return ErrorCode.LEADER_NOT_AVAILABLE, None


def answer_create(call: Call) -> Answer | Pending:
    """Create topics. If one topic fails, all other topics are still created.

    The answer waits until this broker's metadata has the topics and their leaders. So the next
    request of the client does not fail.
    """
    services, asked = call.services, call.request.message()
    named = Counter(topic.name for topic in asked.topics)
    rows: list[Any] = []
    made: dict[str, Topic] = {}
    for topic in asked.topics:
        if named[topic.name] == 1:
            row, created = _create(services, topic, asked.validate_only)
            rows.append(row)
            if created is not None and not asked.validate_only:
                made[topic.name] = created
        elif named.pop(topic.name, 0):
            refusal = TopicRefusedError(ErrorCode.INVALID_REQUEST, TWICE)
            rows.append(_refused(topic.name, refusal))

    changed = Changed(
        made, services.topic_admin.is_ready, rows, lambda rows: CreateTopicsResponse(topics=rows)
    )
    return answer_when_shown(call, changed, asked.timeout_ms)


def _create(services: Services, asked: Any, is_dry: bool) -> tuple[Any, Topic | None]:
    """Create a topic; return its row in the answer, and the topic if it was created."""
    wanted = NewTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        [(one.partition_index, one.broker_ids) for one in asked.assignments],
        [(one.name, one.value) for one in asked.configs],
    )
    try:
        created = services.topic_admin.create(wanted, is_dry=is_dry)
    except TopicRefusedError as refusal:
        return _refused(asked.name, refusal), None
    except LogStoreError as error:
        return _refused(asked.name, TopicRefusedError(code_of(error), str(error))), None
    return _created_row(created), created.topic


def _created_row(created: CreatedTopic) -> Any:
    Row = CreateTopicsResponse.CreatableTopicConfigs  # noqa: N806 - a class
    return CreateTopicsResponse.CreatableTopicResult(
        name=created.topic.name,
        topic_id=created.topic.id,
        error_message=None,
        num_partitions=len(created.topic.partitions),
        replication_factor=created.replication_factor,
        configs=[
            Row(one.key, one.text, one.is_read_only, source_of(one.synonyms), False)
            for one in created.settings
        ],
    )


def _refused(name: str, refusal: TopicRefusedError) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=refusal.code, error_message=str(refusal), configs=None
    )


def answer_delete(call: Call) -> Answer | Pending:
    """Delete topics. If one topic fails, all other topics are still deleted.

    As in Kafka, a topic that the request names twice gets one row with an error, even if the
    request names it once by its name and once by its id.

    The answer waits until this broker's metadata no longer has the topics.
    """
    services, asked = call.services, call.request.message()
    if call.request.version >= BY_ID:
        wanted = [(one.name, one.topic_id) for one in asked.topics]
    else:
        wanted = [(name, NO_ID) for name in asked.topic_names]
    named = Counter(wanted)
    twice = _named_in_both_ways(services, named)
    rows = [
        _delete(services, *key) if count == 1 else _Deleted(*key, ErrorCode.INVALID_REQUEST, TWICE)
        for key, count in named.items()
        if key not in twice
    ]
    rows += [
        _Deleted(name, topic_id, ErrorCode.INVALID_REQUEST, TWICE)
        for name, topic_id in twice
        if name is not None and topic_id != NO_ID
    ]
    gone = {
        row.name: Topic(row.name, row.topic_id, ())
        for row in rows
        if row.error_code == ErrorCode.NONE
    }

    changed = Changed(
        gone, services.topic_admin.is_gone, rows, lambda rows: DeleteTopicsResponse(responses=rows)
    )
    return answer_when_shown(call, changed, asked.timeout_ms)


def _named_in_both_ways(services: Services, wanted: Container[_Key]) -> set[_Key]:
    """Find topics that a request names by their names, and also by their ids.

    The result has three keys for each: the name, the id, and both.
    """
    found: set[_Key] = set()
    for topic_id, topic in services.topics.current().by_id.items():
        keys: tuple[_Key, _Key] = (topic.name, NO_ID), (None, topic_id)
        if keys[0] in wanted and keys[1] in wanted:
            found |= {*keys, (topic.name, topic_id)}
    return found


def _delete(services: Services, name: str | None, topic_id: bytes) -> Any:
    if (name is None) is (topic_id == NO_ID):
        reason = "a topic is named either by its name or by its id"
        return _Deleted(name, topic_id, ErrorCode.INVALID_REQUEST, reason)
    try:
        topic = services.topic_admin.find(name, topic_id)
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else unknown
            return _Deleted(name, topic_id, code, "there is no such topic")
        name, topic_id = topic.name, topic.id
        if not services.config.delete_topic_enable:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            return _Deleted(name, topic_id, code, "delete_topic_enable is False")
        services.topic_admin.delete(topic)
    except TopicRefusedError as refusal:
        return _Deleted(name, topic_id, refusal.code, str(refusal))
    except LogStoreError as error:
        return _Deleted(name, topic_id, code_of(error), str(error))
    services.upkeep.forget_soon(topic.name, topic.id)
    services.traffic.forget(topic.name)
    return _Deleted(name, topic_id, ErrorCode.NONE, None)
