"""A segment that was sealed, or left by a clean close, becomes the active one and grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogConfig, LogStore

SMALL = LogConfig(segment_bytes=400)


def begun(directory: Path, base_offset: int) -> None:
    """Leave the empty file of the next segment, as a power cut in a roll does."""
    (directory / f"{base_offset:020}.log").touch()


@pytest.mark.parametrize("count", [0, 3])
def test_regression_a_segment_that_a_close_left_grows_after_a_power_cut(
    tmp_path: Path, count: int
) -> None:
    """The new records were reported as damage, because the close had not seen them.

    The segment was taken at its trailer's word, because another one followed it; that one was
    empty, and went. So did the close that finds a log empty.
    """
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=SMALL)
        for number in range(count):
            log.append(b"%d" % number * 40)
    begun(tmp_path / "t-0", count + 7)
    (tmp_path / ".clean-shutdown").unlink()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store["t", 0]
        assert log.append(b"goes on", durable=True) == count
        assert log.verify() == []
        assert log[count].value == b"goes on"
        assert store.repair("t", 0).lost == []
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert store.recovery_report.is_sound
        assert [record.offset for record in store["t", 0]] == list(range(count + 1))


def test_regression_a_segment_that_a_close_left_shrinks_after_a_power_cut(tmp_path: Path) -> None:
    """A truncation cuts the last batch of the segment, and another batch replaces it."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=SMALL)
        for number in range(3):
            log.append(b"%d" % number * 40)
    begun(tmp_path / "t-0", 3)
    (tmp_path / ".clean-shutdown").unlink()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store["t", 0]
        log.truncate_to(2)
        assert log.append(b"x" * 40, durable=True) == 2
        assert log.verify() == []
        assert log[2].value == b"x" * 40
