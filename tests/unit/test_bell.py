"""A bell wakes waiting threads, and does not break if a wait is interrupted."""

from __future__ import annotations

import threading
from _thread import allocate_lock

from logstore.disk.bell import Bell

WAIT_SECONDS = 60


def test_a_rung_bell_lets_nobody_wait() -> None:
    """After `clear`, a wait ends with its timeout."""
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    assert bell.wait() and bell.wait(0)
    bell.clear()
    assert not bell.wait(0.001)
    assert not bell.waiters


def test_it_wakes_all_that_wait() -> None:
    """Each thread checks its condition, and continues if the condition is true."""
    bell, facts = Bell(), set[str]()
    threads = [threading.Thread(target=bell.wait_for, args=(lambda: "done" in facts,))]
    threads.append(threading.Thread(target=bell.wait, args=(WAIT_SECONDS,)))
    for thread in threads:
        thread.start()
    facts.add("done")
    bell.ring()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert not bell.waiters


def test_what_an_interrupt_leaves_is_in_nobodys_way() -> None:
    """A lock for which no thread waits is dropped, whether it is held or released."""
    bell = Bell()
    held, woken = allocate_lock(), allocate_lock()
    held.acquire()
    bell.waiters.extend([held, woken])
    bell.wake()
    assert not bell.waiters and not held.locked()
