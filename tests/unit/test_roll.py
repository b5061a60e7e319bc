"""The file of an interrupted roll is removed or used; other files are never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.log.write import roll
from support.hanging import QUIET


def test_an_empty_file_is_used_and_another_one_is_kept(tmp_path: Path) -> None:
    """An interrupted roll can only leave an empty file."""
    path = tmp_path / "00000000000000000001.log"
    path.touch()
    os.close(roll.create_file(str(path)))
    path.write_bytes(b"a record")
    with pytest.raises(FileExistsError):
        roll.create_file(str(path))
    assert path.read_bytes() == b"a record"


def test_the_active_segment_is_never_taken_for_a_rest(tmp_path: Path) -> None:
    """The interrupt may come after the roll, before its entry is removed from `half_made`."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        log.append(b"a value")
        log._state.half_made = (log._state.active.log_path,)
        roll.undo(log._state)
        assert not log._state.half_made
        assert log[0].value == b"a value" and Path(log._state.active.log_path).exists()
