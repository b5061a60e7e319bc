"""Leader epochs record where each of them began, and follow changes of the log."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from logstore import LogClosedError, LogConfig, LogStore, ReadOnlyStoreError
from logstore.log.epochs import FILE_NAME, LeaderEpochs, OfLog
from logstore.log.removal import retention
from mover import ReplicaMover
from support.inside import abandon


def test_epochs_are_noted_once_and_in_order() -> None:
    """An epoch that is not after the last one changes nothing."""
    epochs = LeaderEpochs("")
    assert epochs.latest == -1 and epochs.end_offset_for(5, 9) == (-1, -1)
    assert [epochs.note(*pair) for pair in ((0, 0), (0, 3), (2, 5), (1, 7))] == [1, 0, 1, 0]
    assert epochs.entries == [(0, 0), (2, 5)] and epochs.latest == 2


def test_an_epoch_ends_where_the_next_begins() -> None:
    """The last epoch ends at the log end; for an unknown one, the previous counts (KIP-101)."""
    epochs = LeaderEpochs("", [(1, 0), (3, 5)])
    ends = [epochs.end_offset_for(epoch, 9) for epoch in (0, 1, 2, 3, 4)]
    assert ends == [(-1, -1), (1, 5), (1, 5), (3, 9), (3, 9)]


def test_both_ends_of_the_log_move() -> None:
    """The epoch that contains the new log start then begins there."""
    epochs = LeaderEpochs("", [(1, 0), (2, 5), (3, 8)])
    epochs.truncate_to(8)
    assert epochs.entries == [(1, 0), (2, 5)]
    epochs.start_at(6)
    assert epochs.entries == [(2, 6)]
    epochs.truncate_to(0)
    assert epochs.entries == []
    epochs.start_at(9)
    assert epochs.entries == []


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Without a usable file, the epochs are rebuilt from the batches."""
    assert LeaderEpochs.read_or_reason(str(tmp_path)) == (None, "")
    of_log = OfLog("orders", 3, bytes(range(16)), 7, is_sparse=True)
    LeaderEpochs(str(tmp_path), [(1, 0), (3, 2**40)]).write(of_log)
    found = LeaderEpochs.read(str(tmp_path))
    assert found is not None and found.entries == [(1, 0), (3, 2**40)]
    assert found.of_log == of_log
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-3])
    found, reason = LeaderEpochs.read_or_reason(str(tmp_path))
    assert found is None and "checksum" in reason


@pytest.mark.parametrize("is_rolled", [False, True])
def test_the_leader_epoch_outlives_the_records_that_carried_it(
    tmp_path: Path, is_rolled: bool
) -> None:
    """All records were deleted, and the log was opened again."""
    config = LogConfig(segment_bytes=256 if is_rolled else 4096)
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config)
        log.append(b"0")
        log.leader_epoch = 2
        for number in range(1, 6):
            log.append(b"%d" % number * 150, durable=True)
        log.delete_records_before(6)
        log.apply_retention()
    for expected in (6, 7):
        with LogStore.open(tmp_path) as store:
            log = store["orders", 0]
            assert log.leader_epoch == 2
            assert log.append(b"later", durable=True) == expected
            assert not log.verify() and not store.recovery_report.warnings
            epochs = {b.header.leader_epoch for b in log.read_batches()}
            assert epochs == {2}


