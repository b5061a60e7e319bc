"""Test that the model notices each changed rule of the groups of the new protocol."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from broker.consumer_groups.exchange import Refused
from support.changed_rules import changed_rule
from support.consumer_group_history import History

HISTORIES_MAX = 400
STEPS = 60

USERS = [
    f"broker.consumer_groups.{one}" for one in ("member_steps", "leaving", "targets", "heartbeats")
]


class Mutant(NamedTuple):
    """One rule changed: a piece of a module's source, and what replaces it."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "a partition is given away before its owner has given it up",
        "member_steps",
        "if group.owners.get(place, member.id) == member.id}", "}; "
        "[group.owners.pop(place, None) for place in missing]",
    ),
    Mutant(
        "a partition is taken without a word of its owner",
        "member_steps", "if lost and (owned is None or owned & lost):", "if lost and owned:",
    ),
    Mutant(
        "a member that still has partitions goes on",
        "member_steps", "if owned is None or owned & member.revoking:", "if owned is None:",
    ),
    Mutant(
        "a member never gets what others have given up",
        "member_steps", "MemberState.UNRELEASED if missing - free else", "",
    ),
    Mutant(
        "a member that gives up nothing stays",
        "leaving", "member.revocation_deadline if is_revoking else NEVER", "NEVER",
    ),
    Mutant(
        "a member leaves, and its partitions have no reader",
        "leaving", "    group.bump()\n", "",
    ),
    Mutant(
        "a change of a topic goes unnoticed",
        "targets", "if has_changed or found != group.metadata_hash:", "if has_changed:",
    ),
    Mutant(
        "an expression is matched only once",
        "targets", "if pattern in group.resolved and basis == matched.get(pattern):",
        "if pattern in group.resolved:",
    ),
    Mutant(
        "any epoch is accepted",
        "heartbeats", "is_late = epoch == member.previous_epoch and epoch < member.epoch",
        "is_late = True",
    ),
    Mutant(
        "a lost answer ends a member",
        "heartbeats", "    if is_late and asked.owned is not None and asked.owned <= "
        "member.assigned:\n        return\n", "",
    ),
    Mutant(
        "a static member loses its place when it returns",
        "heartbeats", "    if target is not None:\n", "    if False:\n",
    ),
    Mutant(
        "two processes are the same instance",
        "heartbeats", "            if is_joining:\n                reason = f\"{name} cannot",
        "            if is_joining:\n                return holder\n"
        "                reason = f\"{name} cannot",
    ),
    Mutant(
        "the target is not written",
        "targets", "            group.unsaved_targets[member_id] = None\n", "",
    ),
    Mutant(
        "a change of a subscription is not written",
        "heartbeats", "    if old is not member or facts != member.facts():\n",
        "    if old is not member:\n",
    ),
)  # fmt: skip


def changed(mutant: Mutant) -> AbstractContextManager[None]:
    """Replace the functions of a module by those of its changed source."""
    return changed_rule(f"broker.consumer_groups.{mutant.module}", mutant.old, mutant.new, USERS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices_a_changed_rule(mutant: Mutant) -> None:
    """With the rule changed, a promise is broken in some history."""
    with changed(mutant), pytest.raises((AssertionError, KeyError, Refused)):
        for seed in range(HISTORIES_MAX):
            History(seed).run(STEPS)
