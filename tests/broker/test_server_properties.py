"""Test that a file of Kafka has the same meaning here, or that the user gets a message."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config import KAFKA_LOG_CONFIG, SIZES_MAX, STORE_CONFIG, BrokerConfig
from broker.ignored_keys import IGNORED, advice_for, is_ignored
from broker.properties import parse_properties
from broker.server_properties import CLUSTER_KEYS, KNOWN, ServerProperties, server_properties

# The keys of Kafka 4.1: type and default, from its `AbstractKafkaConfig.CONFIG_DEF`.
KAFKA: dict[str, tuple[str, str | None]] = json.loads(
    Path(__file__).with_name("kafka_broker_keys.json").read_text(encoding="utf-8")
)
DOCUMENT = Path(__file__).parents[2] / "docs" / "BROKER.md"
DAY_MS = 24 * 3600 * 1000

# The keys that Kafka 4.1 ships in config/server.properties.
SHIPPED = r"""
# --- what this process is ---
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093

! --- sockets ---
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\
    SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1

offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
# The keys of the last releases with ZooKeeper, with values of an operator.
WITH_ZOOKEEPER = r"""
broker.id : 3
log.dirs = /disk1/kafka, /disk2/kafka
num.partitions 12
log.retention.hours=72
log.segment.bytes=536870912
log.retention.check.interval.ms=60000
log.flush.interval.messages=10000
log.flush.interval.ms=1000
log.cleaner.enable=true
log.cleaner.dedupe.buffer.size=134217728
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=3000
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
inter.broker.protocol.version=3.9
"""


def read(text: str) -> ServerProperties:
    """Read a file that has no problem."""
    found = server_properties(parse_properties(text.encode()))
    assert (found.problems, found.unknown) == ((), ())
    return found


def problem_of(text: str) -> str:
    """Read a file that has one problem."""
    (problem,) = server_properties(parse_properties(text.encode())).problems
    return problem


def test_the_file_of_kafka_4_is_read_as_it_is() -> None:
    """Its listener for controllers, and keys without a meaning for one broker, are ignored."""
    found = read(SHIPPED)
    assert found.log_dirs == ("/tmp/kraft-combined-logs",)
    store_config = STORE_CONFIG.replace(broker_id=1, num_recovery_threads_per_data_dir=1)
    assert found.config == BrokerConfig(
        listeners="PLAINTEXT://:9092",
        advertised_listeners="PLAINTEXT://localhost:9092",
        store_config=store_config,
    )
    assert found.ignored == (
        "advertised.listeners of CONTROLLER", "controller.quorum.bootstrap.servers",
        "inter.broker.listener.name", "listeners of CONTROLLER", "num.io.threads",
        "num.network.threads", "offsets.topic.replication.factor",
        "share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
        "transaction.state.log.min.isr", "transaction.state.log.replication.factor",
    )  # fmt: skip


def test_a_file_of_the_time_of_zookeeper_is_read() -> None:
    """The settings of an operator are read, with the key that each comes from."""
    found = read(WITH_ZOOKEEPER)
    assert found.log_dirs == ("/disk1/kafka", "/disk2/kafka")
    assert found.config == BrokerConfig(
        num_partitions=12,
        zookeeper_connect="localhost:2181",
        default_replication_factor=3,
        min_insync_replicas=2,
        auto_create_topics_enable=False,
        group_initial_rebalance_delay_ms=3000,
        log_config=KAFKA_LOG_CONFIG.replace(
            retention_ms=3 * DAY_MS, segment_bytes="512MiB", flush_messages=10_000, flush_ms=1000
        ),
        store_config=STORE_CONFIG.replace(
            broker_id=3,
            log_cleaner_dedupe_buffer_size="128MiB",
            log_retention_check_interval_ms=60_000,
        ),
    )
    assert found.sources["log_config.retention_ms"] == "log.retention.hours"
    assert found.sources["store_config.broker_id"] == "broker.id"
    assert found.sources["min_insync_replicas"] == "min.insync.replicas"
    assert found.ignored == ("inter.broker.protocol.version", "zookeeper.connection.timeout.ms")


def test_without_zookeeper_the_keys_of_clusters_are_ignored() -> None:
    """With `zookeeper.connect`, a wrong value of such a key is a problem."""
    text = "broker.rack=1\nmin.insync.replicas=2\nunclean.leader.election.enable=true\n"
    found = read(text + "zookeeper.connect=\n")
    assert found.config == BrokerConfig()
    assert found.ignored == (
        "broker.rack", "min.insync.replicas", "unclean.leader.election.enable", "zookeeper.connect",
    )  # fmt: skip
    text += "zookeeper.connect=zk:2181/c\n"
    config = read(text).config
    assert (config.broker_rack, config.unclean_leader_election_enable) == ("1", True)
    problem = problem_of(text + "zookeeper.session.timeout.ms=0\n")
    assert problem.startswith("zookeeper.session.timeout.ms=0 is not in 1..")


