"""Test that work for another thread is done once, or not at all."""

from __future__ import annotations

import threading

import pytest

from cluster.control.work import Work


def test_a_result_reaches_the_thread_that_waits() -> None:
    """The thread also learns that the work was dropped; an error reaches both threads."""
    done = Work(lambda: 5)
    thread = threading.Thread(target=done.perform)
    thread.start()
    assert done.wait(20) == 5
    thread.join()
    dropped = Work(lambda: 5)
    dropped.drop()
    assert dropped.wait(20) is None

    def fail() -> int:
        raise OSError("no")

    failed = Work(fail)
    with pytest.raises(OSError, match="no"):
        failed.perform()
    with pytest.raises(OSError, match="no"):
        failed.wait(20)


def test_work_that_nobody_waits_for_is_not_done() -> None:
    """Its caller has told a client that nothing happened."""
    calls: list[int] = []
    for end in (Work[None].perform, Work[None].drop):
        late = Work(lambda: calls.append(1))
        with pytest.raises(TimeoutError):
            late.wait(0.0)
        end(late)
    assert calls == []
