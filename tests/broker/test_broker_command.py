"""Test `logstore broker --config FILE`, and its forecast `--check`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.catalog.dir_facts import cluster_of, remember_cluster
from broker.net.readiness import notify
from logstore import LogStore, StoreConfig
from logstore.cli.app import app
from support.kafka_client import KafkaClient
from support.places import environment

FILE = """
node.id=4
listeners=INSIDE://127.0.0.1:0,CONTROLLER://:9093
listener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={a},{b}
log.retention.hours=24
num.partitions=3
num.partition=5
num.io.threads=8
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a file of Kafka with two new log dirs."""
    path = tmp_path / "server.properties"
    path.write_text(FILE.format(a=tmp_path / "a", b=tmp_path / "b"))
    return path


def broker(*arguments: object, log_dirs: str | None = None) -> Result:
    """Run the command in this process."""
    variables = {"LOGSTORE_LOG_DIRS": log_dirs}
    return CliRunner(env=variables).invoke(app, ["broker", *map(str, arguments)])


def checked(*arguments: object, code: int = 0, log_dirs: str | None = None) -> dict[str, Any]:
    """Run a check; return the lines by kind and name."""
    done = broker(*arguments, "--check", "--format", "json", log_dirs=log_dirs)
    assert done.exit_code == code, done.output
    return {f"{line['kind']} {line['name']}": line for line in json.loads(done.stdout)}


def test_a_check_says_what_a_start_would_do(file: Path, tmp_path: Path) -> None:
    """A check shows what a start would do, and creates nothing."""
    lines = checked("--config", file)
    retention = lines["setting log_config.retention_ms"]
    assert (retention["value"], retention["default"]) == (24 * 3600 * 1000, 7 * 24 * 3600 * 1000)
    assert retention["source"] == f"{file}: log.retention.hours"
    assert lines["setting num_partitions"]["value"] == 3
    assert lines["setting store_config.broker_id"]["source"] == f"{file}: node.id"
    for name in "ab":
        line = lines[f"log dir {tmp_path / name}"]
        assert line["value"] == "will be created for broker 4"
        assert line["source"] == f"{file}: log.dirs"
    assert "listener INSIDE://127.0.0.1:0" in lines and "ignored num.io.threads" in lines
    assert "unknown num.partition is unknown; did you mean num.partitions?" in lines
    assert "ignored listeners of CONTROLLER" in lines and len(lines) == 9
    assert os.listdir(tmp_path) == ["server.properties"]


def test_options_win_over_the_file_and_the_file_over_the_environment(
    file: Path, tmp_path: Path
) -> None:
    """Options win over the file, and the file over the environment; each line names its source."""
    other = str(tmp_path / "other")
    lines = checked("--config", file, log_dirs=other)
    assert f"log dir {other}" not in lines
    lines = checked(
        "--config", file, "--log-dirs", other, "--listeners", "PLAINTEXT://:1",
        "--advertised-listeners", "PLAINTEXT://h:2",
    )  # fmt: skip
    assert lines[f"log dir {other}"]["source"] == "--log-dirs"
    assert lines["listener PLAINTEXT://:1"]["source"] == "--listeners"
    assert lines["listener PLAINTEXT://:1"]["value"] == "clients get PLAINTEXT://h:2"
    lines = checked(log_dirs=other)
    assert lines[f"log dir {other}"]["source"] == "LOGSTORE_LOG_DIRS"
    assert lines["listener PLAINTEXT://127.0.0.1:9092"]["source"] == "default"
    assert len(lines) == 2


def test_a_check_of_a_broker_of_a_cluster(file: Path, tmp_path: Path) -> None:
    """The check does not ask ZooKeeper, so it does not know an id that ZooKeeper would give."""
    options = ("--zookeeper", "zk:1/c", "--rack", "7")
    lines = checked("--config", file, "--broker-id", 5, *options)
    assert lines[f"log dir {tmp_path / 'a'}"]["value"] == "will be created for broker 5"
    assert lines["setting store_config.broker_id"]["source"] == "--broker-id"
    assert lines["setting zookeeper_connect"]["value"] == "zk:1/c"
    assert lines["setting broker_rack"]["source"] == "--rack"
    lines = checked("--log-dirs", tmp_path / "a", *options)
    value = lines[f"log dir {tmp_path / 'a'}"]["value"]
    assert value == "will be created for an id that ZooKeeper gives"


def test_a_broker_of_a_cluster_does_not_serve_alone(tmp_path: Path) -> None:
    """The error names the ZooKeeper of the cluster, also if the other log dir is new."""
    with LogStore.open(tmp_path / "a", config=StoreConfig(broker_id=3)) as store:
        remember_cluster(store, "zk:2181/demo")
        assert cluster_of(store) == "zk:2181/demo"
    refused = broker("--log-dirs", f"{tmp_path / 'a'},{tmp_path / 'b'}", "--broker-id", 3)
    assert refused.exit_code == 1, refused.output
    assert "belong to broker 3 of a cluster: start the broker with --zookeeper zk:2181/demo" in (
        refused.output
    )
    both = broker("--log-dirs", tmp_path / "a", "--alone", "--zookeeper", "zk:1")
    assert both.exit_code == 2 and "--alone contradicts" in both.output
    command = [sys.executable, "-m", "logstore.cli", "broker", "--log-dirs", str(tmp_path / "a")]
    command += ["--alone", "--listeners", "PLAINTEXT://127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("serving 0 partitions at PLAINTEXT://127.0.0.1:")
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def test_a_check_finds_every_problem(file: Path, tmp_path: Path) -> None:
    """A check finds all problems of the file and of the log dirs; its exit code is 1."""
    with file.open("a") as more:
        more.write("num.partitions=0\nssl.keystore.password=k\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text(
        "version=0\ncluster.id=C4JkCXRkTBWsFtvMRaEO6g\n"
    )
    lines = checked("--config", file, code=1)
    problems = [name for name in lines if name.startswith("problem ")]
    assert [name.split()[1] for name in problems] == [
        "num.partitions=0", "ssl.keystore.password:", "log",
    ]  # fmt: skip
    assert "this is the log dir of a Kafka broker" in problems[2]
    text = broker("--config", file, "--check").stdout.splitlines()
    assert text[-4].startswith("problem: num.partitions=0 is not in")
    assert text[-1] == "unknown: num.partition is unknown; did you mean num.partitions?"
    assert all(len(line) < 200 for line in text if line.startswith("log dir"))
    done = broker("--config", file)
    assert done.exit_code == 2 and "num.partitions=0 is not in 1.." in done.output
    assert "ssl.keystore.password" in done.output and not (tmp_path / "b").exists()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """The error says whether it is the port of a listener, of the page or of the metrics."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        free = ("--listeners", "PLAINTEXT://127.0.0.1:0")
        for options, what in (
            (("--listeners", f"PLAINTEXT://{where}"), f"the listener PLAINTEXT://{where}"),
            ((*free, "--http", where), f"the page at http://{where}"),
            ((*free, "--metrics-port", where.split(":")[1]), f"the metrics at http://{where}"),
        ):
            done = broker("--log-dirs", tmp_path / "a", *options)
            assert done.exit_code == 1
            assert done.stderr == f"error: {what}: cannot listen: Address already in use\n"