@pytest.mark.parametrize(
    "text", ["z", "zk1:2181,zk2:2181/c", "zk1:2181, zk2:2181", "[::1]:2181/a/b", "10.0.0.1", "z/"]
)
def test_servers_of_zookeeper_are_accepted(text: str) -> None:
    """A port may be missing, and there may be a path after the last server."""
    assert read(f"zookeeper.connect={text}\n").config.zookeeper_connect == text


def test_each_key_of_kafka_is_of_one_kind() -> None:
    """Each key has a meaning, is ignored, or is refused."""
    for key in KAFKA:
        assert key in KNOWN or is_ignored(key) or advice_for(key), key
    assert not any(key in IGNORED for key in KNOWN)
    assert not any(map(advice_for, IGNORED))


def test_the_defaults_of_kafka_are_accepted() -> None:
    """The configuration equals that without a file, except the differences in BROKER.md."""
    text = {key: row[1] for key, row in KAFKA.items() if row[1] is not None and key in KNOWN}
    found = server_properties(text)
    assert (found.problems, found.unknown) == ((), ())
    assert {*found.ignored} == {*CLUSTER_KEYS} & {*text}  # the file has no zookeeper.connect
    assert found.config == replace(
        BrokerConfig(),
        listeners="PLAINTEXT://:9092",
        sasl_enabled_mechanisms="GSSAPI",
        ssl_keystore_type="JKS",
        ssl_truststore_type="JKS",
        group_initial_rebalance_delay_ms=3000,
        group_max_size=SIZES_MAX,
        group_consumer_max_size=SIZES_MAX,
        max_connections=SIZES_MAX,
        max_connections_per_ip=SIZES_MAX,
        queued_max_request_bytes=SIZES_MAX,
        store_config=STORE_CONFIG.replace(
            log_cleaner_dedupe_buffer_size="128MiB",
            log_cleaner_io_max_bytes_per_second=2**62,
            log_flush_scheduler_interval_ms=2**62,
        ),
    )


