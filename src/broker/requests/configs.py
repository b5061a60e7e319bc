"""Answer DescribeConfigs (32): the settings of topics and of this broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.catalog.admin.topic_admin import SettingRow, TopicRefusedError
from broker.catalog.dynamic_settings import CORDONED, DYNAMIC_DEFAULTS
from broker.catalog.settings import (
    BOOLEAN,
    DEFAULT_SOURCE,
    DYNAMIC_SOURCE,
    INT,
    KEYS,
    LIST,
    LONG,
    STATIC_SOURCE,
    STRING,
    Synonym,
    source_of,
    text_of,
)
from broker.config import KAFKA_LOG_CONFIG, BrokerConfig
from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import DescribeConfigsResponse
from logstore import LogStoreError

TOPIC, BROKER = 2, 4  # types of resources

# Each key of the broker that sets a default of topics, with the key of the topic's setting.
TOPIC_DEFAULTS = {
    "compression.type": "compression.type",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
}
CONFIG_KEYS = {
    "auto.create.topics.enable": BOOLEAN,
    "connections.max.idle.ms": LONG,
    "delete.topic.enable": BOOLEAN,
    "fetch.max.bytes": INT,
    "group.initial.rebalance.delay.ms": INT,
    "group.max.session.timeout.ms": INT,
    "group.max.size": INT,
    "group.min.session.timeout.ms": INT,
    "max.connections": INT,
    "num.partitions": INT,
    "offset.metadata.max.bytes": INT,
    "offsets.retention.minutes": INT,
    "offsets.topic.num.partitions": INT,
    "socket.request.max.bytes": INT,
}


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
    except TopicRefusedError as refusal:
        return Result(refusal.code, str(refusal), kind, name)
    except LogStoreError as error:
        return Result(code_of(error), str(error), kind, name)
    except ValueError as error:
        return Result(ErrorCode.INVALID_REQUEST, str(error), kind, name)
    keys = asked.configuration_keys  # an empty list also means all keys, as in Kafka
    wanted = [row for row in rows if not keys or row.key in keys]
    return Result(ErrorCode.NONE, None, kind, name, [_encoded(row, has_synonyms) for row in wanted])


def _encoded(row: SettingRow, has_synonyms: bool) -> Any:
    Response = DescribeConfigsResponse  # noqa: N806 - a class
    synonyms = [Response.DescribeConfigsSynonym(*one) for one in row.synonyms]
    return Response.DescribeConfigsResourceResult(
        row.key, row.text, row.is_read_only, source_of(row.synonyms),
        synonyms=synonyms if has_synonyms else (), config_type=row.type, documentation=None,
    )  # fmt: skip


def _rows_of(services: Services, kind: int, name: str) -> Iterator[SettingRow]:
    if kind == TOPIC:
        return iter(services.topic_admin.settings_of(name))
    if kind != BROKER:
        raise ValueError(f"resources of type {kind} have no settings here")
    if name not in ("", str(services.leadership.broker_id)):
        raise ValueError(f"this is broker {services.leadership.broker_id}, not {name!r}")
    # The name "" means the settings that all brokers share. This broker has no such settings.
    return _broker_rows(services) if name else iter(())


def _broker_rows(services: Services) -> Iterator[SettingRow]:
    config, log_config = services.config, services.config.log_config
    own: dict[str, tuple[int, object]] = {
        "advertised.listeners": (STRING, config.advertised_listeners or config.listeners),
        "broker.id": (INT, services.leadership.broker_id),
        "listeners": (STRING, config.listeners),
        "log.dirs": (LIST, ",".join(services.store.log_dirs)),
    }
    for key, (kind, value) in own.items():
        yield _static(key, kind, value, None)
    for key, topic_key in TOPIC_DEFAULTS.items():
        text, default = text_of(topic_key, log_config), text_of(topic_key, KAFKA_LOG_CONFIG)
        yield _static(key, KEYS[topic_key].type, text, default)
    for key, kind in CONFIG_KEYS.items():
        field = key.replace(".", "_")
        yield _static(key, kind, getattr(config, field), getattr(BrokerConfig, field))
    yield _static("default.replication.factor", INT, config.default_replication_factor, 1)
    if config.min_insync_replicas:  # 0 means a majority of the replicas of each topic
        yield _static("min.insync.replicas", INT, config.min_insync_replicas, None)
    for key, text in services.settings.values().items():
        is_set = text != DYNAMIC_DEFAULTS[key]
        source = DYNAMIC_SOURCE if is_set else DEFAULT_SOURCE
        kind = LIST if key == CORDONED else LONG
        yield SettingRow(key, text, kind, [Synonym(key, text, source)], False)


def _static(key: str, kind: int, value: object, default: object) -> SettingRow:
    """Describe a setting that only a restart can change; `default` None means no default."""
    text, usual = (str(one).lower() if kind == BOOLEAN else str(one) for one in (value, default))
    synonyms = [] if text == usual else [Synonym(key, text, STATIC_SOURCE)]
    if default is not None:
        synonyms.append(Synonym(key, usual, DEFAULT_SOURCE))
    return SettingRow(key, text, kind, synonyms, True)
