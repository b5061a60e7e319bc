"""Keep the ratios of `make bench-peers` over time, show them, and report ratios that became worse.

    python -m benchmarks.history add RUN.json       append a run to the history
    python -m benchmarks.history page OUT.html      ratios over time, one line per question
    python -m benchmarks.history gate RUN.json      exit code 1 if a ratio became worse

A run is the file that pytest-benchmark's `--benchmark-json` wrote. The history is a file with one
line per run, small enough to be committed. The gate compares a run with the median of the last
runs. The last runs may come from other machines, because ratios depend less on the machine than
seconds do. A ratio counts as worse only if even the better quarter of its rounds is beyond the
tolerance. So rounds that vary much do not raise a false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from benchmarks.compare import LESS_IS_BETTER

HISTORY = Path(__file__).with_name("history.jsonl")
RUNS_COMPARED = 5
TOLERANCE = 0.15

Run = dict[str, Any]
Key = tuple[str, str]


class Fall(NamedTuple):
    """Describe a ratio that became worse: lower, or higher if less is better."""

    question: str
    peer: str
    was: float
    now: float
    goal: str

    def __str__(self) -> str:
        """Describe the change in one line."""
        goal = f" (goal {self.goal})" if self.goal else ""
        return f"{self.question} against {self.peer}: {self.now:.2f}, was {self.was:.2f}{goal}"


def run_of(document: dict[str, Any]) -> Run:
    """Build a run from the rows of pytest-benchmark's document that have a ratio."""
    rows = [row for entry in document["benchmarks"] for row in entry["extra_info"].get("rows", [])]
    return {
        "at": document["datetime"],
        "commit": document["commit_info"]["id"][:12],
        "machine": document["machine_info"]["cpu"].get("brand_raw", "unknown"),
        "rows": [row_of(row) for row in rows if row["ratio"] is not None],
    }


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    """Keep only the parts of a row that later runs need; round ratios to four digits."""
    rounds = row.get("rounds") or [row["ratio"]] * 2
    low, _, high = quantiles(rounds, n=4, method="inclusive")
    kept = {key: row[key] for key in ("question", "peer", "goal")}
    ratios = {"ratio": row["ratio"], "low": low, "high": high}
    return {
        **kept,
        **{name: float(f"{value:.4g}") for name, value in ratios.items()},
        "is_less_better": row["unit"] in LESS_IS_BETTER,
    }


def load(history: Path) -> list[Run]:
    """Read the history, oldest run first."""
    if not history.exists():
        return []
    return [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]


def by_key(run: Run) -> dict[Key, dict[str, Any]]:
    """Return the rows of a run by question and peer."""
    return {(row["question"], row["peer"]): row for row in run["rows"]}


def usual(history: Sequence[Run], key: Key) -> float | None:
    """Return the median ratio of the last runs, or None if they do not have this question."""
    past = [by_key(run)[key]["ratio"] for run in history[-RUNS_COMPARED:] if key in by_key(run)]
    return median(past) if past else None


def falls(history: Sequence[Run], run: Run, tolerance: float = TOLERANCE) -> list[Fall]:
    """Return the ratios of a run that are worse than the median of the last runs."""
    found = []
    for key, row in by_key(run).items():
        was = usual(history, key)
        if was is None:
            continue
        if row["is_less_better"]:
            is_worse = row["low"] > was * (1 + tolerance)
        else:
            is_worse = row["high"] < was * (1 - tolerance)
        if is_worse:
            found.append(Fall(*key, was, row["ratio"], row["goal"] or ""))
    return found


def gate(history: Sequence[Run], run: Run, tolerance: float) -> int:
    """Compare a run with the history; print worse ratios and missing rows; return the exit code."""
    if not history:
        print("there is no other run in the history to compare with")
        return 0
    for question, peer in sorted(by_key(history[-1]).keys() - by_key(run).keys()):
        print(f"note: {question} against {peer} was in the last run and is not in this one")
    found = falls(history, run, tolerance)
    for fall in found:
        print(fall)
    print(f"{len(run['rows'])} ratios, {len(found)} worse by more than {tolerance:.0%}")
    return 1 if found else 0


def add(history: Path, runs: Sequence[Run], run: Run) -> None:
    """Append a run, unless the history already has it."""
    if any(old["at"] == run["at"] for old in runs):
        print(f"the run of {run['at']} is in the history already")
        return
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")
    print(f"{len(run['rows'])} ratios of {run['commit']} added, {len(runs) + 1} runs")


def main(words: Sequence[str], history: Path = HISTORY) -> int:
    """Run the command line; return the exit code."""
    from benchmarks.history_page import page

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("action", choices=("add", "page", "gate"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    chosen = parser.parse_args(words)
    runs = load(history)
    if chosen.action == "page":
        if not runs:
            print(f"there is no run in {history} yet: make bench-peers, then add it")
            return 1
        chosen.file.write_text(page(runs), encoding="utf-8")
        print(f"page: {chosen.file}, {len(runs)} runs")
        return 0
    try:
        run = run_of(json.loads(chosen.file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        print(f"there is no {chosen.file} yet: make bench-peers")
        return 2
    if chosen.action == "add":
        add(history, runs, run)
        return 0
    return gate([old for old in runs if old["at"] != run["at"]], run, chosen.tolerance)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
