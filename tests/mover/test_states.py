"""Test the table of a move's states, and the documents that are made from the table."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mover import IllegalTransitionError, MoveState, state

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_state_stands_in_the_table() -> None:
    """The table has every state, and no state leads to itself."""
    assert set(state.TRANSITIONS) == set(MoveState)
    assert all(old not in new for old, new in state.TRANSITIONS.items())


@pytest.mark.parametrize("old", MoveState)
def test_only_the_table_is_legal(old: MoveState) -> None:
    """Transitions in the table are allowed; others raise, with both states as attributes."""
    for new in MoveState:
        if new in state.TRANSITIONS[old]:
            state.check_transition(old, new)
            continue
        with pytest.raises(IllegalTransitionError) as caught:
            state.check_transition(old, new)
        assert (caught.value.state, caught.value.wanted) == (old.value, new.value)


def test_every_state_is_reached_and_left() -> None:
    """Each state can be reached from the first; a running move can be stopped in each way."""
    reached = {MoveState.PLANNED}
    for _ in MoveState:
        reached |= set(itertools.chain(*(state.TRANSITIONS[one] for one in reached)))
    assert reached == set(MoveState)
    for running in state.RUNNING:
        stops = {MoveState.PAUSED, MoveState.CANCELLED, MoveState.FAILED}
        assert stops <= set(state.TRANSITIONS[running])
    assert {s for s in MoveState if s.is_end} == state.ENDS
    assert not state.TRANSITIONS[MoveState.DONE]


@pytest.mark.parametrize("path", ["src/mover/state.py", "docs/ARCHITECTURE.md"])
def test_the_documents_show_the_table(path: str) -> None:
    """The table in the documents is the one in the code."""
    assert state.table() in (REPOSITORY / path).read_text(encoding="utf-8")
