"""Log dirs are taken into possession in a limited time, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from logstore.disk.log_dir import LogDir
from logstore.store.dirs import takeover
from logstore.store.dirs.parallel import Outcome


def test_regression_who_ends_as_he_is_given_up_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ended when it was given up, and no thread freed the lock: no reopen worked."""

    def just_too_late(
        log_dirs: Sequence[LogDir], work: Callable[[LogDir], object], *_: object, name: str
    ) -> list[Outcome[LogDir]]:
        for log_dir in log_dirs:
            work(log_dir)
        return [Outcome(log_dir, None, is_finished=False) for log_dir in log_dirs]

    monkeypatch.setattr(takeover, "in_time", just_too_late)
    log_dir = LogDir(str(tmp_path))
    takeover.each([log_dir], lambda one: takeover.lock(one, is_new=False), 1.0)
    assert log_dir.is_offline
    assert not log_dir.lock.is_held
