"""Define the znodes of a cluster: their paths, and the JSON format of registrations and topics.

The paths and the keys are Kafka's. Kafka's tools ignore the keys that this project adds.

    /brokers/ids/2            {"version":5,"host":"b2","port":9092,"rack":"r1",
                               "endpoints":["PLAINTEXT://b2:9092"],
                               "listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},
                               "features":{"transaction.version":{"min_version":0,
                                                                  "max_version":2},
                                           "group.version":{"min_version":0,"max_version":1}},
                               "jmx_port":-1,"timestamp":"1795780900243",
                               "log_dirs":{"<directory id>":90,"<another>":null}}
    /brokers/topics/orders    {"version":3,"topic_id":"<22 characters>","partitions":{"0":[1,2]},
                               "adding_replicas":{},"removing_replicas":{}}
    /config/topics/orders     {"version":1,"config":{"retention.ms":"1000"}}
    /config/changes/config_change_0000000007
                              {"version":2,"entity_path":"topics/orders"}
    /admin/delete_topics/orders
                              <22 characters: the id of a topic that is being deleted in steps>
    /admin/replica_deletions/<topic id>-0
                              {"version":1,"name":"orders","topic_id":"<22 characters>",
                               "created":50,"partition":0,"state_version":7,"brokers":[1,2]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.catalog.admin.features import SUPPORTED
from broker.listener_config import Endpoint, parse_endpoints
from cluster.errors import BadZnodeError
from cluster.pure.control_exchange import Deletion
from cluster.registration import Registration, TopicIdentity
from cluster.state import State, changes_of
from cluster.wire.topic_ids import bytes_of
from cluster.znode_document import EPOCH_MAX, ID_MAX, ZnodeDocument

BROKERS, TOPICS, CONFIGS = "/brokers/ids", "/brokers/topics", "/config/topics"
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
LOG_DIR_EVENTS = "/log_dir_event_notification"
DELETIONS = "/admin/replica_deletions"
TOPIC_DELETIONS = "/admin/delete_topics"
SETTING_NOTICES = "/config/changes"
SETTING_NOTICE = f"{SETTING_NOTICES}/config_change_"
# These znodes must exist before the first broker of a cluster is registered.
PARENTS = (
    "/brokers", BROKERS, TOPICS, "/config", CONFIGS, SETTING_NOTICES, LOG_DIR_EVENTS, "/admin",
    DELETIONS, TOPIC_DELETIONS,
)  # fmt: skip
REGISTRATION_VERSION, TOPIC_VERSION, CONFIG_VERSION, DELETION_VERSION = 5, 3, 1, 1
NOTICE_VERSION = 2
ENTITY_OF_TOPIC = "topics/"
PARTITIONS_MAX = 1_000_000
EPOCH_DIGITS_MAX = 10
# A longer text is refused before `int` reads it: `int` raises another error for a very long text.
PARTITION_DIGITS_MAX = 7


def broker_path(broker: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKERS}/{broker}"


def topic_path(name: str) -> str:
    """Return the path of a topic."""
    return f"{TOPICS}/{name}"


def config_path(name: str) -> str:
    """Return the path of a topic's settings."""
    return f"{CONFIGS}/{name}"


