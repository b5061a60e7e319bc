"""Test that the model notices each changed rule of the groups."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from support.group_machine import GroupMachine

EXAMPLES_MAX = 4000


class Mutant(NamedTuple):
    """One rule changed: a piece of a module's source, and what replaces it."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "a member whose request was refused is not heard of",
        "rebalance", "            member.hear(now.seconds)  # without", "            # without",
    ),
    Mutant("a new leader is not chosen", "rebalance", "group.leader_id = joined[0].id", "pass"),
    Mutant(
        "a member that does not sync stays",
        "assignment", "group.unsynced.discard(member.id)", "group.unsynced.clear()",
    ),
    Mutant(
        "the old id of an instance is a member too",
        "joining", "(member_id, member) if key == old_id else (key, other)", "(key, other)",
    ),
    Mutant(
        "a new place of an instance is not saved",
        "joining", "    group.is_unsaved = True\n", "",
    ),
    Mutant(
        "the assignments are not saved",
        "assignment", "    group.is_unsaved = True\n", "",
    ),
    Mutant(
        "a session ends while its member waits",
        "member", "and (self.is_new or not is_waiting)", "and True",
    ),
    Mutant(
        "an id that nobody used holds a rebalance for ever",
        "sessions", "        min(group.pending.values(), default=NEVER),\n", "",
    ),
    Mutant(
        "a protocol is chosen that one member lacks",
        "group", "if name in common)", "if True)",
    ),
    Mutant(
        "the assignments of the generation before are handed out",
        "assignment",
        "    if group.state is State.STABLE:\n",
        "    if group.state is State.STABLE or member.assignment:\n",
    ),
)  # fmt: skip


@contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """Replace the functions of a module by those of its changed source."""
    module = importlib.import_module(f"broker.groups.{mutant.module}")
    source = inspect.getsource(module)
    assert source.count(mutant.old) == 1, mutant.name
    made: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(mutant.old, mutant.new), "changed", "exec"), made)
    with pytest.MonkeyPatch.context() as patch:
        for name, one in list(made.items()):
            if getattr(one, "__module__", "") != module.__name__:
                continue
            real = getattr(module, name)
            if inspect.isfunction(one):
                patch.setattr(module, name, one)
            elif inspect.isclass(one):  # others have imported the class: change its methods
                for key, method in vars(one).items():
                    if inspect.isfunction(method):
                        patch.setattr(real, key, method)
                made[name] = real
        yield


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices_a_changed_rule(mutant: Mutant) -> None:
    """With the rule changed, a promise is broken in some history."""
    few = settings(
        max_examples=EXAMPLES_MAX, stateful_step_count=60, deadline=None, derandomize=True,
        database=None, phases=[Phase.generate], report_multiple_bugs=False,
    )  # fmt: skip
    with changed(mutant), pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(GroupMachine, settings=few)
