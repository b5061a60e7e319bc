"""Test that the model notices each changed rule of groups with members of both protocols."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from broker.consumer_groups.member import Member
from broker.coordinator.hosted import Hosted
from support.changed_rules import changed_rule
from support.mixed_group_history import MixedHistory

HISTORIES_MAX = 400
STEPS = 60
USERS = (
    "broker.consumer_groups.leaving", "broker.coordinator.consumer_hosting",
    "broker.coordinator.group_kinds", "broker.groups.records",
    "broker.mixed_groups.classic_members", "broker.mixed_groups.conversion",
)  # fmt: skip


class Mutant(NamedTuple):
    """One rule changed: a piece of a module's source, and what replaces it."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "a joining member is taken to have given up everything",
        "mixed_groups.classic_members", "owned=consumer_bytes.ids_of(subscription.owned, topics)",
        "owned=NOTHING",
    ),
    Mutant(
        "a member that lacks partitions is never told that they are free",
        "mixed_groups.classic_members",
        "return member.state is MemberState.UNRELEASED and is_free", "return False",
    ),
    Mutant(
        "a removed member joins as if it still had its partitions",
        "mixed_groups.classic_members", "subscription.owned and asked.member_id not in",
        "False and asked.member_id not in",
    ),
    Mutant(
        "a partition that a member claims is free",
        "mixed_groups.conversion", "for place, (_, member_id) in claims.items()}",
        "for place, (_, member_id) in ()}",
    ),
    Mutant(
        "the timer does not learn that a member must join again",
        "mixed_groups.classic_members", "        group.has_new_deadline = True\n", "",
    ),
    Mutant(
        "a group that became classic begins no rebalance",
        "mixed_groups.conversion", "    rebalance.begin(made, now)\n", "",
    ),
    Mutant(
        "a group that became classic begins no rebalance after a restart",
        "groups.records", "        rebalance.begin(group, now)\n", "",
    ),
)  # fmt: skip


def changed(mutant: Mutant) -> AbstractContextManager[None]:
    """Replace the functions of a module by those of its changed source."""
    return changed_rule(f"broker.{mutant.module}", mutant.old, mutant.new, USERS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices_a_changed_rule(mutant: Mutant) -> None:
    """With the rule changed, a promise is broken in some history."""
    with changed(mutant), pytest.raises((AssertionError, KeyError)):
        for seed in range(HISTORIES_MAX):
            MixedHistory(seed, fills_disk=False).run(STEPS)


@pytest.mark.parametrize(
    ("owner", "name", "changed_one"),
    [
        (Hosted, "is_converting", property(lambda hosted: False)),
        (Member, "is_changed_by", lambda member, asked: False),
    ],
    ids=["a conversion that the log refused stays", "the facts of a member are not kept"],
)
def test_the_model_notices_a_change_that_is_not_undone(
    owner: type, name: str, changed_one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log refuses some writes, and then the group must agree with the log."""
    monkeypatch.setattr(owner, name, changed_one)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(HISTORIES_MAX):
            MixedHistory(seed).run(STEPS)
