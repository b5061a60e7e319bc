"""Leader epochs say where each began, and follow what becomes of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.log.epochs import FILE_NAME, LeaderEpochs, OfLog


def test_epochs_are_noted_once_and_in_order() -> None:
    """One that is not after the last is no news."""
    epochs = LeaderEpochs("")
    assert epochs.latest == -1 and epochs.end_offset_for(5, 9) == (-1, -1)
    assert [epochs.note(*pair) for pair in ((0, 0), (0, 3), (2, 5), (1, 7))] == [1, 0, 1, 0]
    assert epochs.entries == [(0, 0), (2, 5)] and epochs.latest == 2


def test_an_epoch_ends_where_the_next_begins() -> None:
    """The last one at the log's end; of one that never was, the one before counts (KIP-101)."""
    epochs = LeaderEpochs("", [(1, 0), (3, 5)])
    ends = [epochs.end_offset_for(epoch, 9) for epoch in (0, 1, 2, 3, 4)]
    assert ends == [(-1, -1), (1, 5), (1, 5), (3, 9), (3, 9)]


def test_both_ends_of_the_log_move() -> None:
    """The epoch that the new start falls into begins there."""
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
    """A missing or damaged one is none: it is made anew from the batches."""
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
