"""What administrators ask: settings, partitions, log dirs and moves between them.

The codes of refusals are those of Kafka: see `test_parity.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog.dynamic_settings import CORDONED, FACTS, RATE
from broker.wire import messages as m
from logstore import LogStoreError
from mover import ReplicaMover
from support.broker_questions import MOVE_RATE, Asker
from support.kafka_client import KafkaClient, batch_of
from support.serving import wait_until

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


@pytest.fixture
def running(dirs: list[Path]) -> Iterator[Broker]:
    with Broker.start(dirs) as broker:
        yield broker


@pytest.fixture
def ask(running: Broker) -> Iterator[Asker]:
    with KafkaClient(running.bootstrap_servers) as client:
        yield Asker(client, 0, running.store.log_dirs)


def settings_of(ask: Asker, kind: int, name: str) -> dict[str, tuple[str, int, bool]]:
    """Ask for settings; returns value, source and whether it is read-only."""
    asked = [m.DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)]
    (result,) = ask.client.call("DescribeConfigs", resources=asked).results
    return {row.name: (row.value, row.config_source, row.read_only) for row in result.configs}


def dir_of(broker: Broker, topic: str, partition: int = 0) -> str:
    """Return the log dir of a partition."""
    return broker.store.log(topic, partition).log_dir


def test_settings_of_all_partitions_change(ask: Asker, running: Broker) -> None:
    """A changed setting of all partitions is visible at once and after a restart."""
    ask.client.create("t", 3)
    assert ask.alter(TOPIC, "t", ("retention.ms", SET, "5000"), ("flush.messages", SET, "7")) == [0]
    assert ask.alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == [0]
    for partition in range(3):
        config = running.store.log("t", partition).config
        assert (config.retention_ms, config.flush_messages) == (5000, 7)
        assert config.cleanup_policy == "compact,delete"
    assert ask.alter(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == [0]
    assert ask.alter(TOPIC, "t", ("flush.messages", DELETE, None)) == [0]
    settings = settings_of(ask, TOPIC, "t")
    assert settings["cleanup.policy"] == ("compact", 1, False)
    assert settings["flush.messages"] == (str(2**63 - 1), 5, False)
    assert ask.alter(TOPIC, "t", ("retention.ms", SET, "-1")) == [0]
    assert running.store.log("t", 0).config.retention_ms is None
    assert ask.replace("t", retention_ms="9000") == [0]
    assert settings_of(ask, TOPIC, "t")["cleanup.policy"] == ("delete", 5, False)
    assert running.store.log("t", 2).config.retention_ms == 9000


def test_a_refused_change_changes_nothing(ask: Asker, running: Broker) -> None:
    """If one of several settings is bad, or the request is a dry run, nothing changes."""
    ask.client.create("t")
    good, bad = ("retention.ms", SET, "5000"), ("segment.bytes", SET, "-7")
    assert ask.alter(TOPIC, "t", good, bad) == [40]
    asked = m.IncrementalAlterConfigsRequest
    resource = asked.AlterConfigsResource(TOPIC, "t", [asked.AlterableConfig(*good)])
    answer = ask.client.call("IncrementalAlterConfigs", resources=[resource], validate_only=True)
    assert answer.responses[0].error_code == 0
    assert running.store.log("t", 0).config == running.config.log_config


def test_regression_a_rate_of_thousands_of_digits_is_refused(ask: Asker) -> None:
    """A rate with thousands of digits is refused; before, the connection was closed instead."""
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert ask.alter(BROKER, "0", (rate, SET, "9" * 5000)) == [40]


def test_throttles_between_brokers_are_accepted(ask: Asker) -> None:
    """Kafka's reassignment tool sets these settings; a single broker accepts and ignores them."""
    ask.client.create("t")
    for name in ("leader", "follower"):
        assert ask.alter(TOPIC, "t", (f"{name}.replication.throttled.replicas", SET, "0:0")) == [0]
        assert ask.alter(BROKER, "0", (f"{name}.replication.throttled.rate", SET, "1000")) == [0]


def test_an_unknown_operation_changes_no_setting_of_the_broker(ask: Asker) -> None:
    """Before, an unknown operation on the cordoned log dirs set them."""
    before = settings_of(ask, BROKER, "0")
    for key, text in ((CORDONED, "*"), (MOVE_RATE, "5")):
        for operation in (-1, 4, 9):
            assert ask.alter(BROKER, "0", (key, operation, text)) == [40]
    assert settings_of(ask, BROKER, "0") == before