def state_path(name: str, partition: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def deletion_path(topic: TopicIdentity, partition: int) -> str:
    """Return the path of the znode of a deletion that is not complete."""
    return f"{DELETIONS}/{topic.topic_id}-{partition}"


def topic_deletion_path(name: str) -> str:
    """Return the path of the mark that a topic is being deleted in several steps."""
    return f"{TOPIC_DELETIONS}/{name}"


def parse_controller(data: bytes) -> int | None:
    """Return the broker that is the controller; None if the data names no broker."""
    try:
        return ZnodeDocument(data, CONTROLLER).number("brokerid", 0, ID_MAX)
    except BadZnodeError:
        return None


def parse_controller_epoch(data: bytes) -> int:
    """Read the epoch of the last elected controller.

    Raises:
        BadZnodeError: the data is not a number, or the number is too large for the protocol.
    """
    if not (data.isdigit() and len(data) <= EPOCH_DIGITS_MAX and int(data) <= ID_MAX):
        raise BadZnodeError(path=CONTROLLER_EPOCH, reason=f"{data[:20]!r} is no epoch")
    return int(data)


def encode_log_dir_event(broker: int) -> bytes:
    """Make the data that reports that a log dir of a broker failed or returned (KIP-112)."""
    document = {"version": 1, "broker": broker, "event": 1}
    return json.dumps(document, separators=(",", ":")).encode()


def parse_log_dir_event(data: bytes) -> int | None:
    """Return the broker that announced a change of a log dir; None if the data names no broker."""
    try:
        return ZnodeDocument(data, LOG_DIR_EVENTS).number("broker", 0, ID_MAX)
    except BadZnodeError:
        return None


class BrokerNode(NamedTuple):
    """The registration of a broker.

    Attributes:
        endpoints: the advertised listeners of the broker, at least one.
        rack: the rack of the broker; "" if none is known.
    """

    registration: Registration
    endpoints: tuple[Endpoint, ...]
    rack: str = ""

    def address_at(self, listener: str) -> tuple[str, int]:
        """Return the host and port of the listener with this name, or of the first listener."""
        for one in self.endpoints:
            if one.name == listener:
                return one.host, one.port
        return self.endpoints[0].host, self.endpoints[0].port


def encode_registration(
    endpoints: Sequence[Endpoint],
    rack: str,
    dir_epochs: Mapping[str, int | None],
    now_ms: int,
    protocols: Mapping[str, str] = {},
) -> bytes:
    """Write a registration.

    Args:
        dir_epochs: for each directory id, the registration epoch of the write that put it into the
            registration. None means the epoch of this write, because this epoch is not known before
            the write.
        protocols: the security protocol of each listener; PLAINTEXT for any other listener.
    """
    document = {
        "version": REGISTRATION_VERSION,
        "host": endpoints[0].host,
        "port": endpoints[0].port,
        "endpoints": [str(endpoint) for endpoint in endpoints],
        "listener_security_protocol_map": {
            one.name: protocols.get(one.name, "PLAINTEXT") for one in endpoints
        },
        "features": {
            name: {"min_version": first, "max_version": last}
            for name, (first, last) in SUPPORTED.items()
        },
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "log_dirs": dict(dir_epochs),
    }
    if rack:
        document["rack"] = rack
    return json.dumps(document, separators=(",", ":")).encode()


def parse_registration(data: bytes | None, path: str, czxid: int, mzxid: int) -> BrokerNode:
    """Read a registration.

    Args:
        czxid: the zxid of the znode's creation, which is the broker epoch.
        mzxid: the zxid of the znode's last write, which is the registration epoch.

    Raises:
        BadZnodeError: the data is not a registration, or was not written by this project.
    """
    document = ZnodeDocument(data, path)
    document.number("version", REGISTRATION_VERSION, ID_MAX)
    listed = document.get("endpoints")
    if not isinstance(listed, list) or not listed or not all(isinstance(x, str) for x in listed):
        raise document.error("endpoints is not a list of texts, or is empty")
    try:
        endpoints = parse_endpoints(",".join(listed), "endpoints")
    except ValueError as error:
        raise document.error(str(error)) from error
    dirs = document.mapping("log_dirs")
    for directory_id, epoch in dirs.items():
        if epoch is not None and not (type(epoch) is int and 0 <= epoch <= EPOCH_MAX):
            raise document.error(f"the epoch of log dir {directory_id[:40]} is {str(epoch)[:40]}")
    epochs = {one: mzxid if epoch is None else epoch for one, epoch in dirs.items()}
    rack = document.text("rack") if document.has("rack") else ""
    return BrokerNode(Registration(czxid, mzxid, epochs), endpoints, rack)


def features_of(data: bytes) -> dict[str, tuple[int, int]]:
    """Read the levels of each feature that a broker supports; {} if its data names none."""
    try:
        features = json.loads(data)["features"]
        levels = {
            str(name): (one["min_version"], one["max_version"]) for name, one in features.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {
        name: (first, last)
        for name, (first, last) in levels.items()
        if type(first) is int and type(last) is int
    }


class TopicNode(NamedTuple):
    """A topic in the coordination store: its identity, and the brokers of each partition."""

    identity: TopicIdentity
    partitions: Mapping[int, tuple[int, ...]]


def encode_topic(topic_id: str, partitions: Mapping[int, Sequence[int]]) -> bytes:
    """Write a topic."""
    document = {
        "version": TOPIC_VERSION,
        "topic_id": topic_id,
        "partitions": {str(number): list(brokers) for number, brokers in partitions.items()},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def with_partitions(data: bytes, path: str, added: Mapping[int, Sequence[int]]) -> bytes:
    """Add partitions to the JSON text of a topic's znode; keep the other content of the text.

    Raises:
        BadZnodeError: the data is no topic.
    """
    ZnodeDocument(data, path).mapping("partitions")
    document = json.loads(data)
    document["partitions"] |= {str(number): list(brokers) for number, brokers in added.items()}
    return json.dumps(document, separators=(",", ":")).encode()


def with_assignment(data: bytes, path: str, partition: int, state: State) -> bytes:
    """Put the replicas of a partition's state into the JSON text of a topic; keep the rest.

    Raises:
        BadZnodeError: the data is no topic.
    """
    checked = ZnodeDocument(data, path)
    document, number = json.loads(data), str(partition)
    checked.mapping("partitions")
    document["partitions"][number] = list(state.replicas)
    keys = ("adding_replicas", "removing_replicas")
    for key, brokers in zip(keys, changes_of(state), strict=True):
        rows = dict(checked.mapping(key)) if checked.has(key) else {}
        rows.pop(number, None)
        document[key] = {**rows, number: list(brokers)} if brokers else rows
    return json.dumps(document, separators=(",", ":")).encode()


def parse_topic(data: bytes | None, path: str, czxid: int) -> TopicNode:
    """Read a topic.

    Raises:
        BadZnodeError: the data is no topic.
    """
    document = ZnodeDocument(data, path)
    document.number("version", TOPIC_VERSION, ID_MAX)
    topic_id = _topic_id_in(document)
    partitions = {}
    for text, brokers in document.mapping("partitions").items():
        is_short = text.isascii() and text.isdigit() and len(text) <= PARTITION_DIGITS_MAX
        if not (is_short and int(text) < PARTITIONS_MAX):
            raise document.error(f"{text[:40]!r} is no partition")
        partitions[int(text)] = document.brokers_in(brokers, f"partition {text}")
        if not partitions[int(text)]:
            raise document.error(f"partition {text} has no replicas")
    return TopicNode(TopicIdentity(topic_id, czxid), dict(sorted(partitions.items())))


def _topic_id_in(document: ZnodeDocument) -> str:
    """Read and check the id of a topic."""
    topic_id = document.text("topic_id")
    try:
        bytes_of(topic_id)
    except ValueError as error:
        raise document.error(str(error)) from error
    return topic_id


def encode_config(settings: Mapping[str, str]) -> bytes:
    """Write the settings of a topic."""
    document = {"version": CONFIG_VERSION, "config": dict(settings)}
    return json.dumps(document, separators=(",", ":")).encode()


def parse_config(data: bytes | None, path: str) -> dict[str, str]:
    """Read the settings of a topic.

    Raises:
        BadZnodeError: the data is not settings.
    """
    document = ZnodeDocument(data, path)
    document.number("version", CONFIG_VERSION, ID_MAX)
    return document.texts("config")


def encode_setting_notice(name: str) -> bytes:
    """Make the data that reports that the settings of a topic have changed."""
    document = {"version": NOTICE_VERSION, "entity_path": f"{ENTITY_OF_TOPIC}{name}"}
    return json.dumps(document, separators=(",", ":")).encode()


def parse_setting_notice(data: bytes) -> str | None:
    """Return the topic whose settings have changed; None if the data names no topic."""
    try:
        entity = ZnodeDocument(data, SETTING_NOTICES).text("entity_path")
    except BadZnodeError:
        return None
    name = entity.removeprefix(ENTITY_OF_TOPIC)
    return name if name and name != entity and "/" not in name else None


class NamedDeletion(NamedTuple):
    """The replicas of a deleted partition that may still exist, and the name of its topic."""

    name: str
    deletion: Deletion


def encode_deletion(named: NamedDeletion) -> bytes:
    """Write a deletion."""
    deletion = named.deletion
    document = {
        "version": DELETION_VERSION,
        "name": named.name,
        "topic_id": deletion.topic.topic_id,
        "created": deletion.topic.created,
        "partition": deletion.partition,
        "state_version": deletion.version,
        "brokers": sorted(deletion.brokers),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def parse_deletion(data: bytes | None, path: str) -> NamedDeletion:
    """Read a deletion.

    Raises:
        BadZnodeError: the data is not a deletion.
    """
    document = ZnodeDocument(data, path)
    document.number("version", DELETION_VERSION, ID_MAX)
    topic_id = _topic_id_in(document)
    return NamedDeletion(
        document.text("name"),
        Deletion(
            TopicIdentity(topic_id, document.number("created", 0, EPOCH_MAX)),
            document.number("partition", 0, PARTITIONS_MAX),
            document.number("state_version", 0, ID_MAX),
            frozenset(document.brokers("brokers")),
        ),
    )
