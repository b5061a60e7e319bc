"""Read and write the znodes of topics: Kafka's paths and JSON, and three paths of this library.

    /brokers/topics/T                 {"version":3,"topic_id":"<22 letters>","partitions":{"0":[1]},
                                       "adding_replicas":{},"removing_replicas":{}}
    /config/topics/T                  {"version":1,"config":{"retention.ms":"1000"}}
    /logstore/unfinished_topics/T     3: the partitions from 3 on are being created
    /logstore/altered_topics/T        {"version":1,"topic_id":"<22 letters>",
                                       "keys":["retention.ms"]}: some logs of T may not have the
                                       values of these settings yet
    /logstore/deleted_topics/ID       as /brokers/topics/T, with a "name": T is being deleted

The config has the settings that differ from Kafka's defaults. A program that uses the store without
this broker may give each partition its own id. Then the JSON has "partition_ids" with each id that
differs from the id of the topic. If "partition_ids" is present but empty, the topic may later get
partitions with other ids.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from broker.catalog.settings import KEYS, field_of, key_of, text_of, value_of
from broker.config import KAFKA_LOG_CONFIG
from broker.coordination.errors import BadZnodeError
from logstore import LogConfig

TOPICS, CONFIGS = "/brokers/topics", "/config/topics"
UNFINISHED, DELETED = "/logstore/unfinished_topics", "/logstore/deleted_topics"
ALTERED = "/logstore/altered_topics"
PARENTS = ("/brokers", TOPICS, "/config", CONFIGS, "/logstore", UNFINISHED, DELETED, ALTERED)
TOPIC_VERSION, CONFIG_VERSION, ALTERATION_VERSION = 3, 1, 1
ID_BYTES = 16
CONFIGS_KEPT = 256


class TopicRecord(NamedTuple):
    """The record of a topic in the coordination store. This object is never changed.

    Attributes:
        ids: the topic id of each partition.
        is_mixed: whether the partitions may have different topic ids.
    """

    name: str
    id: bytes
    ids: Mapping[int, bytes]
    config: LogConfig
    is_mixed: bool = False


class Alteration(NamedTuple):
    """A change of a topic's settings that some of its logs may not have yet.

    Attributes:
        fields: the changed settings, with their names in a `LogConfig`. The record of the topic has
            the new values of the changed settings.
    """

    topic_id: bytes
    fields: frozenset[str]

    def apply(self, record: TopicRecord, config: LogConfig) -> LogConfig:
        """Return the new configuration of a log of the topic; `config` is the present one.

        Raises:
            TypeError, ValueError: a new value contradicts an unchanged value.
        """
        values: dict[str, Any] = {one: getattr(record.config, one) for one in self.fields}
        return config.replace(**values)

    def applied(self, record: TopicRecord, config: LogConfig) -> LogConfig:
        """Do the same as `apply`, but leave out a new value that contradicts another value."""
        try:
            return self.apply(record, config)
        except (TypeError, ValueError):  # a program has changed the log after the alteration
            for field in sorted(self.fields):
                with suppress(TypeError, ValueError):
                    config = self._replace(fields=frozenset({field})).apply(record, config)
            return config


def record_of(name: str, topic_id: bytes, partitions: int, config: LogConfig) -> TopicRecord:
    """Return the record of a new topic. All its partitions have the same id."""
    return TopicRecord(name, topic_id, dict.fromkeys(range(partitions), topic_id), config)


def topic_path(name: str) -> str:
    """Return the path of a topic's partitions."""
    return f"{TOPICS}/{name}"


def config_path(name: str) -> str:
    """Return the path of a topic's settings."""
    return f"{CONFIGS}/{name}"


def unfinished_path(name: str) -> str:
    """Return the path of the znode that marks a topic whose partitions are being created."""
    return f"{UNFINISHED}/{name}"


def altered_path(name: str) -> str:
    """Return the path of a topic's settings that some logs may not have yet."""
    return f"{ALTERED}/{name}"


def deleted_path(topic_id: bytes) -> str:
    """Return the path of a topic that is being deleted."""
    return f"{DELETED}/{_text_of_id(topic_id)}"


def znodes_of(
    record: TopicRecord, broker_id: int, unfinished_from: int | None, alteration: Alteration | None
) -> dict[str, bytes | None]:
    """Return the data of all znodes of a topic; the data is None if a znode must not exist."""
    mark = None if unfinished_from is None else b"%d" % unfinished_from
    return {
        topic_path(record.name): encode_topic(record, broker_id),
        config_path(record.name): encode_config(record.config),
        unfinished_path(record.name): mark,
        altered_path(record.name): None if alteration is None else encode_alteration(alteration),
    }


