"""Test that only one thread checks a waiting request, and that no wake-up is lost."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.machines.wakeup import Phase, Wakeup

# By state: what `wake`, `rest` and `end` make of it, and what they return.
TABLE = {
    Phase.LOOKING: {
        "wake": (Phase.AGAIN, False), "rest": (Phase.RESTING, True), "end": (Phase.DONE, True),
    },
    Phase.AGAIN: {
        "wake": (Phase.AGAIN, False), "rest": (Phase.LOOKING, False), "end": (Phase.DONE, True),
    },
    Phase.RESTING: {
        "wake": (Phase.LOOKING, True), "rest": (Phase.RESTING, True), "end": (Phase.DONE, True),
    },
    Phase.DONE: {
        "wake": (Phase.DONE, False), "rest": (Phase.DONE, True), "end": (Phase.DONE, False),
    },
}  # fmt: skip


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", ["wake", "rest", "end"])
def test_the_table_of_the_document_holds(phase: Phase, event: str) -> None:
    """Each state changes as the module documents, and tells the caller what to do."""
    wakeup = Wakeup()
    wakeup.phase = phase
    assert getattr(wakeup, event)() == TABLE[phase][event][1]
    assert wakeup.phase is TABLE[phase][event][0]


@given(st.lists(st.booleans(), max_size=60))
def test_a_change_is_always_followed_by_a_look(events: list[bool]) -> None:
    """In any order of changes and steps, the last check comes after the last change."""
    wakeup, changed, seen, is_looking = Wakeup(), 0, -1, True
    for is_change in events:
        if is_change:
            changed += 1
            started = wakeup.wake()
            assert not (started and is_looking), "two threads look"
            is_looking = is_looking or started
        elif is_looking:
            seen = changed
            is_looking = not wakeup.rest()
    for _ in range(2):
        if is_looking:
            seen = changed
            is_looking = not wakeup.rest()
    assert seen == changed and not is_looking


def test_threads_lose_nothing() -> None:
    """Several waking threads and one checking thread agree about the last change."""
    wakeup, changes = Wakeup(), [0]
    looks, done = [0], threading.Event()
    adding = threading.Lock()

    def look() -> None:
        while True:
            looks[0] = changes[0]
            if looks[0] == 4 * 500:
                done.set()
            if wakeup.rest():
                return

    def change(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(500):
            with adding:
                changes[0] += 1
            if wakeup.wake():
                look()
            if rng.random() < 0.01:
                threading.Event().wait(0.0001)

    look()
    threads = [threading.Thread(target=change, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done.wait(10) and looks[0] == 2000
