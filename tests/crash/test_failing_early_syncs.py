"""Let each sync beside the copying fail in its turn: the kernel drops what it was to write (R6).

The file looks clean from then on: the next sync of it succeeds, and what is read back comes from
memory. Only who heard of the failure knows that the disk has other bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crash.checks import PowerCutViolation
from crash.early_syncs import syncing_early
from crash.move_checks import check_image
from crash.move_cut import MovingHistory, open_store
from crash.power_cut import replay
from logstore import LogDirOfflineError, LogStoreError
from logstore.disk import files
from mover.copying.copy_segments import SegmentCopy
from mover.copying.early_sync import EarlySync
from support.crash_model import CrashModel, Image
from support.inside import abandon, keepers_of
from support.places import fast_directory
from support.recorder import Recorder

NTH_MAX = 200


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def move_and_fail(root: Path, nth: int) -> tuple[Recorder, MovingHistory, bool]:
    """Move a log whose n-th early sync fails, and append; tells whether there was one."""
    root.mkdir()
    with Recorder(root) as recorder, syncing_early(recorder, nth, nth) as syncs:
        store = open_store(root)
        history = MovingHistory(recorder, store, 3)
        history.is_busy, history.chunk_bytes = False, 350
        for _ in range(8):
            history.extend(8, durable=True)
        history.move(store.log_dirs[1])
        history.purge_all()
        history.extend(2, durable=True)
        abandon(store)
        for keeper in keepers_of(store).values():
            keeper.stop()
    return recorder, history, syncs.count > nth


def what_arrived(model: CrashModel) -> Image:
    """Give what the disks have once all is written that they did not refuse."""
    kept = {(id(file), block) for file in model.files.values() for block in file.dirty}
    image: Image = {}
    model.commit(model.changes)
    model.draw(model.root, "", image, lambda file: file.with_blocks(kept))
    return image


def fail_each(base: Path) -> list[LogStoreError | None]:
    """Let each early sync fail; look at what a start makes of it, and give the moves' errors."""
    errors: list[LogStoreError | None] = []
    for nth in range(NTH_MAX):
        recorder, history, has_failed = move_and_fail(base / str(nth), nth)
        if not has_failed:
            break
        errors.append(history.error)
        *_, (model, known) = replay(recorder.ops)
        check_image(base / "after", what_arrived(model), known, is_thorough=True)
    return errors


@pytest.mark.timeout(120)
def test_a_failed_early_sync_takes_nothing(base: Path) -> None:
    """Whichever it is, the move fails, and the log stays where all of it is durable."""
    errors = fail_each(base)
    print(f"crash: moves: {len(errors)} failing early syncs")
    assert 10 < len(errors) < NTH_MAX
    assert all(isinstance(error, LogDirOfflineError) for error in errors), errors


def swallow(self: EarlySync) -> None:
    """Sync, and tell nobody how it went."""
    with suppress(OSError):
        files.sync_data(self._handle.fd)


def do_not_wait(self: SegmentCopy) -> None:
    """Leave the sync that is under way alone."""
    self._early_sync = None


WORSE: dict[str, tuple[Any, str, Any]] = {
    "its error is swallowed": (EarlySync, "_run", swallow),
    "the last sync does not wait for it": (SegmentCopy, "_finish_early_sync", do_not_wait),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", WORSE)
def test_a_worse_early_sync_is_found(
    base: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The harness finds a copy in the place of its source that the disk does not have."""
    place, attribute, worse = WORSE[name]
    monkeypatch.setattr(place, attribute, worse)
    with pytest.raises(PowerCutViolation):
        fail_each(base)
