"""A lock is released for its holder only while the holder will still check this."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import FrameType
from typing import Any
from weakref import ref

import pytest

from logstore.log.write import hung_locks
from logstore.log.write.hung_locks import NOT_WRITING, keeping, take_into_custody


class Owner:
    """An object with a lock, which a thread holds during a call that hangs until its release."""

    def __init__(self, *, by_hand: bool = False) -> None:
        self.by_hand, self.kept = by_hand, ""
        self.lock = threading.Lock()
        self.in_custody: set[str] = set()
        self.keepers: set[ref[keeping]] = set()
        self.writing = NOT_WRITING
        self.hangs, self.may_go = threading.Event(), threading.Event()
        self.is_decided = threading.Event()  # it has left, or waits for its lock
        self.thread = threading.Thread(target=self._hold, daemon=True)
        self.thread.start()
        assert self.hangs.wait(10)

    def _hold(self) -> None:
        with self.lock, contextlib.nullcontext() if self.by_hand else keeping(self, "lock"):
            if self.by_hand:
                self._keep_by_hand()
            else:
                self._hang()
        self.is_decided.set()

    def _hang(self) -> None:
        self.hangs.set()
        self.may_go.wait(10)

    def _keep_by_hand(self) -> None:
        self.kept = "lock"
        try:
            self._hang()
        finally:
            self.kept = ""
            if self.in_custody:
                hung_locks.reclaim(self, ("lock",))

    def come_back(self) -> None:
        """Let the hanging call return, and wait until it has no further effect."""
        self.may_go.set()
        assert self.is_decided.wait(10)


def interrupted_at(line: int, act: Any) -> Any:
    """Make a tracer that acts before the n-th line of `take_into_custody`."""
    seen = 0

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == line:
                act()
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        is_it = frame.f_code in (take_into_custody.__code__, hung_locks.is_kept.__code__)
        return on_line if is_it else None

    return on_call


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("line", range(1, 9))
def test_regression_another_holders_lock_is_left_to_him(
    line: int, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old holder returned and let another thread in, whose lock was then released."""
    owner, holders = Owner(by_hand=by_hand), []
    reclaim = hung_locks.reclaim

    def note(*arguments: Any) -> None:
        owner.is_decided.set()
        reclaim(*arguments)

    def come_back_and_let_in() -> None:
        owner.come_back()
        if owner.lock.acquire(blocking=False):
            holders.append("the next")

    monkeypatch.setattr(hung_locks, "reclaim", note)
    outer = sys.gettrace()
    sys.settrace(interrupted_at(line, come_back_and_let_in))
    try:
        take_into_custody(owner, "lock")
    finally:
        sys.settrace(outer)
    if holders:
        assert owner.lock.locked()
        owner.lock.release()
    else:
        owner.come_back()
    owner.thread.join(10)
    assert not owner.thread.is_alive()
    assert not owner.in_custody and not owner.keepers
    assert owner.lock.acquire(timeout=10)


@pytest.mark.parametrize("by_hand", [False, True])
def test_who_hangs_is_relieved_and_takes_the_lock_back(by_hand: bool) -> None:
    """The others get the lock meanwhile; the holder waits until they have released it."""
    owner = Owner(by_hand=by_hand)
    take_into_custody(owner, "lock")
    assert owner.in_custody == {"lock"}
    with owner.lock:
        owner.may_go.set()
        assert not owner.is_decided.is_set()
    owner.thread.join(10)
    assert not owner.in_custody and not owner.lock.locked()


def test_who_keeps_nothing_is_not_relieved() -> None:
    """A lock that is held only for moments is released by its holder."""
    owner = Owner()
    owner.come_back()
    with owner.lock:
        take_into_custody(owner, "lock")
        assert owner.lock.locked() and not owner.in_custody
