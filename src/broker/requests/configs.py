"""Answer DescribeConfigs (32): the settings of topics and of this broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from broker.catalog.dynamic_settings import CORDONED
from broker.catalog.settings import BOOLEAN, FIXED, INT, KEYS, LIST, LONG, STRING, text_of
from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import DescribeConfigsResponse
from logstore import LogStoreError, UnknownPartitionError

TOPIC, BROKER = 2, 4  # types of resources
TOPIC_SOURCE, DYNAMIC_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 2, 4, 5


class _Row(NamedTuple):
    key: str
    value: str
    type: int
    source: int
    is_read_only: bool


def answer(call: Call) -> Answer:
    """Describe the resources that the client names."""
    asked = call.request.message()
    results = [_describe(call.services, one, asked.include_synonyms) for one in asked.resources]
    return call.answer(DescribeConfigsResponse(results=results))


def _describe(services: Services, asked: Any, has_synonyms: bool) -> Any:
    Result = DescribeConfigsResponse.DescribeConfigsResult  # noqa: N806 - a class
    kind, name = asked.resource_type, asked.resource_name
    try:
        rows = list(_rows_of(services, kind, name))
    except LogStoreError as error:
        return Result(code_of(error), str(error), kind, name)
    except ValueError as error:
        return Result(ErrorCode.INVALID_REQUEST, str(error), kind, name)
    keys = asked.configuration_keys
    wanted = [row for row in rows if keys is None or row.key in keys]
    return Result(ErrorCode.NONE, None, kind, name, [_encoded(row, has_synonyms) for row in wanted])


def _encoded(row: _Row, has_synonyms: bool) -> Any:
    Response = DescribeConfigsResponse  # noqa: N806 - a class
    synonyms = [Response.DescribeConfigsSynonym(row.key, row.value, row.source)]
    return Response.DescribeConfigsResourceResult(
        row.key, row.value, row.is_read_only, row.source,
        synonyms=synonyms if has_synonyms else (), config_type=row.type, documentation=None,
    )  # fmt: skip


def _rows_of(services: Services, kind: int, name: str) -> Iterator[_Row]:
    if kind == TOPIC:
        return _topic_rows(services, name)
    if kind != BROKER:
        raise ValueError(f"resources of type {kind} have no settings here")
    if name not in ("", str(services.leadership.broker_id)):
        raise ValueError(f"this is broker {services.leadership.broker_id}, not {name!r}")
    # The name "" means the settings that all brokers share. This broker has no such settings.
    return _broker_rows(services) if name else iter(())


def _topic_rows(services: Services, name: str) -> Iterator[_Row]:
    topic = services.topics.get(name)
    if topic is None:
        raise UnknownPartitionError(topic=name, partition=0)
    config = services.topics.log(name, topic.partitions[0]).config
    defaults = services.config.log_config
    for key, setting in KEYS.items():
        text = text_of(key, config)
        source = DEFAULT_SOURCE if text == text_of(key, defaults) else TOPIC_SOURCE
        yield _Row(key, text, setting.type, source, False)
    for key, (kind, text) in FIXED.items():
        yield _Row(key, text, kind, DEFAULT_SOURCE, True)


def _broker_rows(services: Services) -> Iterator[_Row]:
    config, log_config = services.config, services.config.log_config
    settings: dict[str, tuple[int, object]] = {
        "advertised.listeners": (STRING, config.advertised_listeners or config.listeners),
        "auto.create.topics.enable": (BOOLEAN, config.auto_create_topics_enable),
        "broker.id": (INT, services.leadership.broker_id),
        "compression.type": (STRING, text_of("compression.type", log_config)),
        "connections.max.idle.ms": (LONG, config.connections_max_idle_ms),
        "default.replication.factor": (INT, 1),
        "delete.topic.enable": (BOOLEAN, config.delete_topic_enable),
        "fetch.max.bytes": (INT, config.fetch_max_bytes),
        "group.initial.rebalance.delay.ms": (INT, config.group_initial_rebalance_delay_ms),
        "group.max.session.timeout.ms": (INT, config.group_max_session_timeout_ms),
        "group.max.size": (INT, config.group_max_size),
        "group.min.session.timeout.ms": (INT, config.group_min_session_timeout_ms),
        "listeners": (STRING, config.listeners),
        "log.dirs": (LIST, ",".join(services.store.log_dirs)),
        "log.retention.ms": (LONG, text_of("retention.ms", log_config)),
        "log.segment.bytes": (INT, text_of("segment.bytes", log_config)),
        "max.connections": (INT, config.max_connections),
        "message.max.bytes": (INT, text_of("max.message.bytes", log_config)),
        "num.partitions": (INT, config.num_partitions),
        "offset.metadata.max.bytes": (INT, config.offset_metadata_max_bytes),
        "offsets.retention.minutes": (INT, config.offsets_retention_minutes),
        "offsets.topic.num.partitions": (INT, config.offsets_topic_num_partitions),
        "socket.request.max.bytes": (INT, config.socket_request_max_bytes),
    }
    for key, (kind, value) in settings.items():
        text = str(value).lower() if kind == BOOLEAN else str(value)
        yield _Row(key, text, kind, STATIC_SOURCE, True)
    for key, text in services.settings.values().items():
        yield _Row(key, text, LIST if key == CORDONED else LONG, DYNAMIC_SOURCE, False)
