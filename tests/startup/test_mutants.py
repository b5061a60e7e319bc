"""Each rule of the start-up table, changed or dropped, is noticed by the histories or the cases."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from logstore.store.start.startup_table import decide, is_covered
from startup.cases import all_cases, expected
from startup.decided_cases import decided
from startup.history_model import search
from startup.mutants import MUTANTS, Mutant, changed_table
from startup.partition_world import RULES

DEPTH = int(os.environ.get("LOGSTORE_HISTORY_DEPTH", "9"))


@pytest.fixture
def rules() -> Iterator[None]:
    """Put the real table back after a test."""
    yield
    RULES.decide, RULES.is_covered = decide, is_covered


def broken_cases(mutant: Mutant) -> list[str]:
    """Name the cases in which a changed table does something else."""
    table = changed_table(mutant)
    return [
        str(case)
        for case in all_cases()
        if decided(case, table.decide, table.is_covered) != expected(case)
    ]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_changed_rule_is_caught(mutant: Mutant, rules: None) -> None:
    """By a case that comes out otherwise, or by a history in which a promise is broken."""
    broken = broken_cases(mutant)
    if not broken or "LOGSTORE_HISTORY_DEPTH" in os.environ:
        table = changed_table(mutant)
        RULES.decide, RULES.is_covered = table.decide, table.is_covered
        outcome = search(DEPTH, stop_at_first=True)
        print(f"{mutant.name}: {len(broken)} cases; {outcome.violations}")
        assert broken or outcome.violations
