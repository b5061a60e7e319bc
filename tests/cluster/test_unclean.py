"""Test unclean elections, which need that no former leader can still serve."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pure.elect import Decision, Known
from cluster.pure.unclean import elect_uncleanly
from cluster.registration import NO_BROKER, Registration, TopicIdentity
from cluster.requests import RoleAnswer
from cluster.state import State, fault_of

TOPIC = TopicIdentity("orders", 5)
VERSION = 4
LEADERLESS = State(
    leader=NO_BROKER,
    leader_epoch=3,
    controller_epoch=1,
    isr={},
    elr={1: 10},
    suspects=frozenset(),
    leader_registration_epoch=0,
    replicas=(1, 2, 3),
    target=None,
    min_isr=2,
    is_unclean_allowed=True,
    is_lease_kept=True,
)


def registered(**epochs: int | None) -> dict[int, Registration]:
    """Return registrations at 10, 20 and 30, with changes by name: `b1=None` for gone."""
    found = {"b1": 10, "b2": 20, "b3": 30, **epochs}
    return {int(m[1:]): Registration(one, one, {}) for m, one in found.items() if one is not None}


def answer(broker: int, epoch: int, **facts: Any) -> RoleAnswer:
    """Return the answer of a replica for the present version."""
    return RoleAnswer(TOPIC, 0, broker, epoch, **{"is_offline": False, "version": VERSION, **facts})


def uncleanly(
    registrations: dict[int, Registration],
    *answers: RoleAnswer,
    state: State = LEADERLESS,
    is_forced: bool = False,
) -> Decision | None:
    """Elect uncleanly while broker 1, the former leader, is unreachable."""
    seen = {m: one for m, one in registrations.items() if m != 1}
    known = Known(seen, {one.broker: one for one in answers}, VERSION)
    return elect_uncleanly(state, known, registrations, is_forced=is_forced)


def test_an_unclean_election_takes_the_longest_log() -> None:
    """The live replica with the latest log leads, alone, and the state is marked (P16)."""
    answers = answer(2, 20, last_epoch=2, log_end_offset=3), answer(3, 30, log_end_offset=9)
    decision = uncleanly(registered(b1=None), *answers)
    assert decision is not None and decision.is_recovery
    state = decision.state
    assert (state.leader, state.isr, state.elr, state.unclean_epoch) == (2, {2: 20}, {}, 4)
    assert fault_of(state) == ""


def test_an_unclean_election_waits_for_the_lease() -> None:
    """A former leader that is registered and has not answered may still serve (P16)."""
    others = answer(2, 20), answer(3, 30)
    assert uncleanly(registered(), *others) is None
    assert uncleanly(registered(), *others, answer(1, 10, version=VERSION - 1)) is None
    assert uncleanly(registered(), *others, answer(1, 10)) is not None
    assert uncleanly(registered(), *others, answer(1, 10, version=1, is_offline=True)) is not None


def test_an_unclean_election_needs_a_leaderless_state() -> None:
    """With a leader, or without any answer, nothing happens."""
    known = Known(registered(b1=None), {}, VERSION)
    leading = LEADERLESS._replace(leader=2, isr={2: 20})
    assert elect_uncleanly(leading, known, registered(b1=None)) is None
    assert elect_uncleanly(LEADERLESS, known, registered(b1=None)) is None


@pytest.mark.parametrize(
    ("changes", "is_forced", "is_elected"),
    [
        ({}, False, True),
        ({"is_lease_kept": False}, False, False),
        ({"is_lease_kept": False}, True, True),
        ({"is_lease_kept": False, "is_unclean_allowed": False}, False, False),
        ({"is_lease_kept": False, "is_unclean_allowed": False}, True, True),
    ],
)
def test_a_registration_that_is_gone_stops_a_leader_that_knows_the_setting(
    changes: dict[str, Any], is_forced: bool, is_elected: bool
) -> None:
    """Otherwise an operator has to assert that its broker does not run (P16)."""
    answers = answer(2, 20), answer(3, 30)
    state = LEADERLESS._replace(**changes)
    decision = uncleanly(registered(b1=None), *answers, state=state, is_forced=is_forced)
    assert (decision is not None) is is_elected


def test_replicas_that_answered_need_no_lease() -> None:
    """They have obeyed the version without a leader."""
    answers = answer(1, 10), answer(2, 20), answer(3, 30)
    assert uncleanly(registered(), *answers, state=LEADERLESS._replace(is_lease_kept=False))
