"""Stores for tests of what a power cut takes from a change that was durable."""

from __future__ import annotations

from pathlib import Path

from crash.power_cut import QUIET
from logstore import LogConfig, LogStore
from support.crash_model import CrashModel
from support.inside import abandon
from support.recorder import Recorder, lay_out

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=256)
DIRS = ("a", "b", "c")


def open_store(root: Path) -> LogStore:
    return LogStore.open([root / name for name in DIRS], config=QUIET, admin_socket=False)


def leave(store: LogStore) -> None:
    """Let go of a store as a killed process does."""
    abandon(store)


def cut(recorder: Recorder, root: Path) -> Path:
    """Lay out what a power cut leaves that takes all that is not synced."""
    model = CrashModel(recorder.image)
    for op in recorder.ops:
        model.apply(op)
    lay_out(model.lost(), root)
    return root


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number * 60 for number in range(count)]
