"""Test topics that only the coordination store or only the log dirs have, through clients."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from broker.config import KAFKA_LOG_CONFIG
from broker.wire import messages
from logstore import LogStore
from support.kafka_client import KafkaClient, batch_of, values_in
from support.served_topics import Served, until

ALL = range(4)


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="broker"):
        yield


def without_replicas(path: Path, name: str = "t") -> None:
    """Lose the replicas of a log dir, which keeps its identity."""
    for replica in path.glob(f"{name}-*"):
        shutil.rmtree(replica)


def made(dirs: list[Path]) -> bytes:
    """Make a topic with a record in each partition, and stop the broker; return its id."""
    with Served(dirs) as served:
        code, topic_id = served.create()
        assert code == 0
        served.fill()
        assert sorted(served.on(dirs[0]) + served.on(dirs[1])) == list(ALL)
        return topic_id


def test_a_topic_whose_disks_are_lost_is_there_again_empty(
    dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The topic has its id, partitions and settings, as in Kafka. A warning names the loss."""
    topic_id = made(dirs)
    for path in dirs:
        without_replicas(path)
    caplog.clear()
    with Served(dirs) as served:
        assert served.topic().topic_id == topic_id and served.leaders() == dict.fromkeys(ALL, 0)
        assert "'t': the records of the partitions 0, 1, 2, 3 are gone" in caplog.text
        assert served.retention() == "123456789"
        assert {served.store.log("t", number).topic_id for number in ALL} == {topic_id}
        assert {served.store.log("t", number).log_end_offset for number in ALL} == {0}
        assert served.create()[0] == 36
        assert served.codes() == {(0, 0)}
    caplog.clear()
    with Served(dirs):
        assert "gone" not in caplog.text


def test_the_store_knows_the_journal_as_its_own_file(dirs: list[Path]) -> None:
    """A start that warns about unknown files does not warn about the journal."""
    made(dirs)
    with LogStore.open(dirs) as store:
        assert all((path / "coordination-journal").is_file() for path in dirs)
        assert not store.recovery_report.warnings


