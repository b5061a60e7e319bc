"""A broker without a cluster becomes the first of one, with its topics, records and groups."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from broker import Broker
from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.bindings import Operation, ResourceType
from broker.catalog.admin.acls import Acls
from broker.catalog.admin.sole_users import SoleUsers
from broker.catalog.topic_store import TopicStore
from broker.config import BrokerConfig
from cluster import znodes
from cluster.errors import ClusterGrowthError
from cluster.process.growing import adopt, topics_of
from cluster.process.joining import Joined, join
from cluster.registration import NO_BROKER
from cluster.state import LEADER_EPOCH_MAX, parse_state
from cluster.zookeeper import ZooKeeperStore
from logstore import LogStore
from logstore.cli.app import app
from support.guarded_broker import allowing
from support.places import environment, fast_directory
from support.secured import SECRET, USER, SecureClient, scram_users
from support.zookeeper_process import ZooKeeperProcess, free_port

COUNT, SECONDS = 300, 30.0


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.fixture
def config(server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore) -> BrokerConfig:
    return BrokerConfig(
        zookeeper_connect=server.hosts + zookeeper_store.chroot,
        zookeeper_session_timeout_ms=2_000,
        offsets_topic_num_partitions=3,
    )


def paths_of(base: Path) -> list[str]:
    return [str(base / "a"), str(base / "b")]


@contextmanager
def joined(base: Path, config: BrokerConfig) -> Iterator[tuple[Joined, LogStore]]:
    """Join the cluster, and open the store."""
    with (
        join(paths_of(base), config, str(base / "records"), threading.Event().wait) as made,
        LogStore.open(
            paths_of(base),
            config=config.store_config.replace(broker_id=made.broker, log_config=config.log_config),
        ) as store,
    ):
        yield made, store


def fill(base: Path) -> None:
    """Serve the log dirs without a cluster: a topic with settings, records, a group's offset."""
    settings = {"offsets_topic_num_partitions": 3}
    with Broker.start(paths_of(base), settings) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        topic = NewTopic("orders", 3, 1, config={"retention.ms": "777000000"})
        admin.create_topics([topic])["orders"].result(SECONDS)
        produce(servers, range(COUNT))
        consumer = Consumer({**servers, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 1, 42)], asynchronous=False)
        consumer.close()


