"""AlterReplicaLogDirs for partitions that do not exist: one write, and a limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.wire import messages
from logstore import LogStore
from logstore.disk.documents.settings import read_settings, write_settings
from logstore.names import TopicPartition
from logstore.store import host
from logstore.store.host import TooManyPreferencesError
from mover import ReplicaMover
from support.kafka_client import KafkaClient

UNKNOWN, CORDONED, LIMIT, STORAGE = 3, 39, 44, 56
LIMIT_HERE = 50
LONG = "t" * 249


class Writes:
    """Counts the durable writes of the settings of log dirs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(*arguments: Any) -> None:
            self.count += 1
            write_settings(*arguments)

        monkeypatch.setattr("logstore.disk.log_dir.write_settings", counted)


def wish(client: KafkaClient, path: str, topic: str, partitions: Sequence[int]) -> list[int]:
    asked = messages.AlterReplicaLogDirsRequest
    topics = [asked.AlterReplicaLogDirTopic(topic, list(partitions))]
    answer = client.call("AlterReplicaLogDirs", dirs=[asked.AlterReplicaLogDir(path, topics)])
    return [row.error_code for row in answer.results[0].partitions]


def test_regression_a_request_writes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand partitions were a thousand durable writes; the same request again needs none."""
    paths = [str(tmp_path / name) for name in "ab"]
    with Broker.start(paths) as broker, KafkaClient(broker.bootstrap_servers) as client:
        writes = Writes(monkeypatch)
        assert wish(client, paths[1], "later", range(1000)) == [UNKNOWN] * 1000
        assert writes.count == 1
        assert wish(client, paths[1], "later", range(1000)) == [UNKNOWN] * 1000
        assert writes.count == 1
        assert wish(client, paths[0], "later", [7]) == [UNKNOWN] and writes.count == 2
        assert wish(client, paths[1], "later", [7]) == [UNKNOWN] and writes.count == 3
        client.create("later", 9)
        assert {broker.store.log("later", number).log_dir for number in range(9)} == {paths[1]}


def test_wishes_beyond_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are kept, and are there after a restart."""
    monkeypatch.setattr(host, "PREFERENCES_MAX", LIMIT_HERE)
    with (
        Broker.start(tmp_path) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
    ):
        path = str(broker.store.log_dirs[0])
        codes = wish(client, path, LONG, range(LIMIT_HERE + 5))
        assert codes == [UNKNOWN] * LIMIT_HERE + [LIMIT] * 5
        assert wish(client, path, LONG, [0, LIMIT_HERE]) == [UNKNOWN, LIMIT]
    with LogStore.open(tmp_path) as store:
        (log_dir,) = store.host.log_dirs
        found, reason = read_settings(log_dir.path, log_dir.directory_id)
        assert len(found.preferred) == LIMIT_HERE and not reason
        with pytest.raises(TooManyPreferencesError, match=str(LIMIT_HERE)):
            store.prefer_dir("other", 0, tmp_path)
        store.prefer_dir(LONG, 0, None)
        store.prefer_dir("other", 0, tmp_path)
        assert store.host.prefer([TopicPartition("other", 0)], tmp_path) == {}


def test_regression_a_move_to_a_cordoned_log_dir_gets_kafkas_error(tmp_path: Path) -> None:
    """Kafka answers INVALID_REPLICA_ASSIGNMENT; error 56 made clients try again (KIP-1066).

    If the replica is already there, nothing is moved. If the log dir is offline, it is error 56.
    """
    paths = [str(tmp_path / name) for name in "ab"]
    with Broker.start(paths) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("moved", 1)
        store = broker.store
        here = store.log("moved", 0).log_dir
        (other,) = {*paths} - {here}
        for path in paths:
            store.cordon(path)
        assert wish(client, other, "moved", [0, 7]) == [CORDONED, UNKNOWN]
        assert wish(client, here, "moved", [0]) == [0]
        response = ReplicaMover.of(store).change_replica_dirs({other: [("moved", 0)]})
        assert response.to_dict()["partitions"][0]["error_code"] == CORDONED
        store.uncordon(other)
        assert wish(client, other, "moved", [0]) == [0]
        move = ReplicaMover.of(store).move_of("moved", 0)
        assert move is not None and move.wait(30.0)
        store.take_offline(here)
        assert wish(client, here, "moved", [0]) == [STORAGE]
