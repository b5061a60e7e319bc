"""Elect a leader that may lack acknowledged records, if settings or an operator allow it.

A former leader must not acknowledge records after an unclean election (P16). If the former leader
has no registration any more, its lease has ended. But not every leader stops at the end of its
lease: it must know the topic's setting for unclean elections. So the field `is_lease_kept` of the
state says whether the leader knows this setting.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.pure.elect import Decision, Known
from cluster.pure.log_ends import longest
from cluster.registration import NO_BROKER, Registration
from cluster.state import State


def elect_uncleanly(
    state: State, known: Known, registered: Mapping[int, Registration], *, is_forced: bool = False
) -> Decision | None:
    """Let the live replica with the longest log lead, even if it lacks records (P16).

    The election waits until no former leader can acknowledge records. For each replica, one of two
    facts proves this: its broker has no registration in the store, or the replica has answered
    after the partition lost its leader.

    Args:
        registered: the registrations in the store, including brokers whose port refused a
            connection.
        is_forced: whether an operator asserts that all brokers without a registration have stopped.
    """
    if state.leader != NO_BROKER or not (state.is_unclean_allowed or is_forced):
        return None
    logs = []
    for m in state.replicas:
        answer = known.fresh_answer(m)
        if answer is not None and not answer.is_offline:
            logs.append((answer.last_epoch, answer.log_end_offset, m))
    if not logs or not is_lease_over(state, known, registered, is_forced=is_forced):
        return None
    leader = longest(logs)
    epoch = known.registration_epoch(leader)
    state = state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        leader_registration_epoch=epoch,
        isr={leader: epoch},
        elr={},
        suspects=frozenset(),
        unclean_epoch=state.leader_epoch + 1,
    )
    return Decision(state, "an unclean election", is_recovery=True)


def is_lease_over(
    state: State, known: Known, registered: Mapping[int, Registration], *, is_forced: bool = False
) -> bool:
    """Check that no replica can still act as the leader of an earlier version (P16)."""
    for m in state.replicas:
        registration, answer = registered.get(m), known.answers.get(m)
        if registration is None:
            if not (is_forced or state.is_lease_kept):
                return False
            continue
        if answer is None or answer.registration_epoch != registration.registration_epoch:
            return False
        if not answer.is_offline and answer.version != known.version:
            return False
    return True
