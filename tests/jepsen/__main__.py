"""Run Jepsen's test by hand, with PYTHONPATH=src:tests, as root.

python -m jepsen all [--results jepsen-runs]            what `make jepsen` does
python -m jepsen transactions                           what `make jepsen-transactions` does
python -m jepsen run SEED [--seconds 60]                one random run
python -m jepsen run SEED --workload transactions       one random run with transactions
python -m jepsen isr CASE ENDING [--writes 1000]        the scenario with an ISR of one, once
python -m jepsen check HISTORY                          judge a history that was written before
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

from jepsen import clocks, history
from jepsen.checker import check
from jepsen.clocks import Clock, compile_library, own_clock
from jepsen.isr_of_one import CASES, ENDINGS, play
from jepsen.plan import RECORDS, TRANSACTIONS, WORKLOADS, Plan
from jepsen.random_run import run
from jepsen.runs import (
    faults_of,
    finished,
    isr_runs,
    random_runs,
    table_of_faults,
    table_of_isr,
)
from jepsen.transactions.checker import check_transactions, is_transactional
from jepsen.transactions.run import run_transactions
from support.loop_disk import orderly_end
from support.network import why_not
from support.places import environment

RESULTS = Path("jepsen-runs")


def run_all(args: argparse.Namespace) -> int:
    """Do all runs that are not finished, and print what was found."""
    with orderly_end():
        scenario = list(finished(isr_runs(args.results, args.isr, args.writes), args.lanes))
        found = list(finished(random_runs(args.results, args.runs, args.seconds), args.lanes))
    print(table_of_isr(scenario), table_of_faults(found), sep="\n\n")
    is_bad = any(map(faults_of, [*scenario, *found]))
    return int(is_bad) | (run_transactional(args) if args.transactions else 0)


def run_transactional(args: argparse.Namespace) -> int:
    """Do the runs with transactions that are not finished, and print what was found."""
    runs = random_runs(args.results, args.transactions, args.seconds, TRANSACTIONS)
    with orderly_end():
        found = list(finished(runs, args.lanes))
    print(table_of_faults(found))
    return int(any(map(faults_of, found)))


def run_one(args: argparse.Namespace) -> int:
    """Do one random run, in a process whose own clock can be shifted."""
    plan = Plan.of(args.seed, args.seconds, args.workload)
    place = args.results / str(args.seed)
    if "clocks" in plan.families and own_clock() is None:
        begin_again(place)
    result = (run_transactions if plan.workload == TRANSACTIONS else run)(plan, place)
    print(asdict(result))
    return int(not result.is_good)


def begin_again(place: Path) -> None:
    """Replace this process by one that has a clock of its own: the clock of the clients."""
    place.mkdir(parents=True, exist_ok=True)
    clock = Clock((place / "clients.clock").resolve(), compile_library(place.resolve()))
    clock.set(0.0)
    words = [sys.executable, "-m", "jepsen", *sys.argv[1:]]
    os.execve(sys.executable, words, {**environment(), **clock.environment})


def run_isr(args: argparse.Namespace) -> int:
    """Do the scenario once."""
    outcome = play(args.case, args.ending, args.writes, args.results)
    print(asdict(outcome))
    return int(bool(outcome.faults))


def run_check(args: argparse.Namespace) -> int:
    """Judge a history."""
    events = history.read(args.history)
    found = check_transactions(events) if is_transactional(events) else check(events)
    for one in found:
        print(f"{one.partition}: {one.kind}: {one.text}")
    print(f"{len(found)} anomalies")
    return int(bool(found))


def add_runs(everything: argparse.ArgumentParser, transactional: argparse.ArgumentParser) -> None:
    """Add what says how many runs there are, and how long each takes."""
    number = os.environ.get
    everything.add_argument("--runs", type=int, default=int(number("LOGSTORE_JEPSEN_RUNS", "200")))
    everything.add_argument("--isr", type=int, default=int(number("LOGSTORE_JEPSEN_ISR", "18")))
    for parser, count in ((everything, "0"), (transactional, "100")):
        count = number("LOGSTORE_JEPSEN_TRANSACTIONS", count)
        parser.add_argument("--transactions", type=int, default=int(count))
        seconds = float(number("LOGSTORE_JEPSEN_SECONDS", "60"))
        parser.add_argument("--seconds", type=float, default=seconds)
        lanes = int(number("LOGSTORE_JEPSEN_LANES", "1"))
        parser.add_argument("--lanes", type=int, default=lanes)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m jepsen")
    commands = parser.add_subparsers(required=True)
    everything, transactional = commands.add_parser("all"), commands.add_parser("transactions")
    add_runs(everything, transactional)
    one = commands.add_parser("run")
    one.add_argument("seed", type=int)
    one.add_argument("--seconds", type=float, default=60.0)
    one.add_argument("--workload", choices=WORKLOADS, default=RECORDS)
    scenario = commands.add_parser("isr")
    scenario.add_argument("case", choices=CASES)
    scenario.add_argument("ending", choices=ENDINGS)
    for parsed in (scenario, everything):
        parsed.add_argument("--writes", type=int, default=1000)
    judged = commands.add_parser("check")
    judged.add_argument("history", type=Path)
    for parsed, function in (
        (everything, run_all), (transactional, run_transactional), (one, run_one),
        (scenario, run_isr), (judged, run_check),
    ):  # fmt: skip
        parsed.set_defaults(run=function)
        parsed.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    reason = why_not() or clocks.why_not() if args.run is not run_check else None
    if reason:
        print(f"jepsen: {reason}", file=sys.stderr)
        return 2
    return int(args.run(args))


sys.exit(main())