def test_the_history_is_public_and_true_whatever_becomes_of_the_log(tmp_path: Path) -> None:
    """The epochs follow truncations, deletions, a move, a kill and a close."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    store = LogStore.open(dirs, admin_socket=False)
    log = store.create("t", 0, log_dir=dirs[0], config=LogConfig(segment_bytes=256))
    assert [*log.leader_epochs] == [] and log.end_offset_for_epoch(0) == (-1, -1)
    for epoch in (1, 4, 5, 9):
        log.leader_epoch = epoch
        for _ in range(3):
            log.append(b"x")
    assert [*log.leader_epochs] == [(1, 0), (4, 3), (5, 6), (9, 9)]
    assert [log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 3, 4, 8, 9, 10)] == [
        (-1, -1), (-1, -1), (1, 3), (1, 3), (4, 6), (5, 9), (9, 12), (9, 12),
    ]  # fmt: skip
    log.truncate_to(8)
    assert [*log.leader_epochs] == [(1, 0), (4, 3), (5, 6)]
    assert log.end_offset_for_epoch(9) == (5, 8)
    log.delete_records_before(4)
    expected = [(4, 4), (5, 6)]
    assert [*log.leader_epochs] == expected and log.end_offset_for_epoch(3) == (-1, -1)
    with ReplicaMover(store) as mover:
        mover.move("t", 0, dirs[1]).wait(60)
    assert log.log_dir == str(dirs[1]) and [*log.leader_epochs] == expected
    abandon(store)
    for _ in range(2):
        with LogStore.open(dirs, admin_socket=False) as store:
            log = store.log("t", 0)
            assert [*log.leader_epochs] == expected and log.end_offset_for_epoch(4) == (4, 6)
            with LogStore.open(dirs, read_only=True) as reader:
                view = reader.log("t", 0)
                with pytest.raises(ReadOnlyStoreError):
                    assert view.leader_epochs
                with pytest.raises(ReadOnlyStoreError):
                    view.end_offset_for_epoch(4)
    with pytest.raises(LogClosedError):
        log.end_offset_for_epoch(4)


def test_regression_epochs_before_the_log_start_are_gone_after_a_crash(tmp_path: Path) -> None:
    """The file with the new start was written, and then the process was killed."""
    store = LogStore.open(tmp_path, admin_socket=False)
    log = store.create("t", 0)
    log.append(b"x")
    log.leader_epoch = 3
    log.append(b"y")
    log.flush()
    with (
        patch.object(retention, "_hide", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        log.delete_records_before(1)
    abandon(store)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.log("t", 0)
        assert log.log_start_offset == 1 and [*log.leader_epochs] == [(3, 1)]
        assert log.end_offset_for_epoch(2) == (-1, -1)


@pytest.mark.parametrize("seed", range(20))
def test_two_replicas_agree_after_any_changes_of_leader(tmp_path: Path, seed: int) -> None:
    """A follower that truncates by KIP-279, as often as needed, has the log of its leader."""
    rng = random.Random(seed)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        logs = [store.create("t", number) for number in range(2)]
        epoch = 0
        for _ in range(30):
            epoch += rng.randint(1, 2)
            leader, follower = rng.sample(logs, 2)
            leader.leader_epoch = epoch
            for _ in range(rng.randint(0, 3)):
                leader.append(b"%d" % rng.getrandbits(30))
            if rng.random() < 0.4:
                continue  # the follower hears nothing of this leader
            while follower.leader_epochs:
                last = follower.leader_epochs[-1][0]
                told, end = leader.end_offset_for_epoch(last)
                own = follower.end_offset_for_epoch(told)[1] if told >= 0 else 0
                to = min(end, own) if told >= 0 else 0
                if told == last and to == follower.log_end_offset:
                    break
                follower.truncate_to(min(to, follower.log_end_offset))
                if told == last:
                    break
            raw = leader.read_raw(follower.log_end_offset)
            if raw:  # perhaps of an earlier epoch than the one that the follower led
                known = follower._state.replication
                known.leader_epoch = max(known.epochs.latest, 0)
                follower.append_as_follower(raw)
            ours = [(record.offset, record.value) for record in leader]
            assert [(record.offset, record.value) for record in follower] == ours
            assert follower.leader_epochs == leader.leader_epochs


@pytest.mark.parametrize("is_orderly", [True, False], ids=["closed", "killed"])
def test_an_epoch_without_a_record_ends_with_the_process(tmp_path: Path, is_orderly: bool) -> None:
    """The leader epoch rises while the log is open; a truncation may cut all its records."""
    store = LogStore.open(tmp_path, admin_socket=False)
    log = store.create("orders", 0)
    for epoch in (1, 5):
        log.leader_epoch = epoch
        log.append(b"%d" % epoch, durable=True)
    log.truncate_to(1)
    assert log.leader_epoch == 5
    (store.close if is_orderly else partial(abandon, store))()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store["orders", 0]
        assert log.leader_epoch == 1
        log.leader_epoch = 5
        assert log.append(b"again") == 1


def test_regression_an_epoch_without_records_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The next record began no epoch in its segment, so its epoch was in no list."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0)
        log.leader_epoch = 3
        log.extend([b"x"] * 10)
        log.delete_records_before(10)
        assert log.leader_epochs == ((3, 10),)
    for end in (11, 12):
        with LogStore.open(tmp_path) as store:
            log = store.log("t", 0)
            assert log.leader_epochs == ((3, 10),) and log.append(b"y") == end - 1
            assert log.end_offset_for_epoch(3) == (3, end)
            assert not store.recovery_report.entries[0].warnings