def test_the_rate_of_moves_outlives_a_restart(dirs: list[Path]) -> None:
    """The rate of moves, and its removal, survive a restart."""
    with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
        ask = Asker(client, 0, broker.store.log_dirs)
        assert settings_of(ask, BROKER, "0")[MOVE_RATE] == (str(2**63 - 1), 5, False)
        assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "12345")) == [0]
        assert settings_of(ask, BROKER, "0")[MOVE_RATE] == ("12345", 2, False)
        assert ReplicaMover.of(broker.store).throttle.rate_of() == 12345
        assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "0")) == [40]
        assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "fast")) == [40]
        assert ask.alter(BROKER, "0", (MOVE_RATE, APPEND, "5")) == [40]
        assert ReplicaMover.of(broker.store).throttle.rate_of() == 12345
    with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
        ask = Asker(client, 0, broker.store.log_dirs)
        assert ReplicaMover.of(broker.store).throttle.rate_of() == 12345
        assert ask.alter(BROKER, "", (MOVE_RATE, DELETE, None)) == [0]
    with Broker.start(dirs) as broker:
        assert ReplicaMover.of(broker.store).throttle.rate_of() is None


def test_regression_a_rate_that_was_set_after_the_clock_was_set_back(dirs: list[Path]) -> None:
    """A newly set rate wins, even if an absent log dir has a rate with a later time."""
    with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
        ask = Asker(client, 0, broker.store.log_dirs)
        away = broker.store.facts(broker.store.log_dirs[2])
        away[FACTS[RATE]] = before = [time.time_ns() + 60 * 10**9, 12345]
        assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "54321")) == [0]
        away[FACTS[RATE]] = before
    with Broker.start(dirs) as broker:
        assert ReplicaMover.of(broker.store).throttle.rate_of() == 54321


def test_cordoned_log_dirs_take_no_new_partitions(ask: Asker, running: Broker) -> None:
    """All log dirs but one are cordoned; a path that is no log dir of the broker is refused."""
    first, second, third = running.store.log_dirs
    assert ask.alter(BROKER, "0", (CORDONED, SET, f"{first},{second}")) == [0]
    assert settings_of(ask, BROKER, "0")[CORDONED] == (f"{first},{second}", 2, False)
    ask.client.create("t", 4)
    assert {dir_of(running, "t", number) for number in range(4)} == {third}
    assert ask.alter(BROKER, "0", (CORDONED, SET, "/nowhere")) == [40]
    assert ask.alter(BROKER, "0", (CORDONED, SUBTRACT, first)) == [0]
    assert settings_of(ask, BROKER, "0")[CORDONED][0] == second
    assert ask.alter(BROKER, "0", (CORDONED, APPEND, "*")) == [0]
    assert settings_of(ask, BROKER, "0")[CORDONED][0].split(",") == [first, second, third]
    assert ask.alter(BROKER, "0", (CORDONED, DELETE, None)) == [0]
    assert settings_of(ask, BROKER, "0")[CORDONED] == ("", 5, False)


def test_new_partitions_are_like_the_old_ones(ask: Asker, running: Broker) -> None:
    """New partitions have the topic id and the settings of the old ones, and are usable at once."""
    topic_id = ask.client.create("t", 2, retention_ms="5000")
    assert ask.add_partitions("t", 4) == [0]
    for partition in (2, 3):
        log = running.store.log("t", partition)
        assert (log.topic_id, log.config.retention_ms) == (topic_id, 5000)
    assert ask.client.produce("t", batch_of(b"x"), partition=3).error_code == 0
    ask.client.call("FindCoordinator", coordinator_keys=["g"])
    assert ask.add_partitions("__consumer_offsets", 60) == [42]


def test_a_topic_that_is_named_twice_gets_no_partitions(ask: Asker, running: Broker) -> None:
    """As in Kafka; the other topics of the request get their partitions."""
    ask.client.create("t")
    ask.client.create("other")
    asked = m.CreatePartitionsRequest.CreatePartitionsTopic
    topics = [asked("t", 2, None), asked("other", 2, None), asked("t", 3, None)]
    answer = ask.client.call("CreatePartitions", topics=topics, timeout_ms=5000)
    assert {row.name: row.error_code for row in answer.results} == {"t": 42, "other": 0}
    assert sorted(running.store) == [("other", 0), ("other", 1), ("t", 0)]


def test_deleted_records_are_gone_at_once(ask: Asker, running: Broker) -> None:
    """The answer has the new log start offset, and fetches before it are refused."""
    ask.client.create("t")
    ask.client.produce("t", batch_of(*[b"%d" % number for number in range(10)]))
    assert ask.delete_records("t", 0, 4) == (0, 4)
    assert ask.delete_records("t", 0, 2) == (0, 4)
    assert running.store.log("t", 0).log_start_offset == 4
    assert ask.client.fetch("t", 3).error_code == 1


