"""Test the levels of features: what ApiVersions announces, and what UpdateFeatures changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog.admin import features
from broker.catalog.admin.features import BadUpdateError, Features, Update
from broker.coordination.errors import CoordinationError
from broker.coordination.shared_documents import SharedDocuments
from broker.coordinator.internal_topic import partition_of
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from support.feature_requests import GROUPS, NAME, SAFE, UNSAFE, UP, finalized, update
from support.kafka_client import KafkaClient
from support.transaction_requests import SMALL, RawProducer


def test_a_new_store_has_the_newest_level(tmp_path: Path) -> None:
    """The setting decides only the first level."""
    first = tmp_path / "first"
    with Broker.start(first, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert finalized(client) == (1, {NAME: 2, GROUPS: 1})
    config = {"transaction_version": 1, **SMALL}
    with Broker.start(first, config) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert finalized(client) == (1, {NAME: 2, GROUPS: 1})
    other = tmp_path / "other"
    with Broker.start(other, config) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert finalized(client) == (1, {NAME: 1, GROUPS: 1})


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_are_changed(tmp_path: Path, version: int) -> None:
    """Down only if the request allows it; the epoch counts the changes; a restart keeps both."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert update(client, (NAME, 1, UP), version=version) == 95
        assert update(client, (NAME, 1, SAFE), version=version) == 0
        assert finalized(client) == (2, {NAME: 1, GROUPS: 1})
        assert update(client, (NAME, 1, UP), version=version) == 0  # it has this level
        assert update(client, (NAME, 0, SAFE), version=version) == 0
        assert finalized(client) == (3, {GROUPS: 1})
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert finalized(client) == (3, {GROUPS: 1})
        assert update(client, (NAME, 2, SAFE), version=version) == 95
        assert update(client, (NAME, 2, UP), version=version) == 0
        assert finalized(client) == (4, {NAME: 2, GROUPS: 1})


def test_updates_that_are_refused(tmp_path: Path) -> None:
    """All features of a request change, or none."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert update(client) == update(client, ("", 1, UP)) == 42
        assert update(client, (NAME, 1, SAFE), (NAME, 0, SAFE)) == 42
        for level in (-1, 3):
            assert update(client, (NAME, level, UP)) == update(client, (NAME, level, SAFE)) == 95
        assert update(client, (NAME, 1, SAFE), ("metadata.version", 1, UP)) == 95
        assert update(client, (NAME, 1, 0)) == update(client, (NAME, 1, 4)) == 95
        assert update(client, (NAME, 1, SAFE), validate_only=True) == 0
        assert update(client, (NAME, 3, UP), validate_only=True) == 95
        assert finalized(client) == (1, {NAME: 2, GROUPS: 1})
        assert update(client, (NAME, 1, UNSAFE)) == 0


def test_the_level_decides_the_version_of_records(tmp_path: Path) -> None:
    """Below level 1, records have version 0; clients of both protocols work at each level."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        producer = RawProducer(client, "tx").begin()

        def value() -> bytes:
            log = broker.store[TRANSACTION_STATE.name, partition_of("tx", 3)]
            return bytes(list(log.read_batches())[-1].values[-1] or b"")[:2]

        for level, version in ((2, b"\x00\x01"), (1, b"\x00\x01"), (0, b"\x00\x00")):
            assert level == 2 or update(client, (NAME, level, SAFE)) == 0
            epoch = producer.epoch
            assert producer.send("t", b"a") == 0
            assert producer.again(lambda: producer.commit_offset("g", "t", 1, version=5)) == 0
            assert producer.end_raising(commit=True) == 0 and producer.epoch == epoch + 1
            producer.wait_for("CompleteCommit")
            assert producer.add(("t", 0)) == 0 and producer.produce("t", b"b") == 0
            producer.finish(commit=True)
            assert value() == version
            assert producer.init(producer_id=producer.id, producer_epoch=producer.epoch) == 0


class Documents(SharedDocuments):
    """Documents in memory, or in a store that does not answer."""

    def __init__(self, held: dict[str, bytes], *, is_away: bool = False) -> None:
        self.held, self.is_away, self.written = held, is_away, 0

    def is_known(self, kind: str) -> bool:
        return not self.is_away

    def documents(self, kind: str) -> dict[str, bytes]:
        return self.held

    def version(self, kind: str) -> int:
        return -1 if self.is_away else self.written

    def follow(self, kind: str, callback: Any) -> Callable[[], None]:
        callback({} if self.is_away else self.held)
        return lambda: None

    def change(self, kind: str, decide: Any) -> Any:
        if self.is_away:
            raise CoordinationError("the store does not answer")
        self.held |= decide(self.held)
        self.written += 1


@pytest.mark.parametrize(
    ("data", "level"),
    [
        (features.encode(1), 1), (b"{}", 0), (b"no JSON", 0), (b'{"level":true}', 0),
        (b'{"level":-1}', 0), (b"[" * 100_000, 0), (b'{"level":9}', 2), (b"null", 0),
    ],
)  # fmt: skip
def test_damaged_levels_are_not_used(data: bytes, level: int) -> None:
    """A level of a later version counts as the last known one."""
    made = Features(Documents({NAME: data}), 2)
    made.start()
    assert made.transaction_version == level
    made = Features(Documents({GROUPS: data}), 2)
    made.start()
    assert made.finalized.levels.get(GROUPS, 0) == min(level, 1)


def test_a_store_that_does_not_answer() -> None:
    """No level is announced or written; records have the version that keeps everything."""
    made = Features(Documents({}, is_away=True), 2)
    made.start()
    assert tuple(made.finalized) == (-1, {}) and made.transaction_version == 1
    with pytest.raises(CoordinationError):
        made.update([Update(NAME, 1, is_downgrade=False)], is_dry=False)


def test_an_older_store_gets_no_level_by_itself() -> None:
    """Other brokers may have an earlier version; an update names those that lack the level."""
    held: dict[str, bytes] = {}
    lacking = [3, 5]
    made = Features(Documents(held), 2, lambda: False, lambda feature, level: lacking)
    made.start()
    assert not held
    with pytest.raises(BadUpdateError, match="3, 5"):
        made.update([Update(NAME, 2, is_downgrade=False)], is_dry=False)
    lacking.clear()
    made.update([Update(NAME, 2, is_downgrade=False)], is_dry=False)
    assert held == {NAME: features.encode(2)}