def test_wrong_usage_is_2(file: Path, tmp_path: Path) -> None:
    """The exit code is 2 without a file, with an unreadable file, or without log dirs."""
    assert broker("--config", tmp_path / "none", "--check").exit_code == 2
    assert broker("--check").exit_code == 2
    file.write_text("a=\\u12")
    done = broker("--config", file, "--check")
    assert done.exit_code == 2 and "line 1" in done.output and str(file) in done.output


def test_a_check_says_whose_the_log_dirs_are(file: Path, tmp_path: Path) -> None:
    """Log dirs of another broker are a problem, even if the file says 0; their owner is none."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    LogStore.open(dirs, config=StoreConfig(broker_id=4)).close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with LogStore.open(dirs[:2], read_only=True) as store:
        whose = f"belongs to store {store.cluster_id}, broker 4"
    assert checked("--config", file)[f"log dir {dirs[0]}"]["value"] == whose
    file.write_text(file.read_text().replace("node.id=4", "node.id=0"))
    (name,) = (name for name in checked("--config", file, code=1) if name.startswith("problem"))
    assert "broker id 4 is recorded, but 0 is configured" in name
    assert broker("--config", file).exit_code == 1
    file.write_text(file.read_text().replace("node.id=0", ""))
    lines = checked("--config", file, "--log-dirs", dirs[0], code=1)
    assert any(name.endswith("is not in the list of log dirs") for name in lines)
    before[file] = file.stat().st_mtime_ns
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with LogStore.open(dirs):
        lines = checked("--config", file)
        assert f"note process {os.getpid()} has the store open" in lines


def test_an_empty_log_dir_in_a_store_is_a_problem(file: Path, tmp_path: Path) -> None:
    """A start would leave an empty log dir out, so the check reports a problem."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    LogStore.open(dirs, config=StoreConfig(broker_id=4)).close()
    shutil.rmtree(dirs[1])
    lines = checked("--config", file, code=1)
    (problem,) = (name for name in lines if name.startswith("problem"))
    assert problem.startswith(f"problem log dir {dirs[1]}: there is no such directory")


def test_a_broker_serves_as_its_file_says(file: Path, tmp_path: Path) -> None:
    """The broker uses its file's id, partitions and retention, and reports READY to systemd."""
    address = str(tmp_path / "notify")
    command = [sys.executable, "-m", "logstore.cli", "broker", "--config", str(file)]
    variables = environment() | {"NOTIFY_SOCKET": address}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(60)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, text=True
        ) as child:
            assert child.stdout is not None and child.stderr is not None
            line = child.stdout.readline()
            assert line.startswith("serving 0 partitions at INSIDE://127.0.0.1:"), line
            assert manager.recv(100) == b"READY=1"
            with KafkaClient(line.split("//")[1].strip()) as client:
                client.create("t", -1)
                answer = client.call("Metadata", topics=None)
                assert [node.node_id for node in answer.brokers] == [4]
                assert [len(topic.partitions) for topic in answer.topics] == [3]
            child.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            said = child.stderr.read()
            assert child.wait(20) == 0
    assert "warning: num.partition is unknown; did you mean num.partitions?" in said
    assert "no meaning for a single broker: listeners of CONTROLLER, num.io" in said
    with LogStore.open([tmp_path / "a", tmp_path / "b"], read_only=True) as store:
        assert store["t", 2].config.retention_ms == 24 * 3600 * 1000


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a service manager, nothing is sent; a manager that is gone is no error."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@logstore-test-{os.getpid()}")
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0logstore-test-{os.getpid()}")
        manager.settimeout(10)
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"