def test_each_documented_key_is_accepted() -> None:
    """These are the keys in the table of settings, and in the section about the file."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = re.search(r"^## Settings\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    section = re.search(r"^### A file of Kafka\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    assert table and section
    names = [
        name.replace("_", ".")
        for row in re.findall(r"^\| (`.*?) \|", table[1], re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", row)
    ]
    assert len(names) > 20
    for name in names:
        assert name in KNOWN or name in ("log.config", "store.config"), name
    keys = re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=[^`]*)?`", section[1])
    assert {*KAFKA} & {*KNOWN} <= {*keys, "listeners"}
    for key in keys:
        assert key in KNOWN or key == "server.properties" or is_ignored(key) or advice_for(key), key


PRECEDENCE = [
    ("log.retention.hours=1", "retention_ms", 3_600_000),
    ("log.retention.minutes=2\nlog.retention.hours=1", "retention_ms", 120_000),
    ("log.retention.ms=5\nlog.retention.minutes=2\nlog.retention.hours=1", "retention_ms", 5),
    ("log.retention.hours=-1", "retention_ms", None),
    ("log.retention.ms=-1\nlog.retention.hours=1", "retention_ms", None),
    ("log.retention.bytes=-1", "retention_bytes", None),
    ("log.roll.hours=2", "segment_ms", 7_200_000),
    ("log.roll.ms=9\nlog.roll.hours=2", "segment_ms", 9),
    ("log.flush.scheduler.interval.ms=2000", "flush_ms", 2000),
    ("log.flush.interval.ms=7\nlog.flush.scheduler.interval.ms=2000", "flush_ms", 7),
    ("log.flush.interval.messages=9223372036854775807", "flush_messages", None),
    ("log.cleanup.policy=delete, compact", "cleanup_policy", "compact,delete"),
    ("log.cleaner.min.cleanable.ratio=0.25", "min_cleanable_dirty_ratio", 0.25),
    ("compression.type=lz4", "encoded_compression_type", "lz4"),
    ("message.max.bytes= 2000000 \t", "max_message_bytes", 2_000_000),
    ("log.message.timestamp.type=LogAppendTime", "message_timestamp_type", "LogAppendTime"),
]


@pytest.mark.parametrize(("text", "field", "value"), PRECEDENCE)
def test_defaults_of_topics_have_kafkas_precedence(text: str, field: str, value: object) -> None:
    """The smaller unit wins, wherever it is in the file; a number below 0 means no limit."""
    for lines in (text, "\n".join(reversed(text.splitlines()))):
        assert getattr(read(lines).config.log_config, field) == value


WRONG = [
    ("num.partitions=0", "num.partitions=0 is not in 1.."),
    ("num.partitions=three", "num.partitions: 'three' is not"),
    ("log.segment.bytes=1_000_000", "log.segment.bytes=1_000_000: is not a whole number"),
    ("log.segment.bytes=", "log.segment.bytes=: is not a whole number"),
    ("log.segment.bytes=5", "log.segment.bytes=5 is not in"),
    ("log.retention.ms=0", "log.retention.ms=0: must be at least 1, or -1"),
    ("log.roll.hours=0", "log.roll.hours=0 is not in"),
    ("log.cleanup.policy=keep", "log.cleanup.policy='keep' is unknown"),
    ("log.message.timestamp.type=None", "log.message.timestamp.type='None' is unknown"),
    ("log.cleaner.min.cleanable.ratio=2", "log.cleaner.min.cleanable.ratio=2.0 is not"),
    ("compression.type=lzma", "compression.type='lzma' is none of producer, uncompressed"),
    ("auto.create.topics.enable=yes", "auto.create.topics.enable=yes: is neither true nor false"),
    ("log.cleaner.enable=1", "log.cleaner.enable=1: is neither true nor false"),
    ("max.open.files=0", "max.open.files=0 is not in"),
    ("broker.id=-2", "broker.id=-2 is not in"),
    ("broker.id=1\nnode.id=2", "broker.id=1 and node.id=2 must be the same"),
    ("process.roles=controller", "process.roles=controller: this program is a broker"),
    ("listeners=localhost:9092", "listeners: 'localhost:9092' is not of the form"),
    ("listeners=A://:1,a://:2", "listeners: two listeners have the same name"),
    ("listeners=SSL://:9093", "ssl.keystore.location: a listener with TLS needs it; use PEM files"),
    ("listeners=A://:1\nlistener.security.protocol.map=A:SASL_SSL", "ssl.keystore.location: a "),
    ("listeners=PLAINTEXT://:1\nlistener.security.protocol.map=PLAINTEXT:SSL", "ssl.keystore.loc"),
    (
        "listeners=A://:1\nlistener.security.protocol.map=B:SSL",
        "listener.security.protocol.map: the listener A is missing",
    ),
    (
        "listeners=A://:1\nlistener.security.protocol.map=A:TLS",
        "listener.security.protocol.map: 'TLS' is not one of PLAINTEXT, SSL,",
    ),
    ("listener.security.protocol.map=A", "listener.security.protocol.map: 'A' is not of the form"),
    (
        "listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=GSSAPI",
        "sasl.enabled.mechanisms: 'GSSAPI' is not one of PLAIN, SCRAM-SHA-256",
    ),
    ("listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=PLAIN", "sasl.users.file: the mech"),
    (
        "ssl.keystore.type=JKS\nssl.keystore.location=/etc/kafka.jks",
        "ssl.keystore.type=JKS is not supported; use PEM files; to convert a JKS file: keytool",
    ),
    ("ssl.client.auth=always", "ssl.client.auth: 'always' is not one of none, requested, "),
    ("ssl.client.auth=required", "ssl.truststore.location: certificates of clients need it"),
    ("ssl.enabled.protocols=TLSv1.1", "ssl.enabled.protocols: 'TLSv1.1' is not one of TLSv1.2, "),
    ("listeners=C://:1\ncontroller.listener.names=C", "listeners=C://:1: all listeners are for"),
    ("advertised.listeners=B://h:1", "advertised.listeners: there is no listener 'B'"),
    (
        "zookeeper.connect=z:1\nsecurity.inter.broker.protocol=SSL",
        "security.inter.broker.protocol: no listener has the protocol SSL",
    ),
    (
        "zookeeper.connect=z:1\ninter.broker.listener.name=B",
        "inter.broker.listener.name: there is no listener 'B'",
    ),
    (
        "zookeeper.connect=z:1\nlisteners=SASL_PLAINTEXT://:1\n"
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.inter.broker.credentials.file: the listener SASL_PLAINTEXT between brokers has SASL",
    ),
    ("zookeeper.connect=:2181", "zookeeper.connect: ':2181' is not of the form HOST:PORT; an ex"),
    ("zookeeper.connect=z:2181,", "zookeeper.connect: '' is not of the form HOST:PORT"),
    ("zookeeper.connect=z:70000/a", "zookeeper.connect: 'z:70000' is not of the form"),
    ("zookeeper.connect=z:1/a//b", "zookeeper.connect: '/a//b' is not the path of a znode"),
    ("zookeeper.connect=z:1/a,y:1/a", "zookeeper.connect: write the path once, after the last"),
    ("queued.max.request.bytes=1024", "queued.max.request.bytes=1024 must not be less than"),
]


@pytest.mark.parametrize(("text", "start"), WRONG)
def test_a_problem_begins_with_its_key(text: str, start: str) -> None:
    """The problem also says what is wrong with the value."""
    assert problem_of(text).startswith(start)


REFUSED = [
    "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key", "ssl.cipher.suites",
    "sasl.jaas.config", "sasl.kerberos.service.name", "listener.name.inside.ssl.client.auth",
    "listener.name.inside.ssl.key.password", "listener.name.inside.scram-sha-256.sasl.jaas.config",
    "create.topic.policy.class.name", "delegation.token.secret.key",
    "config.providers",
]  # fmt: skip


@pytest.mark.parametrize("key", REFUSED)
def test_a_promise_of_protection_is_refused(key: str) -> None:
    """The message does not show the value, which may be a secret. An empty value is accepted."""
    problem = problem_of(f"{key}=hush-hush")
    assert problem.startswith(f"{key}: ") and "hush" not in problem
    assert any(word in problem for word in ("remove", "write"))  # it says what to do
    assert read(f"{key}=").ignored == ()


def test_an_authorizer_of_kafka_means_the_one_of_this_broker() -> None:
    """Another class would decide in another way, so it is refused."""
    read = server_properties({
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root; User:CN=b1,O=c",
        "allow.everyone.if.no.acl.found": "true",
    })  # fmt: skip
    settings = read.config.authorizer
    assert not read.problems and settings is not None
    assert settings.super_users == {"User:root", "User:CN=b1,O=c"} and settings.allows_if_no_acl
    assert server_properties({}).config.authorizer is None
    other = problem_of("authorizer.class.name=org.example.Mine")
    assert other.startswith("authorizer.class.name=org.example.Mine is not one of AclAuthorizer")
    assert problem_of("super.users=root").startswith("super.users: 'root' is not a principal")


def test_all_problems_are_found_at_once() -> None:
    """Settings with problems have their defaults."""
    found = server_properties({"num.partitions": "0", "log.roll.ms": "x", "group.max.size": "7"})
    assert [problem.split("=")[0] for problem in found.problems] == [
        "log.roll.ms", "num.partitions",
    ]  # fmt: skip
    assert found.config == BrokerConfig(group_max_size=7)


def test_an_unknown_key_is_reported_with_the_nearest_one() -> None:
    """The nearest key is shown even if it is an ignored key, or is a key of a cluster."""
    found = server_properties({
        "num.partition": "3", "num.io.thread": "8", "xyzzy": "1", "zookeeper.conect": "z:2181",
        "replica.lag.time.ms": "1", "transaction.max.timeout": "1", "group.consumer.sizes": "1",
    })  # fmt: skip
    assert not (found.problems or found.ignored)
    assert found.unknown == (
        "num.partition is unknown; did you mean num.partitions?",
        "num.io.thread is unknown; did you mean num.io.threads?",
        "xyzzy is unknown",
        "zookeeper.conect is unknown; did you mean zookeeper.connect?",
        "replica.lag.time.ms is unknown; did you mean replica.lag.time.max.ms?",
        "transaction.max.timeout is unknown; did you mean transaction.max.timeout.ms?",
        "group.consumer.sizes is unknown; did you mean group.consumer.max.size?",
    )


def test_a_larger_request_gets_more_room_unless_the_file_limits_it() -> None:
    """Kafka's default for the request memory has no limit."""
    assert read("socket.request.max.bytes=1000000000").config.queued_max_request_bytes == 10**9
    assert read("queued.max.request.bytes=-1").config.queued_max_request_bytes == SIZES_MAX
    assert read("connections.max.idle.ms=-1").config.connections_max_idle_ms == SIZES_MAX


def test_log_dirs_come_before_log_dir() -> None:
    """This is the order of Kafka; empty entries are ignored."""
    assert read("log.dir=/a\nlog.dirs=/b, /c,").log_dirs == ("/b", "/c")
    assert read("log.dir=/a\nlog.dirs=").log_dirs == ("/a",)
    assert read("").log_dirs == ()


def test_listeners_are_named_in_capitals() -> None:
    """As in Kafka, protocols may also be in small letters."""
    text = "listeners=inside://:1\nlistener.security.protocol.map=inside:plaintext"
    assert read(text).config.listeners == "INSIDE://:1"
