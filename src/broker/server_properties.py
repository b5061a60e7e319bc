"""Translate Kafka's `server.properties` to a `BrokerConfig`.

There are four kinds of keys. Some keys configure this broker. Some keys have no use in this broker,
and are ignored. If the file has no `zookeeper.connect`, this broker also ignores the keys of
clusters. Some keys ask for a protection that this broker does not give, and are refused. All other
keys are unknown. All keys are read before the command fails, so that the user sees every problem at
once. The values of refused keys may be secrets, so no message shows these values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

from broker.catalog.settings import INT, KEYS, LONG, field_of, value_of
from broker.config import KAFKA_LOG_CONFIG, SIZES_MAX, STORE_CONFIG, BrokerConfig
from broker.coordination.paths import check_path
from broker.ignored_keys import IGNORED, advice_for, is_ignored
from broker.listener_config import PROTOCOL, Endpoint, parse_endpoints
from broker.protocols import parse_protocol_map
from logstore import LogConfig, StoreConfig

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
MS_MAX = 2**62
WHOLE = re.compile(r"[+-]?[0-9]+")
SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+)(:(?P<port>\d{1,5}))?")
DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?")


class Default(NamedTuple):
    """The topic setting for which a broker's key sets the default.

    Attributes:
        unit: the factor from the key's unit to the setting's unit, such as 60,000 from minutes to
            milliseconds.
    """

    topic_key: str
    unit: int = 1


# A file may have several keys for one default.
# Then, as in Kafka, the key that is last in this dict is used.
TOPIC_DEFAULTS = {
    "compression.type": Default("compression.type"),
    "log.cleaner.delete.retention.ms": Default("delete.retention.ms"),
    "log.cleaner.max.compaction.lag.ms": Default("max.compaction.lag.ms"),
    "log.cleaner.min.cleanable.ratio": Default("min.cleanable.dirty.ratio"),
    "log.cleaner.min.compaction.lag.ms": Default("min.compaction.lag.ms"),
    "log.cleanup.policy": Default("cleanup.policy"),
    "log.flush.interval.messages": Default("flush.messages"),
    "log.flush.scheduler.interval.ms": Default("flush.ms"),
    "log.flush.interval.ms": Default("flush.ms"),
    "log.index.interval.bytes": Default("index.interval.bytes"),
    "log.index.size.max.bytes": Default("segment.index.bytes"),
    "log.message.timestamp.after.max.ms": Default("message.timestamp.after.max.ms"),
    "log.message.timestamp.before.max.ms": Default("message.timestamp.before.max.ms"),
    "log.message.timestamp.type": Default("message.timestamp.type"),
    "log.retention.bytes": Default("retention.bytes"),
    "log.retention.hours": Default("retention.ms", HOUR_MS),
    "log.retention.minutes": Default("retention.ms", MINUTE_MS),
    "log.retention.ms": Default("retention.ms"),
    "log.roll.hours": Default("segment.ms", HOUR_MS),
    "log.roll.ms": Default("segment.ms"),
    "log.segment.bytes": Default("segment.bytes"),
    "message.max.bytes": Default("max.message.bytes"),
}
# These keys are handled together, because they depend on one another.
TOGETHER = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names",
    "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "node.id",
    "process.roles",
})  # fmt: skip
# In Kafka, -1 means that these keys set no limit.
# For -1, this broker uses the largest number that the key accepts: 2 GiB, or 24 days.
UNLIMITED = frozenset({"connections_max_idle_ms", "queued_max_request_bytes"})


def _dotted(names: set[str]) -> dict[str, str]:
    return {name.replace("_", "."): name for name in sorted(names)}


ZOOKEEPER = "zookeeper.connect"
CLUSTER_KEYS = _dotted({
    "broker_rack", "default_replication_factor", "inter_broker_listener_name",
    "min_insync_replicas", "offsets_commit_timeout_ms", "offsets_topic_replication_factor",
    "replica_fetch_max_bytes", "replica_fetch_response_max_bytes", "replica_lag_time_max_ms",
    "replica_selector_class", "reserved_broker_max_id",
    "sasl_inter_broker_credentials_file", "sasl_mechanism_inter_broker_protocol",
    "security_inter_broker_protocol",
    "transaction_state_log_replication_factor", "unclean_leader_election_enable",
    "zookeeper_connect", "zookeeper_credentials_file",
    "zookeeper_session_timeout_ms", "zookeeper_set_acl",
})  # fmt: skip
BROKER_KEYS = _dotted(
    {one.name for one in fields(BrokerConfig)}
    - {
        "advertised_listeners",
        "listener_security_protocol_map",
        "listeners",
        "log_config",
        "store_config",
        *CLUSTER_KEYS.values(),
    }
)
STORE_KEYS = _dotted(set(StoreConfig.__slots__) - {"broker_id", "log_config"})
KNOWN = sorted({*TOPIC_DEFAULTS, *TOGETHER, *BROKER_KEYS, *CLUSTER_KEYS, *STORE_KEYS})


class ServerProperties(NamedTuple):
    """The configuration from a `server.properties` file, and the problems of the file.

    Attributes:
        config: the configuration. If a setting has a problem, its default is used.
        log_dirs: the log dirs; empty if the file has no log dir.
        sources: for each field, such as `log_config.retention_ms`, the key of the file that set it.
        ignored: the keys that this broker does not use.
        unknown: a sentence for each unknown key.
        problems: a sentence for each value that is wrong, and each key that is refused.
    """

    config: BrokerConfig
    log_dirs: tuple[str, ...]
    sources: dict[str, str]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    problems: tuple[str, ...]


def server_properties(entries: Mapping[str, str]) -> ServerProperties:
    """Translate the keys and values of a file."""
    reader = _Reader({key: value.strip() for key, value in entries.items()})
    for key, default in TOPIC_DEFAULTS.items():
        field = f"log_config.{field_of(default.topic_key)}"
        reader.attempt(key, field, partial(reader.read_topic_default, default))
    for key, field in STORE_KEYS.items():
        reader.attempt(key, f"store_config.{field}", partial(reader.read_store_key, field))
    for key in ("broker.id", "node.id"):
        reader.attempt(key, "store_config.broker_id", partial(reader.read_store_key, "broker_id"))
    for key, field in BROKER_KEYS.items():
        reader.attempt(key, field, partial(reader.read_broker_key, field))
    for key, field in CLUSTER_KEYS.items():
        if reader.entries.get(ZOOKEEPER):
            reader.attempt(key, field, partial(reader.read_broker_key, field))
        elif key in reader.entries:
            reader.ignored.append(key)
    key = "listener.security.protocol.map"
    reader.attempt(key, key.replace(".", "_"), reader.read_protocols)
    for key in ("listeners", "advertised.listeners"):
        if reader.entries.get(key):
            field = key.replace(".", "_")
            reader.attempt(key, field, partial(reader.read_listeners, field))
    reader.compare()
    reader.sort_the_others()
    return reader.result()


class _Reader:
    """Read the keys of one file, and collect the settings and the problems."""

    def __init__(self, entries: dict[str, str]) -> None:
        self.entries = entries
        self.settings: dict[str, Any] = {}
        self.log_config: LogConfig = KAFKA_LOG_CONFIG
        self.store_config: StoreConfig = STORE_CONFIG
        self.sources: dict[str, str] = {}
        self.ignored: list[str] = []
        self.unknown: list[str] = []
        self.problems: list[str] = []

    def attempt(self, key: str, field: str, read: Callable[[str], None]) -> None:
        """If the file has this key, read it.

        If the value cannot be read, add a problem that names the key.
        """
        text = self.entries.get(key)
        if text is None:
            return
        try:
            read(text)
        except (TypeError, ValueError) as error:
            self.problems.append(_named(key, field, text, str(error)))
        else:
            self.sources[field] = key

    def read_topic_default(self, default: Default, text: str) -> None:
        """Read the default of a topic setting, for topics that do not set it themselves."""
        key = default.topic_key
        if KEYS[key].type in (INT, LONG):
            number = _whole(text) * default.unit
            if key == "retention.ms" and number == 0:
                # Kafka allows 0 only in a topic's own settings
                raise ValueError("must be at least 1, or -1 for no limit")
            text = str(max(number, -1) if key == "retention.ms" else number)
        self.log_config = self.log_config.replace(**{field_of(key): value_of(key, text)})

    def read_store_key(self, field: str, text: str) -> None:
        """Read a setting of the store."""
        value = _value_like(getattr(STORE_CONFIG, field), text)
        self.store_config = self.store_config.replace(**{field: value})

    def read_broker_key(self, field: str, text: str) -> None:
        """Read a setting of the broker."""
        value = _value_like(getattr(BrokerConfig, field), text)
        if field in UNLIMITED and isinstance(value, int) and not 0 <= value <= SIZES_MAX:
            value = SIZES_MAX
        self.settings[field] = BrokerConfig.checked(field, value)
        if field == "zookeeper_connect" and text:
            check_zookeeper(text)

    def read_protocols(self, text: str) -> None:
        """Read which listener has which protocol."""
        field = "listener_security_protocol_map"
        parse_protocol_map(text, field)
        self.settings[field] = text.upper()

    def read_listeners(self, field: str, text: str) -> None:
        """Read the listeners for clients. Ignore the listeners for controllers."""
        protocols = self.settings.get("listener_security_protocol_map", "")
        controllers = {name.upper() for name in self.listed("controller.listener.names")}
        kept = []
        for one in parse_endpoints(text, field):
            name = one.name.upper()
            if name in controllers:
                self.ignored.append(f"{field.replace('_', '.')} of {name}")
            else:
                kept.append(str(one._replace(name=name)))
        if not kept:
            raise ValueError("all listeners are for controllers, and none is for clients")
        usual = {one: self.settings[one] for one in ("listeners",) if one in self.settings}
        addresses = usual | {field: ",".join(kept)}
        plain = ",".join(f"{one.name}:{PROTOCOL}" for one in _named_in(addresses))
        # This raises if an address is bad. The needs of the protocols are checked later.
        BrokerConfig(**addresses, listener_security_protocol_map=plain)
        self.settings[field] = addresses[field]
        mapped = parse_protocol_map(protocols, "listener_security_protocol_map")
        if field == "listeners" and all(
            mapped.get(one.name) == one.name for one in _named_in(addresses)
        ):
            # the names of the listeners are already their protocols
            self.settings["listener_security_protocol_map"] = ""

    def compare(self) -> None:
        """Find keys that contradict one another or do not fit a broker. Set the request memory."""
        one, other = self.entries.get("broker.id"), self.entries.get("node.id")
        if one is not None and other is not None and one != other:
            self.problems.append(f"broker.id={one} and node.id={other} must be the same number")
        roles = self.listed("process.roles")
        if roles and "broker" not in roles:
            self.problems.append(
                f"process.roles={','.join(roles)}: this program is a broker, so the roles must "
                "include 'broker'"
            )
        largest = self.settings.get("socket_request_max_bytes", 0)
        if "queued.max.request.bytes" not in self.entries:  # Kafka's default is no limit
            room = max(BrokerConfig.queued_max_request_bytes, largest)
            self.settings["queued_max_request_bytes"] = room
            if room == largest:
                self.sources["queued_max_request_bytes"] = "socket.request.max.bytes"

    def sort_the_others(self) -> None:
        """Sort the keys that configure nothing: refused, ignored and unknown keys."""
        for key, text in self.entries.items():
            if key in KNOWN:
                continue
            if advice := advice_for(key):
                if text:
                    self.problems.append(f"{key}: {advice}")
            elif is_ignored(key):
                self.ignored.append(key)
            else:
                near = difflib.get_close_matches(key, [*KNOWN, *IGNORED], n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.unknown.append(f"{key} is unknown{hint}")

    def listed(self, key: str) -> list[str]:
        """Return the elements of a key whose value is a list, separated by commas."""
        return [part.strip() for part in self.entries.get(key, "").split(",") if part.strip()]

    def result(self) -> ServerProperties:
        """Build the configuration from the keys that were read."""
        settings = self.settings | {
            "log_config": self.log_config, "store_config": self.store_config,
        }  # fmt: skip
        try:
            config = BrokerConfig(**settings)
        except ValueError as error:  # two settings contradict one another
            self.problems.append(dotted_reason(str(error)))
            config = BrokerConfig()
        return ServerProperties(
            config,
            tuple(self.listed("log.dirs") or self.listed("log.dir")),
            self.sources,
            tuple(sorted(self.ignored)),
            tuple(self.unknown),
            tuple(self.problems),
        )


def check_zookeeper(text: str) -> None:
    """Check the servers of ZooKeeper and the path after them, such as `zk1:2181,zk2:2181/cluster`.

    Raises:
        ValueError: the text has another form.
    """
    servers, slash, path = text.partition("/")
    for one in servers.split(","):
        match = SERVER.fullmatch(one.strip())
        if match is None or not 0 < int(match["port"] or 1) <= 65535:
            raise ValueError(
                f"zookeeper_connect: {one.strip()!r} is not of the form HOST:PORT; an example of "
                "the whole value is zk1:2181,zk2:2181/cluster"
            )
    if "," in path:
        raise ValueError(
            f"zookeeper_connect: write the path once, after the last server, not {slash + path!r}"
        )
    if path:
        try:
            check_path(slash + path)
        except ValueError as error:
            raise ValueError(f"zookeeper_connect: {error}") from error


def _named_in(addresses: Mapping[str, str]) -> tuple[Endpoint, ...]:
    return parse_endpoints(addresses.get("listeners", BrokerConfig.listeners), "listeners")


def dotted_reason(reason: str) -> str:
    """Replace the setting's name at the beginning of a reason by its key in the file."""
    match = re.match(r"\w+", reason)
    if match is None or not hasattr(BrokerConfig, match[0]):
        return reason
    return match[0].replace("_", ".") + reason[match.end() :]


def _named(key: str, field: str, text: str, reason: str) -> str:
    """Describe the problem of a key. In the reason, replace the name of the field by the key."""
    names = [field.rpartition(".")[2]]
    if key in TOPIC_DEFAULTS:
        names.append(TOPIC_DEFAULTS[key].topic_key)
    for name in names:
        if reason.startswith(name):
            return key + reason.removeprefix(name)
    return f"{key}={text}: {reason}"


def _whole(text: str) -> int:
    if not WHOLE.fullmatch(text):
        raise ValueError("is not a whole number")
    return int(text)


def _value_like(default: object, text: str) -> object:
    """Convert text to the type of a default. Return text such as "64MiB" unchanged."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError("is neither true nor false")
        return text.lower() == "true"
    if isinstance(default, str):
        return text
    if WHOLE.fullmatch(text):
        return min(int(text), MS_MAX)
    if DECIMAL.fullmatch(text):  # log.cleaner.io.max.bytes.per.second may have a fraction
        return int(min(float(text), MS_MAX))
    return text
