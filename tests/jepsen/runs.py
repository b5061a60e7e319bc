"""Many runs one after another, each in a process of its own; finished ones are not repeated.

jepsen-runs/
seed                  of the first run; the others follow
random/SEED/          one random run
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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jepsen.isr_of_one import CASES, ENDINGS
from support.places import environment

EXTRA_SECONDS_MAX = 600.0


def first_seed(results: Path) -> int:
    """Draw the seed of the first run, or read the one that was drawn before."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / "seed"
    if not path.exists():
        path.write_text(f"{random.SystemRandom().randrange(1, 2**31)}\n")
    return int(path.read_text())


def random_runs(results: Path, count: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Do the random runs that are not finished; give the result of each run."""
    first = first_seed(results)
    print(
        f"jepsen: {count} runs of {seconds:g} s, seeds {first} to {first + count - 1}", flush=True
    )
    for seed in range(first, first + count):
        words = ["run", str(seed), "--seconds", str(seconds), "--results", str(results / "random")]
        yield finished(results / "random" / str(seed), words, seconds)


def isr_runs(results: Path, count: int, writes: int) -> Iterator[dict[str, Any]]:
    """Do the runs of the scenario that are not finished, each case and ending in turn."""
    kinds = [(case, ending) for case in CASES for ending in ENDINGS]
    for number in range(count):
        case, ending = kinds[number % len(kinds)]
        place = results / "isr" / f"{case}-{ending}-{number}".replace(" ", "_")
        words = ["isr", case, ending, "--writes", str(writes), "--results", str(place)]
        yield finished(place, words, 0.0)


def finished(place: Path, words: Sequence[str], seconds: float) -> dict[str, Any]:
    """Do one run, if it is not finished, and read its result."""
    path = place / "result.json"
    if not path.exists():
        place.mkdir(parents=True, exist_ok=True)
        with (place / "run.out").open("wb") as out:
            command = [sys.executable, "-m", "jepsen", *words]
            done = subprocess.Popen(command, stdout=out, stderr=out, env=environment())
            try:
                with suppress(subprocess.TimeoutExpired):
                    done.wait(seconds + EXTRA_SECONDS_MAX)
            finally:
                done.terminate()  # it removes its disks, its network and its processes
                done.wait()
        print(f"jepsen: {place.name}: {_summary(path)}", flush=True)
    if not path.exists():
        return {"problems": [f"{place}: the run gave no result"]}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _summary(path: Path) -> str:
    if not path.exists():
        return f"no result, see {path.parent / 'run.out'}"
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
