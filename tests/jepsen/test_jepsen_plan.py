"""The seeds draw every family of faults, and the result of a run names what they did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jepsen.nemesis import FAMILIES, faults_of
from jepsen.plan import BROKERS, RECORDS, SPARE, TOPIC, TRANSACTIONS, Plan
from jepsen.runs import Run, finished, random_runs, table_of_faults

SEEDS = 100


def test_a_seed_always_draws_the_same_plan() -> None:
    """So a run can be repeated."""
    assert all(Plan.of(seed, 60.0) == Plan.of(seed, 60.0) for seed in range(SEEDS))


def test_the_seeds_draw_everything() -> None:
    """Each family of faults, both sizes of the ensemble, and both kinds of timestamps."""
    plans = [Plan.of(seed, 60.0) for seed in range(SEEDS)]
    assert {family for plan in plans for family in plan.families} == set(FAMILIES)
    assert {plan.keepers for plan in plans} == {1, 3}
    assert {plan.timestamps for plan in plans} == {"CreateTime", "LogAppendTime"}
    assert {plan.sick for plan in plans} == {0, *BROKERS}


def test_the_seeds_draw_everything_of_transactions() -> None:
    """Short and long timeouts, each way to share partitions, and small segments."""
    plans = [Plan.of(seed, 60.0, TRANSACTIONS) for seed in range(SEEDS)]
    assert {timeout for plan in plans for timeout in plan.timeouts_ms} == {3_000, 6_000, 60_000}
    assert {plan.group for plan in plans} == {"range", "cooperative-sticky", "consumer"}
    assert {plan.transformers for plan in plans} == {1, 2, 3}
    assert len({plan.segment_bytes for plan in plans}) == 2


def test_a_seed_draws_the_same_faults_for_each_workload() -> None:
    """Only the clients and their topics differ."""
    for seed in range(SEEDS):
        plan, other = Plan.of(seed, 60.0), Plan.of(seed, 60.0, TRANSACTIONS)
        assert (plan.workload, other.workload) == (RECORDS, TRANSACTIONS)
        assert plan == replace(other, workload=RECORDS)
        assert list(plan.topics) == [TOPIC] and len(other.topics) == 3


def test_each_workload_has_its_own_results(tmp_path: Path) -> None:
    """The seeds are the same."""
    for workload, name in ((RECORDS, "random"), (TRANSACTIONS, "transactions")):
        (run,) = random_runs(tmp_path, 1, 20.0, workload)
        assert run.place == tmp_path / name / (tmp_path / "seed").read_text().strip()
        assert run.words[-2:] == ["--workload", workload]


def test_no_plan_breaks_more_than_is_promised() -> None:
    """A disk fails only if min is 2, and a spare broker exists only if brokers come and go."""
    for plan in (Plan.of(seed, 60.0) for seed in range(SEEDS)):
        assert not plan.sick or plan.min_isr == 2
        assert bool(plan.sick) == ("disk" in plan.families)
        assert (SPARE in plan.brokers) == ("members" in plan.families)
        assert len(plan.nodes) == len(set(plan.nodes)) == len(plan.brokers) + plan.keepers + 1


def test_only_an_ensemble_has_a_leader_to_lose() -> None:
    """With one ZooKeeper, these faults are not drawn."""
    for family in FAMILIES:
        alone = {fault.__name__ for fault in faults_of(family, 1)}
        assert not any("leader" in name for name in alone)
        more = {fault.__name__ for fault in faults_of(family, 3)} - alone
        assert bool(more) == (family in ("network", "processes"))


def test_the_table_shows_what_the_faults_did() -> None:
    """An effect that never happened is no row."""
    results = [
        {"counts": {"kill": 2}, "effects": {"a broker left": 2, "a drain ended": 0}},
        {"counts": {"kill": 1}, "effects": {"a broker left": 1}},
    ]
    table = table_of_faults(results)
    assert "| kill | 3 | 2 | 0 |" in table
    assert "| a broker left | 3 | 2 |" in table
    assert "a drain ended" not in table


def test_finished_runs_are_not_repeated_and_a_run_without_a_result_is_found(tmp_path: Path) -> None:
    """Two lanes: the runs that are finished take none of them."""
    for seed in range(6):
        (tmp_path / str(seed)).mkdir()
        if seed % 2:
            (tmp_path / str(seed) / "result.json").write_text(json.dumps({"acknowledged": seed}))
    runs = [Run(tmp_path / str(seed), ["no such command"], 0.0) for seed in range(6)]
    results = list(finished(runs, lanes=2))
    assert sorted(result.get("acknowledged", 0) for result in results) == [0, 0, 0, 1, 3, 5]
    without = [result["problems"][0] for result in results if "problems" in result]
    assert all("the run gave no result" in text for text in without) and len(without) == 3
    assert "invalid choice" in (tmp_path / "0" / "run.out").read_text()
