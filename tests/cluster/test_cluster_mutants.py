"""Each changed rule is noticed: by a told history, or by a random history of a known seed."""

from __future__ import annotations

import pytest

from cluster_sim.histories import run
from cluster_sim.mutants import MUTANTS, changed
from cluster_sim.scripts import SCRIPTS, Script
from cluster_sim.shrink import shrink

# Where to begin the search for mutants that no script is about. After a change of the simulator,
# `python -m cluster_sim mutants` finds the first seeds again.
SEEDS = {
    "truncate_to_hw": 6,
    "kip101_only": 110,
    "ids_only": 23,
    "restart_is_whole": 2,
    "ack_before_persist": 54,
    "resume_epoch": 38,
    "no_broker_epoch": 2,
    "create_while_bad": 32,
    "ack_duplicate": 3,
    "reassign_early": 12,
    "other_id_ignored": 10,
    "gone_for_ever": 22,
}
SEEDS_MAX = 200  # of each search
TOLD = {name: script for script in SCRIPTS for name in script.catches}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.tell.__name__)
def test_a_told_history_holds(script: Script) -> None:
    """With the rules as they are."""
    assert script.run() == ""


@pytest.mark.parametrize("name", TOLD)
def test_a_told_history_needs_its_rule(name: str) -> None:
    """Without the rule, a promise is broken."""
    with changed(name):
        assert TOLD[name].run() != ""


@pytest.mark.parametrize("name", SEEDS)
def test_a_random_history_needs_the_rule(name: str) -> None:
    """The first history that the mutant violates holds with the rules."""
    mutant = MUTANTS[name]
    seeds = range(SEEDS[name], SEEDS[name] + SEEDS_MAX)
    with changed(name):
        found = next((s for s in seeds if run(s, mutant.brokers, mutant.focus).violation), None)
    assert found is not None
    assert run(found, mutant.brokers, mutant.focus).violation == ""


def test_each_mutant_is_caught() -> None:
    """No mutant is without a script or a seed."""
    assert set(TOLD) | set(SEEDS) == set(MUTANTS)
    assert not set(TOLD) & set(SEEDS)


def test_a_violation_shrinks() -> None:
    """What is left violates the same invariant with fewer steps."""
    with changed("truncate_to_hw"):
        history = run(SEEDS["truncate_to_hw"])
        steps = shrink(history)
    assert 0 < len(steps) < len(history.steps)
