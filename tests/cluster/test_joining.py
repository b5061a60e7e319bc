"""Test that a broker joins its cluster in order, or does not start and changes nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.catalog.dir_facts import cluster_of
from broker.config import BrokerConfig
from broker.coordination.continuity import CLUSTER_ID, read_cluster
from broker.coordination.errors import NotConnectedError, StoreWipedError
from broker.coordination.verbs import Session
from broker.server import Broker
from cluster import znodes
from cluster.errors import BrokerIdError, ClusterStartError
from cluster.presence.broker_ids import HOSTS
from cluster.process.joining import join
from cluster.process.store_memory import StoreMemory
from cluster.run.member import ClusterMember
from cluster.serve.cluster_broker import ClusterBroker
from cluster.zookeeper import ZooKeeperStore
from logstore import LogStore
from support.places import fast_directory
from support.replica_nodes import wait_until
from support.zookeeper_process import ZooKeeperProcess, free_port

SECONDS = 60.0


@pytest.fixture
def base() -> Iterator[Path]:
    """Return a directory on tmpfs."""
    with fast_directory() as path:
        yield path


@pytest.fixture
def config(server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore) -> BrokerConfig:
    """Configure a broker of a new cluster."""
    return BrokerConfig(
        zookeeper_connect=server.hosts + zookeeper_store.chroot,
        zookeeper_session_timeout_ms=2_000,
        broker_rack="r1",
    )


@pytest.fixture
def observer(zookeeper_store: ZooKeeperStore) -> Iterator[Session]:
    """Return a session that sees what a broker has written."""
    with zookeeper_store.connect() as session:
        yield session


def pause(seconds: float) -> None:
    """Wait."""
    threading.Event().wait(seconds)


@contextmanager
def serving(base: Path, config: BrokerConfig, name: str = "a") -> Iterator[tuple[int, Broker]]:
    """Run a broker with one log dir."""
    paths = [str(base / name)]
    with (
        join(paths, config, str(base / "records"), pause) as joined,
        LogStore.open(paths, config=config.store_config.replace(broker_id=joined.broker)) as store,
        joined.start(store) as running,
    ):
        yield joined.broker, running


def test_a_new_broker_gets_an_id_and_keeps_it(
    base: Path, config: BrokerConfig, observer: Session
) -> None:
    """The id is in meta.properties and at /brokers/hosts; the registration has the rack."""
    with serving(base, config) as (broker, running):
        assert broker == 1001
        assert cluster_of(running.store) == config.zookeeper_connect
        assert "broker.id=1001\n" in (base / "a" / "meta.properties").read_text()
        host = observer.get(f"{HOSTS}/{socket.gethostname()}")
        found = observer.get(znodes.broker_path(1001))
        assert json.loads(host.data)["broker.id"] == 1001 and host.mzxid < found.czxid
        node = znodes.parse_registration(found.data, found.path, found.czxid, found.mzxid)
        assert node.rack == "r1" and node.endpoints == running.endpoints
        with serving(base, config, "b") as (other, _):
            assert other == 1002  # the id of this host is registered
            assert len(observer.children(znodes.BROKERS)) == 2
    assert observer.children(znodes.BROKERS) == []
    with serving(base, config) as (broker, _):
        assert broker == 1001


def test_a_wiped_zookeeper_is_refused_before_anything_is_written(
    base: Path, config: BrokerConfig, observer: Session
) -> None:
    """The broker does not even write the id of its host."""
    with serving(base, config):
        cluster = read_cluster(observer)
    assert cluster is not None
    observer.delete(CLUSTER_ID)
    observer.delete(f"{HOSTS}/{socket.gethostname()}")
    with (
        pytest.raises(StoreWipedError, match=cluster.cluster_id),
        serving(base, config) as started,
    ):
        raise AssertionError(f"{started} serves")
    assert observer.children(HOSTS) == [] == observer.children(znodes.BROKERS)
    assert read_cluster(observer) is None


def test_the_session_of_a_killed_process_is_ended(
    base: Path, config: BrokerConfig, observer: Session, zookeeper_store: ZooKeeperStore
) -> None:
    """The next process is registered at once, although ZooKeeper would wait ten minutes."""
    with serving(base, config):
        data = observer.get(znodes.broker_path(1001)).data
    with zookeeper_store.connect() as old, LogStore.open(base / "a") as store:
        old.create(znodes.broker_path(1001), data, ephemeral=True)
        StoreMemory(store, 1001).keep_session(old.key)
        store.close()
        with serving(base, config) as (broker, _):
            assert broker == 1001
            found = observer.get(znodes.broker_path(1001))
            assert found.ephemeral_owner not in (0, old.key.session_id)


def test_an_id_of_a_living_broker_is_refused(
    base: Path, config: BrokerConfig, observer: Session
) -> None:
    """The error has the address of that broker; its registration stays."""
    with serving(base, config) as (broker, running):
        store_config = config.store_config.replace(broker_id=7)
        before = observer.get(znodes.broker_path(broker))
        observer.create(znodes.broker_path(7), before.data, ephemeral=True)
        wished = BrokerConfig(
            zookeeper_connect=config.zookeeper_connect,
            zookeeper_session_timeout_ms=400,
            store_config=store_config,
        )
        with (
            pytest.raises(BrokerIdError, match=f"registered by {running.bootstrap_servers}"),
            serving(base, wished, "b") as started,
        ):
            raise AssertionError(f"{started} serves")
        assert observer.children(znodes.BROKERS) == [str(broker), "7"]


def test_no_zookeeper(base: Path) -> None:
    """The error names its address, and no log dirs are created."""
    where = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(ClusterStartError, match=f"ZooKeeper at {where} does not answer"),
        serving(base, BrokerConfig(zookeeper_connect=where)) as started,
    ):
        raise AssertionError(f"{started} serves")
    assert not (base / "a").exists()


def test_a_zookeeper_that_is_wiped_while_the_broker_runs(
    base: Path,
    config: BrokerConfig,
    observer: Session,
    zookeeper_store: ZooKeeperStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker does not register again in its next session."""
    # At its end, the broker would wait 10 s for a controller.
    monkeypatch.setattr(ClusterMember.close, "__defaults__", (0.1,))
    with serving(base, config) as (broker, running):
        observer.delete(CLUSTER_ID)
        (key,) = StoreMemory(running.store, broker).kept_sessions()
        zookeeper_store.connect(key).close()
        wait_until(lambda: "the coordination store has no cluster id" in caplog.text, SECONDS)
        assert observer.children(znodes.BROKERS) == []


def test_a_broker_stops_without_zookeeper(
    base: Path,
    config: BrokerConfig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says that ZooKeeper ends the session later."""
    close = ClusterBroker.close

    def fail(broker: ClusterBroker) -> None:
        close(broker)
        raise NotConnectedError(7)

    monkeypatch.setattr(ClusterBroker, "close", fail)
    with serving(base, config):
        pass
    assert "ZooKeeper ends the session of this broker later" in caplog.text