def test_a_partition_of_a_lost_disk_is_there_again_empty(
    dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The other partitions keep their records."""
    made(dirs)
    with Served(dirs) as served:
        lost = served.on(dirs[1])
    without_replicas(dirs[1])
    with Served(dirs) as served:
        names = ", ".join(map(str, sorted(lost)))
        assert f"the partitions {names} are gone" in caplog.text
        ends = {number: served.store.log("t", number).log_end_offset for number in ALL}
        assert ends == {number: 0 if number in lost else 1 for number in ALL}


def test_a_topic_on_a_disk_that_is_away(dirs: list[Path], tmp_path: Path) -> None:
    """Clients see the whole topic, get retriable errors, and nothing is created again."""
    with Served(dirs) as served:
        served.store.cordon(dirs[0])
        code, topic_id = served.create()
        assert code == 0 and served.on(dirs[1]) == list(ALL)
        served.fill()
        served.store.uncordon(dirs[0])
        served.create("other", 1)
    dirs[1].rename(tmp_path / "away")
    for _ in range(2):
        with Served(dirs) as served:
            assert served.topic().topic_id == topic_id
            assert served.leaders() == dict.fromkeys(ALL, -1)
            assert served.codes() == {(56, 56)} and served.retention() == "123456789"
            assert served.create()[0] == 36
            assert served.leaders("other") == {0: 0} and served.codes("other") == {(0, 0)}
            assert not [key for key in served.store if key[0] == "t" and key in found(served)]
    shutil.rmtree(dirs[1], ignore_errors=True)
    (tmp_path / "away").rename(dirs[1])
    with Served(dirs) as served:
        assert served.leaders() == dict.fromkeys(ALL, 0)
        assert values_in(served.client.fetch("t", 0, 3).records) == [b"3"]


def found(served: Served) -> set[tuple[str, int]]:
    """List the partitions that can be used."""
    usable = set()
    for log_dir in served.store.describe_dirs().log_dirs:
        usable |= {(one.topic, one.partition) for one in log_dir.partitions if log_dir.is_live}
    return usable


def test_an_empty_disk_replaces_one_while_the_broker_runs(
    dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The partitions of the old disk are created again, empty, without a restart."""
    topic_id = made(dirs)
    with Served(dirs) as served:
        lost = served.on(dirs[1])
        served.store.take_offline(dirs[1])
        shutil.rmtree(dirs[1])
        dirs[1].mkdir()
        assert served.leaders() == {number: -1 if number in lost else 0 for number in ALL}
        caplog.clear()
        served.store.reopen_dir(dirs[1], format_new=True)
        until(lambda: set(served.leaders().values()) == {0})
        until(lambda: "are gone" in caplog.text)
        assert {served.store.log("t", number).topic_id for number in ALL} == {topic_id}
        until((dirs[1] / "coordination-journal").exists)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_is_deleted_while_a_log_dir_is_away(dirs: list[Path], *, restarts: bool) -> None:
    """Clients no longer see it, and its replicas are deleted when the log dir is back."""
    made(dirs)
    with Served(dirs) as served:
        away = served.on(dirs[1])
        assert away
        served.store.take_offline(dirs[1])
        assert served.delete() == 0
        assert served.topic().error_code == 3
        assert served.create()[0] == 56  # its name is still in the log dir that is away
        if not restarts:
            served.store.reopen_dir(dirs[1])
            until(lambda: not [key for key in served.store if key[0] == "t"])
            assert served.create()[0] == 0
    with Served(dirs) as served:
        if restarts:
            assert served.topic().error_code == 3 and not served.on(dirs[1])
            assert served.create()[0] == 0
        assert served.leaders() == dict.fromkeys(ALL, 0)
        assert {served.store.log("t", number).log_end_offset for number in ALL} == {0}


def test_a_topic_whose_replicas_are_all_away_is_deleted(dirs: list[Path], tmp_path: Path) -> None:
    """Restarts with and without the log dir do not bring the topic back."""
    with Served(dirs) as served:
        served.store.cordon(dirs[0])
        served.create()
    dirs[1].rename(tmp_path / "away")
    for _ in range(2):
        with Served(dirs) as served:
            assert served.delete() in (0, 3) and served.topic().error_code == 3
    shutil.rmtree(dirs[1], ignore_errors=True)
    (tmp_path / "away").rename(dirs[1])
    for _ in range(2):
        with Served(dirs) as served:
            assert served.topic().error_code == 3 and not list(served.store)


def test_a_store_of_an_earlier_version_is_adopted(
    dirs: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Partitions may have their own ids; after the adoption, topics survive their disk."""
    config = KAFKA_LOG_CONFIG.replace(retention_ms=123456789)
    with LogStore.open(dirs) as store:
        store.create_topic("t", 4, config=config, topic_id=b"t" * 16)
        for number in range(2):
            store.create("u", number, config=config, log_dir=dirs[1])
        ids = [store.log("u", number).topic_id for number in range(2)]
    with Served(dirs) as served:
        assert "2 topics of the log dirs were recorded: t, u" in caplog.text
        assert served.topic().topic_id == b"t" * 16 and served.leaders() == dict.fromkeys(ALL, 0)
        assert served.topic("u").topic_id == ids[0] and served.codes("u") == {(0, 0)}
    caplog.clear()
    dirs[1].rename(tmp_path / "away")
    with Served(dirs) as served:
        assert "recorded" not in caplog.text
        assert served.topic("u").topic_id == ids[0] and served.codes("u") == {(56, 56)}
        assert served.retention("u") == "123456789"


def test_a_program_changes_topics_while_the_broker_runs(dirs: list[Path]) -> None:
    """The coordination store follows the program, so a restart brings no topic back."""
    with Served(dirs) as served:
        for number in range(3):
            served.store.create("p", number, config=KAFKA_LOG_CONFIG)
        assert served.leaders("p") == dict.fromkeys(range(3), 0)
        served.store.create("q", 0, config=KAFKA_LOG_CONFIG)
        for number in range(3):
            served.store.delete("p", number)
        until(lambda: served.topic("p").error_code == 3)
    with Served(dirs) as served:
        assert list(served.store) == [("q", 0)]


def recreated(dirs: list[Path], numbers: list[int]) -> None:
    """Delete replicas of a topic, and create replicas of another topic with its name."""
    with LogStore.open(dirs) as store:
        for number in numbers:
            store.delete("t", number)
            store.create("t", number, config=KAFKA_LOG_CONFIG, topic_id=b"x" * 16)


def test_a_replica_of_another_topic_is_not_served(
    dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names the replica, which stays; after its deletion, the partition returns."""
    topic_id = made(dirs)
    recreated(dirs, [2])
    with Served(dirs) as served:
        assert "the replica of t-2 is not served" in caplog.text
        assert served.topic().topic_id == topic_id
        assert served.leaders() == {0: 0, 1: 0, 2: -1, 3: 0}
        assert served.client.produce("t", batch_of(b"x"), 2).error_code == 56
        assert served.client.fetch("t", 0, 2).error_code == 56
        assert served.store.log("t", 2).topic_id == b"x" * 16
        assert alter(served, "settings") == 0
        assert served.store.log("t", 2).config == KAFKA_LOG_CONFIG
        served.store.delete("t", 2)
        until(lambda: served.leaders() == dict.fromkeys(ALL, 0))
        assert served.store.log("t", 2).topic_id == topic_id
        configs = [served.store.log("t", number).config.retention_ms for number in ALL]
        assert configs == [777777777] * 4 and served.retention() == "777777777"


def test_another_topic_replaces_one_that_is_gone(
    dirs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """If all log dirs serve, the other topic gets its own id, so that clients notice."""
    topic_id = made(dirs)
    recreated(dirs, list(ALL))
    with Served(dirs) as served:
        assert "topic 't' is gone" in caplog.text
        assert served.topic().topic_id == b"x" * 16 != topic_id
        assert served.leaders() == dict.fromkeys(ALL, 0)


def test_another_topic_does_not_replace_one_that_may_be_away(
    dirs: list[Path], tmp_path: Path
) -> None:
    """Its replicas are not served, and the old topic is served when its log dir is back."""
    with Served(dirs) as served:
        served.store.cordon(dirs[0])
        code, topic_id = served.create("t", 1)
        assert code == 0
        served.store.uncordon(dirs[0])
    dirs[1].rename(tmp_path / "away")
    with LogStore.open(dirs) as store:
        store.create("t", 1, config=KAFKA_LOG_CONFIG, topic_id=b"x" * 16, is_new=True)
    with Served(dirs) as served:
        assert served.topic().topic_id == topic_id and served.leaders() == {0: -1}
        assert served.delete("t") == 0
        assert served.store.log("t", 1).topic_id == b"x" * 16


@pytest.mark.parametrize("change", ["settings", "partitions"])
def test_changes_outlive_the_disk(dirs: list[Path], change: str) -> None:
    """The topic has the settings and the partitions of the last change."""
    made(dirs)
    with Served(dirs) as served:
        assert alter(served, change) == 0
        wanted = (served.retention(), list(served.leaders()))
        assert wanted != ("123456789", list(ALL))
    for path in dirs:
        without_replicas(path)
    with Served(dirs) as served:
        assert (served.retention(), list(served.leaders())) == wanted


def alter(served: Served, change: str) -> int:
    """Change the settings or the partitions of the topic; return the error."""
    if change == "partitions":
        one = messages.CreatePartitionsRequest.CreatePartitionsTopic("t", 6, None)
        answer = served.client.call("CreatePartitions", topics=[one], timeout_ms=1000)
        return int(answer.results[0].error_code)
    kinds = messages.IncrementalAlterConfigsRequest
    setting = kinds.AlterableConfig("retention.ms", 0, "777777777")
    resource = kinds.AlterConfigsResource(2, "t", [setting])
    answer = served.client.call("IncrementalAlterConfigs", resources=[resource])
    return int(answer.responses[0].error_code)


def test_two_brokers_over_one_store_agree(tmp_path: Path) -> None:
    """The brokers share the coordination store, so they agree."""
    with (
        LogStore.open(tmp_path) as store,
        Broker.start(store=store) as first,
        Broker.start(store=store) as second,
        KafkaClient(first.bootstrap_servers) as one,
        KafkaClient(second.bootstrap_servers) as other,
    ):
        topic_id = one.create("t", 2)
        row = other.call("Metadata", 12, topics=None).topics[0]
        assert (row.name, row.topic_id, len(row.partitions)) == ("t", topic_id, 2)
        assert other.produce("t", batch_of(b"x"), 1).error_code == 0


def open_in(path: Path) -> list[str]:
    """List the files that this process has open in a directory."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        if os.path.islink(f"/proc/self/fd/{fd}"):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in names if name.startswith(f"{path}/")]


def test_a_log_dir_that_is_taken_offline_can_be_unmounted(dirs: list[Path]) -> None:
    """No file in the log dir stays open; when it is back, it gets the missing changes."""
    made(dirs)
    with Served(dirs) as served:
        assert any("coordination-journal" in name for name in open_in(dirs[1]))
        served.store.take_offline(dirs[1])
        until(lambda: not open_in(dirs[1]))
        assert served.create("u", 1)[0] == 0
        served.store.reopen_dir(dirs[1])
        journal = dirs[1] / "coordination-journal"
        until(lambda: b"/brokers/topics/u" in journal.read_bytes())
        assert served.create("v", 1)[0] == 0 and b"/brokers/topics/v" in journal.read_bytes()
