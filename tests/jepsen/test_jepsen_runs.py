"""Three short runs with real brokers in network namespaces; `make jepsen` does long ones.

They need root and network namespaces.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jepsen import clocks
from jepsen.history import read
from jepsen.isr_of_one import play
from jepsen.plan import TRANSACTIONS, Plan
from jepsen.random_run import run
from jepsen.runs import Run, faults_of, finished, table_of_faults, table_of_isr
from jepsen.transactions.run import run_transactions
from support.layers import demand
from support.network import why_not

# Sessions end after 3 s of silence, which a crowded machine reaches without a fault.
pytestmark = pytest.mark.alone
SECONDS = 5.0
WRITES = 300


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Say loudly if no network can be made here."""
    demand("brokers in network namespaces", why_not() or clocks.why_not())


def test_an_isr_of_one_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """With min 2, writes are refused while the ISR is its leader, and then another one leads."""
    outcome = play("min 2", "killed", WRITES, tmp_path, lag_ms=1_000)
    assert not outcome.faults, outcome
    assert outcome.acknowledged == WRITES
    assert (outcome.alone, outcome.lost) == (0, 0)
    (again,) = finished([Run(tmp_path, ["not started again"], 0.0)])
    assert f"| min 2 | killed | 1 | {WRITES} | {WRITES} | 0 |" in table_of_isr([again])


def test_a_random_run_breaks_no_promise(tmp_path: Path) -> None:
    """The network, processes and clocks fail; at the end all replicas have the same."""
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    families = ("network", "processes", "clocks")
    plan = Plan(seed, SECONDS, readers=1, rate=60.0, lag_ms=1_500, families=families)
    result = run(plan, tmp_path)
    assert result.is_good, result
    assert result.acknowledged > 100 and result.counts
    assert any("jumped" in effect for effect in result.effects), result.effects
    events = read(tmp_path / "history.jsonl.gz")
    assert {event.what for event in events} >= {"send", "read", "replica", "fault"}
    (again,) = finished([Run(tmp_path, ["not started again"], 0.0)])
    assert not faults_of(again) and again["acknowledged"] == result.acknowledged
    assert f"1 runs, {result.acknowledged} records acknowledged" in table_of_faults([again])


def test_a_random_run_with_transactions_breaks_no_promise(tmp_path: Path) -> None:
    """Transactions end as their clients were promised, while the network and processes fail."""
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    plan = Plan(seed, SECONDS, readers=1, lag_ms=1_500, workload=TRANSACTIONS)
    result = run_transactions(plan, tmp_path)
    assert result.is_good, result
    assert result.acknowledged > 10 and result.counts
    events = read(tmp_path / "history.jsonl.gz")
    assert {event.what for event in events} >= {"init", "write", "commit", "committed", "end"}
    assert {event.process for event in events if event.what == "committed"} >= {
        "last", "last in r1", "b3",
    }  # fmt: skip
