"""Test that each changed rule is noticed by a scripted or a random history."""

from __future__ import annotations

import pytest

from cluster_sim.histories import History, run
from cluster_sim.mutants import MUTANTS, changed
from cluster_sim.scripts import SCRIPTS, Script
from cluster_sim.shrink import shrink

# Where to begin the search for mutants that no script is about. After a change of the simulator,
# `python -m cluster_sim mutants` finds the first seeds again.
SEEDS = {
    "truncate_to_hw": 12,
    "ids_only": 2,
    "restart_is_whole": 2,
    "resume_epoch": 2,
    "no_broker_epoch": 2,
    "create_while_bad": 2,
    "ack_duplicate": 3,
    "reassign_early": 25,
    "gone_for_ever": 19,
    "no_renewal": 1,
    "anew_over_records": 1,
    "cut_at_zero": 13,
    "no_follow": 1,
    "never_anew": 17,
}
SEEDS_MAX = 200  # of each search
TOLD = {name: script for script in SCRIPTS for name in script.catches}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.tell.__name__)
def test_a_told_history_holds(script: Script) -> None:
    """With the real rules, each scripted history keeps all promises."""
    assert script.run() == ""


@pytest.mark.parametrize("name", TOLD)
def test_a_told_history_needs_its_rule(name: str) -> None:
    """Without the rule, the scripted history breaks a promise."""
    with changed(name):
        assert TOLD[name].run() != ""


def caught(name: str) -> tuple[int, History]:
    """Find the first seed whose history an active mutant violates, and its history."""
    mutant = MUTANTS[name]
    for seed in range(SEEDS[name], SEEDS[name] + SEEDS_MAX):
        history = run(seed, mutant.brokers, mutant.focus)
        if history.violation:
            return seed, history
    pytest.fail(f"{name} is not caught from seed {SEEDS[name]} on")


@pytest.mark.parametrize("name", SEEDS)
def test_a_random_history_needs_the_rule(name: str) -> None:
    """The first history that the mutant violates keeps all promises with the real rules."""
    with changed(name):
        seed, _ = caught(name)
    assert run(seed, MUTANTS[name].brokers, MUTANTS[name].focus).violation == ""


def test_each_mutant_is_caught() -> None:
    """Each mutant has a script or a seed."""
    assert set(TOLD) | set(SEEDS) == set(MUTANTS)
    assert not set(TOLD) & set(SEEDS)


def test_a_violation_shrinks() -> None:
    """The shrunk history violates the same invariant in fewer steps."""
    with changed("restart_is_whole"):
        _, history = caught("restart_is_whole")
        steps = shrink(history)
    assert 0 < len(steps) < len(history.steps)
