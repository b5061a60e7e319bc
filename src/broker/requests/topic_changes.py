"""Answer CreateTopics (19) and DeleteTopics (20), and create topics automatically."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from broker.catalog.settings import (
    FIXED,
    KEYS,
    InvalidSettingError,
    config_of,
    source_of,
    synonyms_of,
    text_of,
)
from broker.catalog.topics import INTERNAL_TOPICS, NO_ID, Topic
from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreateTopicsResponse, DeleteTopicsResponse
from logstore import LogConfig, LogStoreError, PartitionExistsError
from logstore.names import validate_topic

BY_ID = 6  # the first version of DeleteTopics that names topics by their ids, too
PARTITIONS_MAX = 100_000  # the largest number of partitions of a topic that a client creates


class _RefusedError(Exception):
    """Report why a topic is not created."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Plan(NamedTuple):
    """A topic that is to be created."""

    partitions: int
    config: LogConfig


def fault_of_name(name: str) -> ErrorCode:
    """Return NONE if a topic name obeys Kafka's rules; otherwise return an error."""
    try:
        validate_topic(name)
    except ValueError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def colliding(services: Services, name: str) -> str | None:
    """Find a topic whose name differs only in "." and "_"; Kafka's metrics treat them as equal."""
    if "." not in name and "_" not in name:
        return None
    wanted = name.replace(".", "_")
    others = (other for other in services.topics.current().by_name if other != name)
    return next((other for other in others if other.replace(".", "_") == wanted), None)


def auto_create(services: Services, name: str) -> tuple[ErrorCode, Topic | None]:
    """Create a topic with the broker's defaults; return an error code, and the topic or None."""
    fault = fault_of_name(name)
    if not fault and colliding(services, name):
        fault = ErrorCode.INVALID_TOPIC_EXCEPTION
    if fault or name in INTERNAL_TOPICS:  # coordinators create these topics, in their own layout
        return fault or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    config = services.config
    try:
        return ErrorCode.NONE, services.topics.create(
            name, config.num_partitions, config.log_config
        )
    except PartitionExistsError:  # another client was faster
        return ErrorCode.LEADER_NOT_AVAILABLE, services.topics.get(name)
    except LogStoreError:
        return ErrorCode.LEADER_NOT_AVAILABLE, None


def answer_create(call: Call) -> Answer:
    """Create topics; the failure of a topic does not affect other topics."""
    asked = call.request.message()
    named = Counter(topic.name for topic in asked.topics)
    rows = []
    for topic in asked.topics:
        if named[topic.name] == 1:
            rows.append(_create(call.services, topic, asked.validate_only))
        elif named.pop(topic.name, 0):
            refusal = _RefusedError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            rows.append(_refused(topic.name, refusal))
    return call.answer(CreateTopicsResponse(topics=rows))


def _create(services: Services, asked: Any, is_dry: bool) -> Any:
    try:
        plan = _plan_of(services, asked)
        topic_id = NO_ID
        if not is_dry:
            topic_id = services.topics.create(asked.name, plan.partitions, plan.config).id
    except _RefusedError as refusal:
        return _refused(asked.name, refusal)
    except LogStoreError as error:
        return _refused(asked.name, _RefusedError(code_of(error), str(error)))
    return CreateTopicsResponse.CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=1,
        configs=_config_rows(plan.config, services.config.log_config),
    )


def _refused(name: str, refusal: _RefusedError) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=refusal.code, error_message=str(refusal), configs=None
    )


def _plan_of(services: Services, asked: Any) -> _Plan:
    """Check a topic that a client wants to create; raise `_RefusedError` if it is refused."""
    try:
        validate_topic(asked.name)
    except ValueError as error:
        raise _RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    if services.topics.get(asked.name) is not None:
        raise _RefusedError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic {asked.name!r} exists already"
        )
    other = colliding(services, asked.name)
    if other is not None:
        reason = f'the topic {other!r} has the same name if "." and "_" are the same'
        raise _RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    partitions = _partition_count(services, asked)
    try:
        settings = [(one.name, one.value) for one in asked.configs]
        return _Plan(partitions, config_of(settings, services.config.log_config))
    except InvalidSettingError as error:
        raise _RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _partition_count(services: Services, asked: Any) -> int:
    """Return how many partitions a new topic has; raise `_RefusedError` for a wrong number."""
    replicas = list(services.leadership.replica_ids)
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise _RefusedError(
                ErrorCode.INVALID_REQUEST, "both a number and an assignment of partitions is given"
            )
        numbers = sorted(one.partition_index for one in asked.assignments)
        if numbers != list(range(len(numbers))) or any(
            list(one.broker_ids) != replicas for one in asked.assignments
        ):
            raise _RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partitions are numbered from 0, and each is on the brokers {replicas}",
            )
        return len(numbers)
    if asked.replication_factor not in (-1, len(replicas)):
        raise _RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {asked.replication_factor}, and there is one broker",
        )
    count = asked.num_partitions
    if count == -1:
        return services.config.num_partitions
    if not 1 <= count <= PARTITIONS_MAX:
        raise _RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"the number of partitions must be 1 to {PARTITIONS_MAX}, not {count}",
        )
    return int(count)


def _config_rows(config: LogConfig, defaults: LogConfig) -> list[Any]:
    Row = CreateTopicsResponse.CreatableTopicConfigs  # noqa: N806 - a class
    rows = []
    for key in (*KEYS, *FIXED):
        text = text_of(key, config) if key in KEYS else FIXED[key][1]
        source = source_of(synonyms_of(key, config, defaults))
        rows.append(Row(key, text, key in FIXED, source, False))
    return rows


def answer_delete(call: Call) -> Answer:
    """Delete topics; the failure of a topic does not affect other topics."""
    asked = call.request.message()
    if call.request.version >= BY_ID:
        wanted = [(one.name, one.topic_id) for one in asked.topics]
    else:
        wanted = [(name, NO_ID) for name in asked.topic_names]
    rows = [_delete(call.services, name, topic_id) for name, topic_id in wanted]
    return call.answer(DeleteTopicsResponse(responses=rows))


def _delete(services: Services, name: str | None, topic_id: bytes) -> Any:
    Row = DeleteTopicsResponse.DeletableTopicResult  # noqa: N806 - a class
    topics = services.topics.current()
    topic = topics.by_id.get(topic_id) if name is None else topics.by_name.get(name)
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else unknown
        return Row(name, topic_id, code, "there is no such topic")
    if not services.config.delete_topic_enable:
        return Row(
            topic.name, topic.id, ErrorCode.TOPIC_DELETION_DISABLED,
            "delete_topic_enable is False",
        )  # fmt: skip
    try:
        services.topics.delete(topic)
    except LogStoreError as error:
        return Row(topic.name, topic.id, code_of(error), str(error))
    services.upkeep.forget_topic(topic.name)
    services.traffic.forget(topic.name)
    return Row(topic.name, topic.id, ErrorCode.NONE, None)
