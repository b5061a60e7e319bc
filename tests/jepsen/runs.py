"""Many runs, some beside each other, each in its own process; finished ones are not repeated.

jepsen-runs/
seed                  of the first run; the others follow
random/SEED/          one random run
transactions/SEED/    one random run with transactions
isr/CASE-ENDING-N/    one run of the scenario with an ISR of one
result.json         what was found; a run without it is not finished
history.jsonl.gz    what all clients did and saw
1.out ... tools.out what the brokers and the tools of operators printed
clients.clock ...   the clock of the clients, and what shifts it
1-a ...             if something was found: the log dirs
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jepsen.isr_of_one import CASES, ENDINGS
from jepsen.plan import RECORDS
from support.places import environment

EXTRA_SECONDS_MAX = 600.0
LOOK_SECONDS = 0.1


def first_seed(results: Path) -> int:
    """Draw the seed of the first run, or read the one that was drawn before."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / "seed"
    if not path.exists():
        path.write_text(f"{random.SystemRandom().randrange(1, 2**31)}\n")
    return int(path.read_text())


class Run(NamedTuple):
    """A run that is to be done.

    Attributes:
        place: the directory for what it finds.
        words: what `python -m jepsen` is called with.
        seconds: how long it breaks things.
    """

    place: Path
    words: Sequence[str]
    seconds: float


def random_runs(results: Path, count: int, seconds: float, workload: str = RECORDS) -> list[Run]:
    """List the random runs of a workload: their seeds follow each other."""
    first = first_seed(results)
    print(
        f"jepsen: {count} runs with {workload}, each of {seconds:g} s, "
        f"seeds {first} to {first + count - 1}",
        flush=True,
    )
    place = results / ("random" if workload == RECORDS else workload)
    words = ["--seconds", str(seconds), "--results", str(place), "--workload", workload]
    seeds = range(first, first + count)
    return [Run(place / str(seed), ["run", str(seed), *words], seconds) for seed in seeds]


def isr_runs(results: Path, count: int, writes: int) -> list[Run]:
    """List the runs of the scenario: each case and ending in turn."""
    kinds = [(case, ending) for case in CASES for ending in ENDINGS]
    runs = []
    for number in range(count):
        case, ending = kinds[number % len(kinds)]
        place = results / "isr" / f"{case}-{ending}-{number}".replace(" ", "_")
        words = ["isr", case, ending, "--writes", str(writes), "--results", str(place)]
        runs.append(Run(place, words, 0.0))
    return runs


def finished(runs: Iterable[Run], lanes: int = 1) -> Iterator[dict[str, Any]]:
    """Do the runs that are not finished; give the result of each run.

    Args:
        lanes: how many runs may go on at the same time. Each has a network of its own.
    """
    going: list[tuple[Run, subprocess.Popen[bytes], float]] = []
    waiting = deque(runs)
    try:
        while waiting or going:
            while waiting and len(going) < lanes:
                run = waiting.popleft()
                if (run.place / "result.json").exists():
                    yield _result(run)
                else:
                    going.append((run, _begin(run), time.monotonic() + run.seconds))
            for entry in list(going):
                run, process, end = entry
                if process.poll() is None and time.monotonic() < end + EXTRA_SECONDS_MAX:
                    continue
                _stop([process])
                going.remove(entry)
                print(f"jepsen: {run.place.name}: {_summary(run.place)}", flush=True)
                yield _result(run)
            threading.Event().wait(LOOK_SECONDS)
    finally:
        _stop([process for _, process, _ in going])


def _begin(run: Run) -> subprocess.Popen[bytes]:
    run.place.mkdir(parents=True, exist_ok=True)
    with (run.place / "run.out").open("wb") as out:
        words = [sys.executable, "-m", "jepsen", *run.words]
        return subprocess.Popen(words, stdout=out, stderr=out, env=environment())


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes; each first removes its disks, its network and its own processes."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def _result(run: Run) -> dict[str, Any]:
    path = run.place / "result.json"
    if not path.exists():
        return {"problems": [f"{run.place}: the run gave no result"]}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _summary(place: Path) -> str:
    path = place / "result.json"
    if not path.exists():
        return f"no result, see {place / 'run.out'}"
    found = json.loads(path.read_text())
    wrong = faults_of(found)
    return f"{found['acknowledged']} acknowledged, {'; '.join(wrong[:3]) or 'nothing found'}"


def faults_of(result: dict[str, Any]) -> list[str]:
    """List what a run found."""
    return [*result.get("anomalies", []), *result.get("problems", []), *result.get("faults", [])]


def table_of_faults(results: Sequence[dict[str, Any]]) -> str:
    """Say how often each fault was there, in how many runs, and in how many of them it was good."""
    counts: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for result in results:
        found = result.get("counts", {})
        counts.update(found)
        runs.update(found.keys())
        bad.update(found.keys() if faults_of(result) else ())
    rows = ["| fault | times | runs | runs that found something |", "|---|---|---|---|"]
    rows += [f"| {name} | {counts[name]} | {runs[name]} | {bad[name]} |" for name in sorted(counts)]
    rows += ["", *_rows_of_effects(results)]
    acknowledged = sum(result.get("acknowledged", 0) for result in results)
    wrong = [result for result in results if faults_of(result)]
    rows.append(
        f"\n{len(results)} runs, {acknowledged} records acknowledged, {len(wrong)} bad runs"
    )
    for result in wrong:
        seed = result.get("plan", {}).get("seed", "?")
        rows.append(f"seed {seed}: {'; '.join(faults_of(result)[:3])}")
    return "\n".join(rows)


def _rows_of_effects(results: Sequence[dict[str, Any]]) -> list[str]:
    """Say how often faults did what to the cluster: a fault that does nothing proves nothing."""
    times: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for result in results:
        found = {name: count for name, count in result.get("effects", {}).items() if count}
        times.update(found)
        runs.update(found.keys())
    rows = [f"| {name} | {times[name]} | {runs[name]} |" for name in sorted(times)]
    return ["| what the faults did | times | runs |", "|---|---|---|", *rows]


def table_of_isr(results: Sequence[dict[str, Any]]) -> str:
    """Show the runs of the scenario, by case and ending."""
    head = [
        "case", "the leader is", "runs", "writes", "acknowledged", "by the leader alone",
        "without it", "lost", "kept in `.lost` files", "runs that found something",
    ]  # fmt: skip
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for case in CASES:
        for ending in ENDINGS:
            chosen = [
                one for one in results if (one.get("case"), one.get("ending")) == (case, ending)
            ]
            names = ("writes", "acknowledged", "alone", "after", "lost", "kept")
            sums = [sum(one[name] for one in chosen) for name in names]
            bad = sum(bool(faults_of(one)) for one in chosen)
            cells = [case, ending, len(chosen), *sums, bad]
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)