def no_znodes_of(name: str) -> dict[str, bytes | None]:
    """Return the data of all znodes of a topic that does not exist."""
    paths = (unfinished_path(name), altered_path(name), config_path(name), topic_path(name))
    return dict.fromkeys(paths)


def encode_topic(record: TopicRecord, broker_id: int, **more: object) -> bytes:
    """Encode the JSON with the partitions of a topic. `more` has further keys and values."""
    document: dict[str, object] = {
        "version": TOPIC_VERSION,
        "topic_id": _text_of_id(record.id),
        "partitions": {str(number): [broker_id] for number in record.ids},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    if record.is_mixed:
        document["partition_ids"] = {
            str(number): _text_of_id(one) for number, one in record.ids.items() if one != record.id
        }
    return _encoded(document | more)


def encode_config(config: LogConfig) -> bytes:
    """Write the settings of a topic that differ from Kafka's defaults."""
    usual = KAFKA_LOG_CONFIG.to_dict()
    changed = [field for field, value in config.to_dict().items() if value != usual[field]]
    return _encoded({"version": CONFIG_VERSION, "config": _texts_of(config, changed)})


def encode_alteration(alteration: Alteration) -> bytes:
    """Encode the JSON with the settings that some logs may not have yet."""
    return _encoded(
        {
            "version": ALTERATION_VERSION,
            "topic_id": _text_of_id(alteration.topic_id),
            "keys": sorted(map(key_of, alteration.fields)),
        }
    )


def parse_alteration(data: bytes, path: str) -> Alteration:
    """Read which settings some logs may not have yet. Leave out unknown keys.

    Raises:
        BadZnodeError: the data does not have the form that `encode_alteration` writes.
    """
    try:
        document = json.loads(data)
        keys = document["keys"]
        if not isinstance(keys, list):
            raise ValueError(f"{keys!r} is not a list")
        fields = frozenset(field_of(key) for key in keys if key in KEYS)
        return Alteration(_id_of_text(document["topic_id"]), fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"the data is not the JSON of changed settings: {error!r}"
        raise BadZnodeError(path, reason) from None


def _texts_of(config: LogConfig, fields: list[str]) -> dict[str, str]:
    texts = {}
    for field in sorted(fields):
        key = key_of(field)
        value = getattr(config, field)
        texts[key] = text_of(key, config) if key in KEYS else str(value).lower()
    return texts


def _encoded(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _text_of_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic(data: bytes, path: str, config: LogConfig, name: str = "") -> TopicRecord:
    """Read the partitions of a topic.

    Args:
        name: the name of the topic; "" if the JSON has the name.

    Raises:
        BadZnodeError: the data does not have the form that `encode_topic` writes.
    """
    try:
        document = json.loads(data)
        topic_id = _id_of_text(document["topic_id"])
        own = document.get("partition_ids")
        own_ids = {int(number): _id_of_text(text) for number, text in (own or {}).items()}
        numbers = sorted(int(number) for number in document["partitions"])
        ids = {number: own_ids.get(number, topic_id) for number in numbers}
        return TopicRecord(name or document["name"], topic_id, ids, config, own is not None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadZnodeError(path, f"the data is not the JSON of a topic: {error!r}") from None


def _id_of_text(text: str) -> bytes:
    topic_id = urlsafe_b64decode(text + "==")
    if len(topic_id) != ID_BYTES:
        raise ValueError(f"{text!r} is not a topic id")
    return topic_id


@lru_cache(CONFIGS_KEPT)
def parse_config(data: bytes, path: str) -> LogConfig:
    """Read the settings of a topic. Leave out unknown settings.

    Raises:
        BadZnodeError: the data does not have the form that `encode_config` or Kafka writes.
    """
    try:
        texts = json.loads(data)["config"]
        changes = {field_of(key): _value_of(key, text) for key, text in texts.items()}
        known = KAFKA_LOG_CONFIG.to_dict()
        return KAFKA_LOG_CONFIG.replace(
            **{field: value for field, value in changes.items() if field in known}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadZnodeError(path, f"the data is not the JSON of settings: {error!r}") from None


def _value_of(key: str, text: str) -> Any:
    """Convert the text of a setting of Kafka, or of a setting that only this library has."""
    if key in KEYS:
        return value_of(key, text)
    return {"true": True, "false": False}.get(text, text)
