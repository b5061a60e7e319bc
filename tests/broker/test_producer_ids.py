"""Test that no two producers get the same id, whatever fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog import dir_facts
from broker.catalog.producer_ids import (
    BLOCK_IDS,
    EMBEDDED_IDS,
    FACT,
    FOREIGN_IDS,
    ProducerIds,
)
from logstore import Facts, LogConfig, LogDirFullError, LogStore
from support.kafka_client import KafkaClient, batch_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def test_ids_rise_over_blocks_and_restarts(dirs: list[Path]) -> None:
    """After a restart, the rest of a block is skipped; every log dir has the block's end."""
    seen: list[int] = []
    for _ in range(3):
        with LogStore.open(dirs) as store:
            ids = ProducerIds(store)
            seen += [ids.take() for _ in range(BLOCK_IDS + 5)]
            assert {store.facts(path)[FACT] for path in store.log_dirs} == {
                (seen[-1] // BLOCK_IDS + 1) * BLOCK_IDS
            }
            ids.close()
    assert seen == sorted(set(seen)) and seen[0] == 0


def test_ids_are_above_those_of_the_logs(dirs: list[Path]) -> None:
    """An adopted log may have larger ids; ids from 2^62 on belong to other programs."""
    with LogStore.open(dirs) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        log.append_encoded(batch_of(b"x", producer=(123_456, 0, 0)))
        log.append_encoded(batch_of(b"x", producer=(EMBEDDED_IDS + 9, 0, 0)))
        assert ProducerIds(store).take() == 123_457


def test_a_log_dir_that_was_away_is_asked_when_it_returns(dirs: list[Path]) -> None:
    """The ids in the returning log dir are not given again."""
    with LogStore.open(dirs) as store:
        log = store.create("t", 0, log_dir=dirs[0], config=LogConfig(record_format="kafka"))
        log.append_encoded(batch_of(b"x", producer=(5_000, 0, 0)))
        store.take_offline(dirs[0])
        ids = ProducerIds(store)
        assert ids.take() == 0
        store.reopen_dir(dirs[0])
        returned = threading.Event()
        for _ in range(2000):
            if not ids._is_known:
                break
            returned.wait(0.005)
        assert ids.take() == 5_001
        ids.close()


def test_a_log_dir_that_is_missing_at_the_start(dirs: list[Path]) -> None:
    """Each log dir alone remembers the end of all blocks."""
    with LogStore.open(dirs) as store:
        ids = ProducerIds(store)
        last = [ids.take() for _ in range(BLOCK_IDS + 1)][-1]
        ids.close()
    for away in dirs:
        hidden = away.with_name("hidden")
        away.rename(hidden)
        away.mkdir()
        with LogStore.open(dirs) as store:
            assert ProducerIds(store).take() > last
        away.rmdir()
        hidden.rename(away)


def test_a_log_dir_that_hangs_delays_little(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other log dirs store the block's end."""
    released, write = threading.Event(), Facts.__setitem__
    monkeypatch.setattr(dir_facts, "WRITE_SECONDS_MAX", 0.05)
    with LogStore.open(dirs) as store:
        facts = Facts.__setitem__
        hanging = threading.Lock()
        hanging.acquire()

        def first_hangs(self: Facts, name: str, value: Any) -> None:
            if hanging.acquire(blocking=False):
                write(self, name, value)
            else:
                hanging.release()
                assert released.wait(20)

        monkeypatch.setattr(Facts, "__setitem__", first_hangs)
        assert ProducerIds(store).take() == 0
        released.set()
        monkeypatch.setattr(Facts, "__setitem__", facts)


def test_without_a_log_dir_there_is_no_id(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the log dir's; when it is back, ids are given again."""

    def full(self: Facts, name: str, value: Any) -> None:
        raise LogDirFullError(path="/disk", reason="")

    with LogStore.open(dirs) as store:
        ids = ProducerIds(store)
        with monkeypatch.context() as patched:
            patched.setattr(Facts, "__setitem__", full)
            with pytest.raises(LogDirFullError):
                ids.take()
        assert ids.take() == 0


@pytest.mark.parametrize("made_up", [FOREIGN_IDS - 1, FOREIGN_IDS, EMBEDDED_IDS - 1])
def test_regression_an_id_that_a_client_made_up_uses_up_no_ids(
    dirs: list[Path], made_up: int
) -> None:
    """After one batch with the largest id, no producer ever got an id again."""
    for turn in range(3):
        with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
            if not turn:
                client.create("t")
                batch = batch_of(b"x", producer=(made_up, 0, 0))
                assert client.produce("t", batch).error_code == 0
            seen = set()
            for _ in range(3):
                answer = client.call(
                    "InitProducerId", 5, transactional_id=None, transaction_timeout_ms=1000
                )
                assert answer.error_code == 0
                seen.add(answer.producer_id)
            assert len(seen) == 3 and max(seen) <= FOREIGN_IDS + 3 * BLOCK_IDS
            batch = batch_of(b"y", producer=(max(seen), 0, 0))
            assert client.produce("t", batch).error_code == 0


def test_an_end_that_an_earlier_version_wrote_is_left_alone(dirs: list[Path]) -> None:
    """It is so large that no broker can have given the ids before it."""
    with LogStore.open(dirs) as store:
        for path in store.log_dirs:
            store.facts(path)[FACT] = EMBEDDED_IDS - 1
        assert ProducerIds(store).take() == 0
