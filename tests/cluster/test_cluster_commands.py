"""`logstore cluster` says what brokers know, and has them elect and reassign."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import Cluster
from cluster.tools.asking import Asked, parse_servers
from cluster.tools.reassignment_file import parse_reassignment
from logstore.cli.app import app
from support.replica_nodes import wait_until
from support.zookeeper_process import free_port

SECONDS = 60.0


@pytest.fixture
def three() -> Iterator[Cluster]:
    """Run three brokers, with a topic whose partitions are on two of them each."""
    with Cluster.start(brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic("my-orders", 2, replica_assignment=[[1, 2], [2, 3]])
        admin.create_topics([topic])["my-orders"].result(SECONDS)
        for partition in range(2):
            cluster.wait_in_sync("my-orders", partition)
        yield cluster


def run(cluster: Cluster, command: str, *arguments: object) -> Result:
    """Run a command in this process; the first server does not answer."""
    servers = f"127.0.0.1:{free_port()},{cluster.bootstrap_servers}"
    words = ["cluster", command, "--bootstrap-servers", servers, *map(str, arguments)]
    return CliRunner().invoke(app, words)


def rows_of(done: Result, code: int = 0) -> list[dict[str, Any]]:
    """Read what a command printed as JSON."""
    assert done.exit_code == code, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def states(cluster: Cluster, *arguments: object) -> dict[str, str]:
    """Return the state of each broker and partition that a status shows."""
    done = run(cluster, "status", "--format", "json", *arguments)
    return {f"{row['kind']} {row['name']}": row["state"] for row in json.loads(done.stdout)}


def test_a_status_shows_what_is_wrong(three: Cluster) -> None:
    """Good partitions are listed on request; the exit code is 1 if one is not good."""
    rows = rows_of(run(three, "status", "--format", "json"))
    assert [(row["kind"], row["name"]) for row in rows] == [("broker", one) for one in "123"]
    assert sorted(row["state"] for row in rows) == ["controller", "good", "good"]
    assert ",".join(row["address"] for row in rows) == three.bootstrap_servers
    rows = rows_of(run(three, "status", "--all", "--format", "json"))[3:]
    assert [row["name"] for row in rows] == ["my-orders-0", "my-orders-1"]
    assert rows[0] == {
        "kind": "partition", "name": "my-orders-0", "topic": "my-orders", "partition": 0,
        "state": "good", "leader": 1, "replicas": [1, 2], "isr": [1, 2], "offline": [], "min": 2,
    }  # fmt: skip
    three.kill(3)
    wait_until(lambda: states(three).get("partition my-orders-1") == "below min", SECONDS)
    found = states(three, "--all")
    assert found["partition my-orders-0"] == "good" and found["broker 3"] == "gone"
    done = run(three, "status")
    assert done.exit_code == 1 and "my-orders-1  below min" in done.stdout
    assert done.stderr == (
        "brokers: 2 live, 1 gone; partitions: 0 offline, 1 below min, 0 under-replicated, 1 good\n"
    )
    three.kill(2)
    wait_until(lambda: states(three).get("partition my-orders-1") == "offline", SECONDS)


def test_a_partition_with_enough_replicas_for_its_min_is_under_replicated(three: Cluster) -> None:
    """If not all of them are in sync."""
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    topic = NewTopic(
        "loose", 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "1"}
    )
    admin.create_topics([topic])["loose"].result(SECONDS)
    three.wait_in_sync("loose")
    three.kill(3)
    wait_until(lambda: states(three).get("partition loose-0") == "under-replicated", SECONDS)


def test_leaders_are_elected(three: Cluster) -> None:
    """The preferred ones, everywhere or by name; an unclean election needs names."""
    three.kill(2)
    three.wait_for_leader("my-orders", 1, other_than=2)
    three.restart(2)
    for partition in range(2):
        three.wait_in_sync("my-orders", partition)
    assert three.wait_for_leader("my-orders", 1) == 3
    found = {row["name"]: row["state"] for row in rows_of(run(three, "elect", "--format", "json"))}
    assert found["my-orders-1"] == "elected"
    assert three.wait_for_leader("my-orders", 1, other_than=3) == 2
    done = run(three, "elect")
    assert (done.exit_code, done.stdout) == (0, "") and "nothing to do" in done.stderr
    done = run(three, "elect", "my-orders-1")
    assert done.exit_code == 0 and "ELECTION_NOT_NEEDED" in done.stdout
    done = run(three, "elect", "nothing-0")
    assert done.exit_code == 1 and "UNKNOWN_TOPIC_OR_PARTITION" in done.stdout
    assert run(three, "elect", "--unclean").exit_code == 2
    assert run(three, "elect", "my-orders").exit_code == 2
    done = run(three, "elect", "--unclean", "my-orders-0")
    assert done.exit_code == 0 and "ELECTION_NOT_NEEDED" in done.stdout


def test_replicas_are_moved_between_brokers(three: Cluster, tmp_path: Path) -> None:
    """By the file of Kafka's tool."""
    file = tmp_path / "plan.json"
    entry = {"topic": "my-orders", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    def reassign(action: str) -> Result:
        return run(three, "reassign", "--file", file, action, "--format", "json")

    (row,) = rows_of(reassign("--verify"), code=1)
    assert row["state"] == "different" and (row["wanted"], row["replicas"]) == ([3, 1], [1, 2])
    assert rows_of(reassign("--execute")) == [{"name": "my-orders-0", "state": "begun"}]
    wait_until(lambda: reassign("--verify").exit_code == 0, SECONDS)
    (row,) = rows_of(reassign("--verify"))
    assert (row["state"], row["replicas"]) == ("complete", [3, 1])
    (row,) = rows_of(reassign("--cancel"))
    assert "NO_REASSIGNMENT_IN_PROGRESS" in row["state"]
    entry["partition"] = 9
    file.write_text(json.dumps({"partitions": [entry]}))
    assert rows_of(reassign("--verify"), code=1)[0]["state"] == "no such partition"
    assert rows_of(reassign("--execute"), code=1)[0]["name"] == "my-orders-9"
    done = run(three, "reassign", "--file", file)
    assert done.exit_code == 2 and "give exactly one of --generate" in done.output


def test_a_reassignment_is_proposed(three: Cluster, tmp_path: Path) -> None:
    """As Kafka's tool does: the proposal spreads all replicas over the brokers, and is a file."""
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": "my-orders"}]}))

    def generate(brokers: str, *arguments: str) -> Result:
        return run(
            three, "reassign", "--file", file, "--generate", "--brokers", brokers, *arguments
        )

    done = generate("1,3", "--format", "json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    entry = {"topic": "my-orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert document["current"]["partitions"][0] == entry
    rows = document["proposed"]["partitions"]
    assert [(row["partition"], sorted(row["replicas"])) for row in rows] == [
        (0, [1, 3]),
        (1, [1, 3]),
    ]
    assert rows[0]["replicas"][0] != rows[1]["replicas"][0]  # the leaders go round
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(document["proposed"]))
    assert run(three, "reassign", "--file", plan, "--execute").exit_code == 0
    wait_until(lambda: run(three, "reassign", "--file", plan, "--verify").exit_code == 0, SECONDS)
    lines = generate("1,2,3").stdout.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert json.loads(lines[1])["partitions"][0]["replicas"] == rows[0]["replicas"]
    assert lines[3] == "Proposed partition reassignment configuration" and json.loads(lines[4])
    for brokers, reason in (
        ("1,9", "broker 9 is not registered"),
        ("1", "2 replicas"),
        ("x", "no broker"),
    ):
        done = generate(brokers)
        assert done.exit_code == 2 and reason in done.output, done.output
    file.write_text('{"topics": [{"topic": "nothing"}]}')
    assert "there is no topic nothing" in generate("1,2").output
    file.write_text('{"partitions": []}')
    assert 'no list "topics"' in generate("1,2").output
    done = run(three, "reassign", "--file", file, "--verify", "--brokers", "1")
    assert done.exit_code == 2 and "only --generate has --brokers" in done.output
    done = run(three, "reassign", "--file", file, "--execute", "--cancel")
    assert done.exit_code == 2 and "give exactly one of --generate" in done.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "the file is not JSON"),
        ("[]", 'no list "partitions"'),
        ('{"partitions": []}', 'list "partitions" is empty'),
        ('{"partitions": [1]}', "1 is no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "must have a topic"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "must have"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a"]}]}',
            "t-0: 'a' is neither an absolute path",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is listed twice",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 3000000000, "replicas": [1]}]}',
            "partition 3000000000 is not in",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [3000000000]}]}',
            "t-0: 3000000000 is no broker id",
        ),
        ('{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}', "not a legal"),
    ],
)
def test_a_file_that_cannot_be_used_is_wrong_usage(tmp_path: Path, text: str, reason: str) -> None:
    """The error says why; no broker is asked."""
    file = tmp_path / "plan.json"
    file.write_text(text)
    words = ["cluster", "reassign", "--bootstrap-servers", "h:1", "--verify", "--file", str(file)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and reason in done.output and str(file) in done.output


@pytest.mark.parametrize("name", ["t", "t-3000000000", "a/b-0", "-1"])
def test_a_partition_that_cannot_exist_is_wrong_usage(name: str) -> None:
    """No broker is asked."""
    done = CliRunner().invoke(app, ["cluster", "elect", "--bootstrap-servers", "h:1", "--", name])
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize("servers", ["", ",", "host", "host:", ":1", "host:x", "host:65536"])
def test_a_wrong_address_is_wrong_usage(servers: str) -> None:
    """The error says what is wanted."""
    done = CliRunner().invoke(app, ["cluster", "status", "--bootstrap-servers", servers])
    assert done.exit_code == 2 and "HOST:PORT" in done.output


def test_no_broker_answers() -> None:
    """The error names the address."""
    where = f"127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, ["cluster", "status", "--bootstrap-servers", where])
    assert done.exit_code == 1 and f"the broker at {where}: it refuses" in done.output


def test_each_broker_that_does_not_answer_is_named() -> None:
    """If several brokers have the same reason, the error has this reason once."""
    servers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    words = ["cluster", "status", "--bootstrap-servers", ",".join(servers)]
    done = CliRunner().invoke(app, words)
    told = f"{servers[0]}, {servers[1]}: it refuses connections"
    assert (done.exit_code, done.output) == (1, f"error: no broker answers: {told}\n")


def test_a_tool_that_expects_tls_or_a_login_says_so(three: Cluster, tmp_path: Path) -> None:
    """The listeners of this cluster have neither."""
    file = tmp_path / "admin.properties"
    for protocol, reason in (("SSL", "perhaps this port has no TLS"), ("SASL", "has no logins")):
        login = "\nsasl.mechanism=SCRAM-SHA-256\nsasl.credentials.file=" + str(tmp_path / "user")
        file.write_text(
            f"security.protocol={protocol}"
            if protocol == "SSL"
            else f"security.protocol=SASL_PLAINTEXT{login}"
        )
        (tmp_path / "user").write_text("admin:secret")
        (tmp_path / "user").chmod(0o600)
        done = run(three, "status", "--command-config", file)
        assert done.exit_code == 1 and reason in done.output, done.output


def describe(cluster: Cluster, broker: int) -> Sequence[Any]:
    """Ask a broker for its log dirs."""
    with Asked(parse_servers(cluster.bootstrap_servers)) as asked:
        metadata = asked.metadata()
        (node,) = (one for one in metadata.brokers if one.node_id == broker)
        return asked.log_dirs(node)


def replicas_in(cluster: Cluster, broker: int, path: str) -> set[tuple[str, int]]:
    """List the replicas in a log dir, without copies that a move makes."""
    return {
        (topic.name, one.partition_index)
        for row in describe(cluster, broker)
        if row.log_dir == path
        for topic in row.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def test_replicas_are_moved_between_log_dirs(tmp_path: Path) -> None:
    """One replica stays on its broker and changes its log dir; a new one is created in another."""
    with Cluster.start(brokers=3, log_dirs=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topic = NewTopic("t", 2, replica_assignment=[[1, 2], [1, 2]])
        admin.create_topics([topic])["t"].result(SECONDS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(200):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(SECONDS) == 0
        (other,) = (
            path for path in cluster.log_dirs(1) if ("t", 0) not in replicas_in(cluster, 1, path)
        )
        new = cluster.log_dirs(3)[1]
        file = tmp_path / "plan.json"

        def reassign(action: str, **entry: object) -> Result:
            document = {"partitions": [{"topic": "t", "partition": 0, **entry}]}
            file.write_text(json.dumps(document))
            return run(cluster, "reassign", "--file", file, action, "--format", "json")

        wish: dict[str, Any] = {"replicas": [1, 3], "log_dirs": [other, new]}
        assert rows_of(reassign("--verify", **wish), code=1)[0]["state"] == "different"
        assert rows_of(reassign("--execute", **wish))[0]["state"] == "begun"
        wait_until(lambda: reassign("--verify", **wish).exit_code == 0, SECONDS)
        assert ("t", 0) in replicas_in(cluster, 1, other)
        assert ("t", 0) in replicas_in(cluster, 3, new)
        assert rows_of(reassign("--cancel", **wish))[0]["state"].startswith("NO_REASSIGNMENT")
        stay = {"replicas": [1, 3], "log_dirs": ["any", cluster.log_dirs(3)[0]]}
        assert rows_of(reassign("--execute", **stay))[0]["state"] == "begun", "no broker changes"
        wait_until(lambda: reassign("--verify", **stay).exit_code == 0, SECONDS)
        for wrong, state in (
            ({"replicas": [1, 3], "log_dirs": ["/nowhere", "any"]}, "LOG_DIR_NOT_FOUND"),
            ({"replicas": [1, 9], "log_dirs": ["any", "/nowhere"]}, "BROKER_NOT_AVAILABLE"),
        ):
            assert rows_of(reassign("--execute", **wrong), code=1)[0]["state"].startswith(state)
        assert rows_of(reassign("--verify", **stay))[0]["replicas"] == [1, 3], "nothing was changed"


@pytest.mark.parametrize(
    ("dirs", "reason"),
    [
        (["any"], 'a path or "any" for each replica'),
        ("any", 'a path or "any" for each replica'),
        (["any", 5], 'a path or "any" for each replica'),
        (["any", "disk1"], "neither an absolute path"),
    ],
)
def test_log_dirs_that_cannot_be_meant_are_refused(dirs: object, reason: str) -> None:
    """There is one for each replica."""
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": dirs}
    with pytest.raises(ValueError, match=reason):
        parse_reassignment(json.dumps({"partitions": [entry]}))
