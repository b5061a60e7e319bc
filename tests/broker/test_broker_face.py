"""Test that a broker starts fast, stops cleanly, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import broker as package
from broker import Broker
from logstore import LogClosedError, LogConfig, LogStore, StoreConfig
from mover import ReplicaMover
from support.kafka_client import KafkaClient, batch_of, values_in
from support.places import environment

START_SECONDS_MAX = 0.2
USERS_TESTS = """
import socket

seen = set()

def check(kafka_broker, kafka_broker_session):
    seen.update([kafka_broker.bootstrap_servers, kafka_broker_session.bootstrap_servers])
    for running in (kafka_broker, kafka_broker_session):
        host, port = running.bootstrap_servers.split(":")
        socket.create_connection((host, int(port))).close()

def test_one(kafka_broker, kafka_broker_session):
    check(kafka_broker, kafka_broker_session)

def test_two(kafka_broker, kafka_broker_session):
    check(kafka_broker, kafka_broker_session)
    assert len(seen) == 3
"""


def test_the_public_names() -> None:
    """The public names are exactly the names in this list."""
    assert package.__all__ == ["Broker", "BrokerConfig"]
    with pytest.raises(AttributeError):
        getattr(package, "Server")  # noqa: B009 - the lookup is what is tested


def test_a_temporary_broker_leaves_nothing() -> None:
    """A temporary broker leaves no directory, no thread and no socket."""
    before = set(threading.enumerate())
    with Broker.start() as broker, KafkaClient(broker.bootstrap_servers) as client:
        (path,) = broker.store.log_dirs
        client.create("t")
        assert client.produce("t", batch_of(b"x")).error_code == 0
        assert repr(broker) == f"<Broker {broker.bootstrap_servers}>"
    assert not os.path.exists(path) and "closed" in repr(broker)
    broker.close()
    paused = threading.Event()
    while any(one.name.startswith("broker-") for one in set(threading.enumerate()) - before):
        paused.wait(0.01)
    host, port = broker.bootstrap_servers.split(":")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), 1)


def test_records_and_producers_outlive_a_restart(tmp_path: Path) -> None:
    """Records survive a restart, and a retry from before the restart is still a duplicate."""
    batch = batch_of(b"once", producer=(3, 0, 0))
    for turn in range(2):
        with (
            Broker.start([tmp_path / "a", tmp_path / "b"]) as broker,
            KafkaClient(broker.bootstrap_servers) as client,
        ):
            if not turn:
                client.create("t", 2)
            row = client.produce("t", batch, partition=1)
            assert (row.error_code, row.base_offset) == (0, 0)
            assert values_in(client.fetch("t", 0, 1).records) == [b"once"]
            topics = client.call("Metadata", 12, topics=None).topics
            assert [(topic.name, len(topic.partitions)) for topic in topics] == [("t", 2)]


def test_a_store_that_closes_stops_its_broker(tmp_path: Path) -> None:
    """If the store closes first, clients are disconnected before the logs are closed."""
    store = LogStore.open(tmp_path / "logs")
    broker = Broker.start(store=store)
    with KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        store.close()
        assert client.is_closed_by_broker
    broker.close()
    with pytest.raises(LogClosedError):
        store.log("t", 0)


def test_a_broker_over_a_store_leaves_it_open(tmp_path: Path) -> None:
    """Closing a broker leaves its store open, even if the broker could not start."""
    with LogStore.open(tmp_path / "logs") as store, socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="cannot listen"):
            Broker.start(store=store, config={"listeners": address})
        with pytest.raises(ValueError, match="not both"):
            Broker.start(tmp_path / "other", store=store)
        for _ in range(2):
            with Broker.start(store=store) as broker:
                assert broker.store is store
        store.create("t", 0, config=LogConfig(record_format="kafka")).append(b"x")


def test_two_listeners_have_their_own_addresses() -> None:
    """Clients get the advertised address of the listener to which they connect."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "advertised_listeners": "OUTSIDE://kafka.example.com:19092",
    }
    with Broker.start(config=config) as broker:
        inside, outside = broker.endpoints
        assert broker.bootstrap_servers == f"127.0.0.1:{inside.port},kafka.example.com:19092"
        with KafkaClient(broker.bootstrap_servers) as client:
            (node,) = client.call("Metadata", topics=None).brokers
            assert (node.host, node.port) == ("127.0.0.1", inside.port)
        bound = broker._server.listeners[1].socket.getsockname()[1]
        with KafkaClient(f"127.0.0.1:{bound}") as client:
            (node,) = client.call("Metadata", topics=None).brokers
            assert (node.host, node.port) == tuple(outside[1:])


@pytest.mark.alone
def test_it_is_up_in_a_moment() -> None:
    """The time from the call to the first answer is short."""
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        with Broker.start() as broker, KafkaClient(broker.bootstrap_servers) as client:
            client.call("Metadata", topics=None)
            seconds.append(time.perf_counter() - began)
    assert statistics.median(seconds) < START_SECONDS_MAX


def test_the_fixtures(tmp_path: Path) -> None:
    """A user's tests get a broker per test or per session; the session's end stops both."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["broker.pytest_plugin"]\n')
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_clients_see_the_id_of_the_store(tmp_path: Path) -> None:
    """Clients see the store's cluster id, even if a later configuration does not name it."""
    LogStore.open(tmp_path, config=StoreConfig(broker_id=7)).close()
    with Broker.start(tmp_path) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert [node.node_id for node in client.call("Metadata", topics=None).brokers] == [7]


def test_moves_have_the_threads_of_the_configuration() -> None:
    """All parts of the program share one mover, with the configured number of threads."""
    for given, count in (({}, 2), ({"num_replica_alter_log_dirs_threads": 5}, 5)):
        with Broker.start(config=given) as broker:
            assert ReplicaMover.of(broker.store, 7)._pool.count == count


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error names it before anything is opened."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ImportError, match=r"logstore\[broker\]"):
        Broker.start()


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_the_command_serves_until_a_signal(tmp_path: Path, number: str) -> None:
    """The command prints its address; after a signal, it closes the store and exits with 0."""
    import signal

    command = [
        sys.executable, "-m", "logstore.cli", "broker", "--log-dirs",
        f"{tmp_path / 'a'},{tmp_path / 'b'}", "--listeners", "PLAINTEXT://127.0.0.1:0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("serving 0 partitions at PLAINTEXT://127.0.0.1:")
        with KafkaClient(line.split("//")[1].strip()) as client:
            client.create("t")
            client.produce("t", batch_of(b"x"))
            child.send_signal(getattr(signal, number))
            assert client.is_closed_by_broker
        assert child.wait(20) == 0
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        assert store.recovery_report.was_clean
        assert [record.value for record in store["t", 0]] == [b"x"]


def test_the_command_names_a_wrong_listener(tmp_path: Path) -> None:
    """The exit code for a wrong listener is 2, and nothing is created."""
    command = [
        sys.executable, "-m", "logstore.cli", "broker", "--log-dirs", str(tmp_path / "a"),
        "--listeners", "localhost:9092",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "NAME://HOST:PORT" not in done.stdout
    assert "PLAINTEXT://HOST:PORT" in done.stderr and not (tmp_path / "a").exists()