def test_a_partition_whose_records_are_deleted_twice(ask: Asker, running: Broker) -> None:
    """As in Kafka, the last offset counts, and the answer has one row."""
    ask.client.create("t")
    ask.client.produce("t", batch_of(*[b"%d" % number for number in range(10)]))
    Topic, One = m.DeleteRecordsRequest.DeleteRecordsTopic, m.DeleteRecordsRequest  # noqa: N806
    topics = [Topic("t", [One.DeleteRecordsPartition(0, offset)]) for offset in (7, 4)]
    (row,) = ask.client.call("DeleteRecords", topics=topics, timeout_ms=5000).topics
    assert [(one.error_code, one.low_watermark) for one in row.partitions] == [(0, 4)]
    assert running.store.log("t", 0).log_start_offset == 4


def test_a_replica_moves_under_load(ask: Asker, running: Broker) -> None:
    """A moving copy is described during the move; after the move, no record is missing."""
    ask.client.create("t")
    for _ in range(64):
        ask.client.produce("t", batch_of(b"x" * 30_000))
    source = dir_of(running, "t")
    target = next(path for path in running.store.log_dirs if path != source)
    assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "200000")) == [0]
    assert ask.move(target, "t", 0) == [("t", [(0, 0)])]

    def copies() -> list[Any]:
        answer = ask.client.call("DescribeLogDirs", topics=None)
        return [
            (row.log_dir, part.offset_lag)
            for row in answer.results
            for topic in row.topics
            for part in topic.partitions
            if topic.name == "t" and part.is_future_key
        ]

    wait_until(lambda: bool(copies()), "a copy")
    (copy,) = copies()
    assert copy[0] == target and 0 < copy[1] <= 64
    assert ask.client.produce("t", batch_of(b"late")).base_offset == 64
    assert ask.alter(BROKER, "0", (MOVE_RATE, DELETE, None)) == [0]
    wait_until(lambda: dir_of(running, "t") == target, "the end of the move")
    wait_until(lambda: not copies(), "the end of the copy")
    assert [record.offset for record in running.store.log("t", 0)] == list(range(65))


def test_a_move_back_cancels_the_move(ask: Asker, running: Broker) -> None:
    """A move to the present log dir of the replica cancels a running move (KIP-113)."""
    ask.client.create("t")
    for _ in range(64):
        ask.client.produce("t", batch_of(b"x" * 30_000))
    source = dir_of(running, "t")
    target = next(path for path in running.store.log_dirs if path != source)
    assert ask.alter(BROKER, "0", (MOVE_RATE, SET, "100000")) == [0]
    ask.move(target, "t", 0)
    assert ask.move(source, "t", 0) == [("t", [(0, 0)])]
    assert dir_of(running, "t") == source
    answer = ask.client.call("DescribeLogDirs", topics=None)
    rows = [part for row in answer.results for topic in row.topics for part in topic.partitions]
    assert [part.is_future_key for part in rows] == [False]


def test_a_log_dir_is_kept_for_a_partition_that_does_not_exist(ask: Asker, running: Broker) -> None:
    """The answer is that the partition is unknown, as in Kafka.

    Later it is created in the log dir.
    """
    for path in running.store.log_dirs:
        name = f"later-{Path(path).name}"
        assert ask.move(path, name, 0) == [(name, [(0, 3)])]
        ask.client.create(name)
        assert dir_of(running, name) == path


def test_a_log_dir_that_is_offline(ask: Asker, running: Broker) -> None:
    """An OFFLINE log dir is described with error 56, and is no target of moves."""
    ask.client.create("t")
    source = dir_of(running, "t")
    bad = next(path for path in running.store.log_dirs if path != source)
    running.store.take_offline(bad)
    answer = ask.client.call("DescribeLogDirs", topics=None)
    codes = {row.log_dir: row.error_code for row in answer.results}
    assert codes == {path: 56 if path == bad else 0 for path in running.store.log_dirs}
    assert ask.move(bad, "t", 0) == [("t", [(0, 56)])]
    assert dir_of(running, "t") == source


def test_some_partitions_are_changed_later(ask: Asker, running: Broker) -> None:
    """Those in a log dir that is away: they have the new settings when it is back."""
    ask.client.create("t", 3)
    running.store.take_offline(running.store.log_dirs[1])
    assert ask.alter(TOPIC, "t", ("retention.ms", SET, "5000")) == [0]
    lost = [number for number in range(3) if is_offline(running, number)]
    assert len(lost) == 1
    kept = [running.store.log("t", number) for number in range(3) if number not in lost]
    assert [log.config.retention_ms for log in kept] == [5000, 5000]
    running.store.reopen_dir(running.store.log_dirs[1])
    log = running.store.log("t", lost[0])
    wait_until(lambda: log.config.retention_ms == 5000, "the new settings")


def is_offline(broker: Broker, partition: int) -> bool:
    """Report whether a partition of the topic does not serve."""
    try:
        broker.store.log("t", partition)
    except LogStoreError:
        return True
    return False