def produce(servers: dict[str, str], numbers: range) -> None:
    failed: list[object] = []
    producer = Producer({**servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            "orders", b"%d" % number, partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0 and not failed


def values(store: LogStore) -> list[list[int]]:
    return [[int(one.value or b"") for one in store["orders", number]] for number in range(3)]


def test_a_broker_grows_into_a_cluster(
    base: Path, config: BrokerConfig, zookeeper_store: ZooKeeperStore
) -> None:
    """Its clients find the same topic id, settings, records and offsets, and go on."""
    fill(base)
    with joined(base, config) as (found, store):
        topic_id = store["orders", 0].topic_id
        grown = found.grow(store)
        assert grown.new_topics == ["__consumer_offsets", "orders"]
        assert (grown.broker, grown.partition_count) == (found.broker, 6)
    refused = CliRunner().invoke(app, ["broker", "--log-dirs", ",".join(paths_of(base))])
    assert refused.exit_code == 1 and f"--zookeeper {config.zookeeper_connect}" in refused.output
    done = CliRunner().invoke(app, command(base, config))  # again, as after an interruption
    assert done.exit_code == 0, done.output
    assert done.output.startswith("broker 0 leads 6 partitions; 0 topics new in the cluster\n")
    with joined(base, config) as (found, store), found.start(store) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        produce(servers, range(COUNT, COUNT + 30))
        assert values(store) == [[*range(number, COUNT + 30, 3)] for number in range(3)]
        assert store["orders", 0].topic_id == topic_id
        assert store["orders", 0].leader_epoch > 0
        consumer = Consumer({**servers, "group.id": "readers"})
        (committed,) = consumer.committed([TopicPartition("orders", 1)], SECONDS)
        consumer.close()
        assert committed.offset == 42
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        admin = AdminClient(servers)
        settings = admin.describe_configs([resource])[resource].result(SECONDS)
        assert settings["retention.ms"].value == "777000000"
        assert settings["min.insync.replicas"].value == "1"
        with zookeeper_store.connect() as session:
            path = znodes.state_path("orders", 0)
            state = parse_state(session.get(path).data, path)
        assert state.leader == found.broker and [*state.isr] == [found.broker]
        assert state.unclean_epoch == -1  # the election lost nothing


def command(base: Path, config: BrokerConfig) -> list[str]:
    """Give the words of the command, with its options."""
    return [
        "--log-dirs", ",".join(paths_of(base)), "cluster", "grow",
        "--zookeeper", config.zookeeper_connect, "--records", str(base / "records"),
    ]  # fmt: skip


def test_the_command_needs_a_zookeeper(base: Path, config: BrokerConfig) -> None:
    """And one that answers; then nothing was changed, and the broker can go on alone."""
    LogStore.open(paths_of(base)).close()
    words = command(base, config)
    assert "name the ZooKeeper" in CliRunner().invoke(app, words[:4]).output
    words[5] = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and "does not answer" in done.output
    fill(base)


def test_log_dirs_without_a_store_do_not_grow(base: Path, config: BrokerConfig) -> None:
    """They may be a typing error; nothing is created."""
    done = CliRunner().invoke(app, command(base, config))
    assert done.exit_code == 1 and "there is no store in" in done.output
    assert not any(Path(path).exists() for path in paths_of(base))


def test_a_cluster_with_another_broker_is_refused(
    base: Path, config: BrokerConfig, zookeeper_store: ZooKeeperStore
) -> None:
    """Nothing is written: the path of the cluster may be wrong."""
    fill(base)
    with zookeeper_store.connect() as session:
        for path in (*znodes.PARENTS, znodes.broker_path(5)):
            session.create(path)
        done = CliRunner().invoke(app, command(base, config))
        assert done.exit_code == 1 and "already has these brokers: 5. Only the" in done.output
        assert session.children(znodes.TOPICS) == []


def test_later_epochs_than_those_of_the_logs(
    base: Path, config: BrokerConfig, zookeeper_store: ZooKeeperStore
) -> None:
    """A record of the cluster never has an epoch of an earlier record."""
    fill(base)
    with LogStore.open(paths_of(base)) as store:
        store["orders", 2].leader_epoch = 8
        store["orders", 2].append(b"8")
    with joined(base, config) as (found, store):
        assert {topic.record.name: topic.epochs for topic in topics_of(store)}["orders"][2] == 8
        found.grow(store)
    with zookeeper_store.connect() as session:
        path = znodes.state_path("orders", 2)
        assert parse_state(session.get(path).data, path).leader_epoch > 8


def test_another_topic_of_the_name_stays(
    base: Path, config: BrokerConfig, zookeeper_store: ZooKeeperStore
) -> None:
    """The error names it."""
    fill(base)
    with joined(base, config) as (found, store), zookeeper_store.connect() as session:
        for path in (*znodes.PARENTS, znodes.CONTROLLER_EPOCH):
            session.create(path, b"0")
        data = znodes.encode_topic("A" * 21 + "Q", {0: [7]})
        session.create(znodes.topic_path("orders"), data)
        with pytest.raises(ClusterGrowthError, match=r"another topic orders, with the id AAAA"):
            found.grow(store)
        assert session.get(znodes.topic_path("orders")).data == data


def test_partitions_of_different_ids_are_refused(base: Path, config: BrokerConfig) -> None:
    """Nothing is written: such a topic has no one id that the cluster could know."""
    with LogStore.open(paths_of(base)) as store:
        log_config = config.log_config
        for number in range(2):
            store.create("mixed", number, config=log_config, topic_id=bytes([number + 1]) * 16)
        with pytest.raises(ClusterGrowthError, match="mixed has partitions of different topic ids"):
            topics_of(store)


def test_regression_a_log_that_leaves_no_leader_epoch_is_refused(
    base: Path, config: BrokerConfig
) -> None:
    """Nothing is written: no replica of the partition could ever be elected."""
    with LogStore.open(paths_of(base)) as store:
        log = store.create("late", 0, config=config.log_config, topic_id=bytes([1]) * 16)
        log.leader_epoch = LEADER_EPOCH_MAX
        log.append(b"1")
        with pytest.raises(ClusterGrowthError, match="late-0 leaves no leader epoch: 2147483646"):
            topics_of(store)


def test_states_are_of_the_present_registration(
    base: Path, config: BrokerConfig, zookeeper_store: ZooKeeperStore
) -> None:
    """The broker is the only member of the ISR, and nobody leads yet."""
    fill(base)

    with LogStore.open(paths_of(base)) as store, zookeeper_store.connect() as session:
        for path in (*znodes.PARENTS, znodes.CONTROLLER_EPOCH, znodes.broker_path(5)):
            session.create(path, b"3")
        assert adopt(session, 5, topics_of(store)) == ["__consumer_offsets", "orders"]
        state = parse_state(session.get(znodes.state_path("orders", 1)).data, "")
        admitted = session.get(znodes.broker_path(5)).mzxid
        assert (state.leader, state.isr, state.leader_epoch) == (NO_BROKER, {5: admitted}, 0)
        assert adopt(session, 5, topics_of(store)) == []


AUTHORIZED = """
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
listeners=SASL_PLAINTEXT://127.0.0.1:9092
advertised.listeners=SASL_PLAINTEXT://kafka.example.com:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
sasl.inter.broker.credentials.file={own}
offsets.topic.num.partitions=3
"""


def fill_with_rights(base: Path) -> Path:
    """Let alice read one of two topics; give the file of the broker's configuration."""
    fill(base)
    with LogStore.open(paths_of(base)) as store:
        store.create("hidden", 0, config=BrokerConfig().log_config)
        users, recorded = SoleUsers(store), TopicStore.of(store)
        users.change(scram_users())
        acl = allowing(Operation.DESCRIBE, ResourceType.TOPIC, "orders")
        Acls(recorded.documents, AuthorizerSettings(), 10).create([acl])
        recorded.release()
        users.close()
    own, file = base / "own", base / "server.properties"
    own.write_text(f"{USER}:{SECRET}\n")
    own.chmod(0o600)
    file.write_text(AUTHORIZED.format(own=own))
    return file


def check_rights(base: Path, config: BrokerConfig) -> None:
    """Let alice log in at a broker of the cluster, and see what she may see."""
    secured = replace(
        config, authorizer_class_name="AclAuthorizer", super_users="User:admin",
        listeners="SASL_PLAINTEXT://127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256",
        security_inter_broker_protocol="SASL_PLAINTEXT",
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256",
        sasl_inter_broker_credentials_file=str(base / "own"),
    )  # fmt: skip
    with joined(base, secured) as (found, store), found.start(store) as broker:
        assert len(store) == 7
        with SecureClient(broker.bootstrap_servers) as client:
            assert not client.log_in("SCRAM-SHA-256").error_code
            topics = client.call("Metadata", topics=None).topics
    assert [topic.name for topic in topics] == ["orders"]


def test_rights_go_along(base: Path, config: BrokerConfig) -> None:
    """The command says how much it took along; a second run takes nothing."""
    file = fill_with_rights(base)
    words = [*command(base, config), "--config", str(file)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "resources with ACLs that were taken along: 2\n" in done.output
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "taken along" not in done.output


def test_a_growth_that_is_killed_is_continued(base: Path, config: BrokerConfig) -> None:
    """The next run of the command takes over the session, and does the rest.

    The first kill is after the ACLs are written, and the second one is between two topics.
    """
    file = fill_with_rights(base)
    words = [*command(base, config), "--config", str(file)]
    for number in (3, 4):
        program = [sys.executable, "-m", "support.killed_growth", str(number), *words]
        settings = {**environment(), "TMPDIR": str(base)}  # a killed process leaves a file there
        killed = subprocess.run(program, env=settings, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "; 2 topics new in the cluster" in done.output, done.output
    check_rights(base, config)
