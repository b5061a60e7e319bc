"""Test the whole table of a log dir's states: all sets of conditions with all events."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from logstore.disk.states import (
    REMEDIES,
    TABLE,
    Conditions,
    Event,
    LogDirState,
    after,
    state_of,
)

ONLINE, READ_ONLY, CORDONED = LogDirState.ONLINE, LogDirState.READ_ONLY, LogDirState.CORDONED
SUSPECT, OFFLINE, SLOW = LogDirState.SUSPECT, LogDirState.OFFLINE, LogDirState.SLOW
OUTDATED = LogDirState.OUTDATED
KINDS = (READ_ONLY, CORDONED, SLOW, OUTDATED, SUSPECT, OFFLINE)

ALL = [
    frozenset(some)
    for some in chain.from_iterable(combinations(KINDS, count) for count in range(len(KINDS) + 1))
]
# An offline dir is neither full nor slow nor suspect any more, and what comes back is unknown.
REAL = [some for some in ALL if OFFLINE not in some or some <= {OFFLINE, CORDONED}]


def expected(before: Conditions, event: Event) -> Conditions:
    """State the rules again, in another form than the table."""
    if event is Event.CORDON:
        return before | {CORDONED}
    if event is Event.UNCORDON:
        return before - {CORDONED}
    if event is Event.FAILED:
        return (before & {CORDONED}) | {OFFLINE}
    if OFFLINE in before:
        return before
    adds = {Event.STUCK: SUSPECT, Event.FULL: READ_ONLY, Event.SLOWED: SLOW}
    adds[Event.OUTDATED] = OUTDATED
    ends = {Event.ANSWERED: SUSPECT, Event.ROOM: READ_ONLY, Event.KEPT_UP: SLOW}
    ends[Event.ACCEPTED] = OUTDATED
    return before | {adds[event]} if event in adds else before - {ends[event]}


def name_of(before: Conditions) -> str:
    """Name conditions in a fixed order, so that all workers collect the same tests."""
    return "+".join(kind.name for kind in KINDS if kind in before) or "none"


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("before", REAL, ids=name_of)
def test_every_event_in_every_state(before: Conditions, event: Event) -> None:
    """Each event does what the rules say, gives valid conditions, and has no second effect."""
    once = after(before, event)
    assert once == expected(before, event)
    assert once in REAL
    assert after(once, event) == once


def test_offline_never_ends() -> None:
    """After any events in any order, only a dir that is opened again serves."""
    for event in Event:
        for other in Event:
            assert OFFLINE in after(after(frozenset({OFFLINE}), event), other)


def test_every_event_has_a_row_and_every_state_a_remedy() -> None:
    """Every case is defined."""
    assert set(TABLE) == set(Event)
    assert set(REMEDIES) == set(LogDirState)


def test_the_gravest_condition_is_shown() -> None:
    """The order is: offline, suspect, old copy, full, cordoned, slow, online."""
    assert state_of(frozenset()) is ONLINE
    order = [SLOW, CORDONED, READ_ONLY, OUTDATED, SUSPECT, OFFLINE]
    for number, state in enumerate(order):
        assert state_of(frozenset(order[: number + 1])) is state
