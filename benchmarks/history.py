"""Keep the ratios of `make bench-peers` over time, show them, and refuse a step back.

    python -m benchmarks.history add RUN.json       append a run to the history
    python -m benchmarks.history page OUT.html      ratios over time, a line a question
    python -m benchmarks.history gate RUN.json      exit 1 where a ratio fell

A run is what pytest-benchmark's `--benchmark-json` wrote; the history is a file of one line a run,
small enough to be committed. The gate compares with the median of the last runs, whatever machine
they ran on: ratios travel, seconds do not.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

HISTORY = Path(__file__).with_name("history.jsonl")
RUNS_COMPARED = 5
TOLERANCE = 0.15

Run = dict[str, Any]
Key = tuple[str, str]


class Fall(NamedTuple):
    """One ratio that is lower than it was (or higher, where less is better)."""

    question: str
    peer: str
    was: float
    now: float
    goal: str

    def __str__(self) -> str:
        """Say it in a line."""
        goal = f" (goal {self.goal})" if self.goal else ""
        return f"{self.question} against {self.peer}: {self.now:.2f}, was {self.was:.2f}{goal}"


def run_of(document: dict[str, Any]) -> Run:
    """Take the rows with a ratio out of pytest-benchmark's document."""
    rows = [row for entry in document["benchmarks"] for row in entry["extra_info"].get("rows", [])]
    return {
        "at": document["datetime"],
        "commit": document["commit_info"]["id"][:12],
        "machine": document["machine_info"]["cpu"].get("brand_raw", "unknown"),
        "rows": [
            {key: row[key] for key in ("question", "peer", "ratio", "goal")}
            for row in rows
            if row["ratio"] is not None
        ],
    }


def load(history: Path) -> list[Run]:
    """Read the history, oldest run first."""
    if not history.exists():
        return []
    return [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]


def ratios(run: Run) -> dict[Key, float]:
    """Give the ratios of a run by question and peer."""
    return {(row["question"], row["peer"]): row["ratio"] for row in run["rows"]}


def falls(history: Sequence[Run], run: Run, tolerance: float = TOLERANCE) -> list[Fall]:
    """Give the ratios of a run that fell short of the median of the last runs.

    A goal that begins with "<=" says that less is better.
    """
    found = []
    for row in run["rows"]:
        key = (row["question"], row["peer"])
        past = [ratios(old)[key] for old in history[-RUNS_COMPARED:] if key in ratios(old)]
        if not past:
            continue
        was, now = median(past), row["ratio"]
        is_at_most = (row["goal"] or "").startswith("<=")
        worse = now > was * (1 + tolerance) if is_at_most else now < was * (1 - tolerance)
        if worse:
            found.append(Fall(*key, was, now, row["goal"] or ""))
    return found


def gate(history: Sequence[Run], run: Run, tolerance: float) -> int:
    """Judge a run by the others, say what fell and what is gone; give the exit code."""
    if not history:
        print("there is no other run in the history to compare with")
        return 0
    for question, peer in sorted(ratios(history[-1]).keys() - ratios(run).keys()):
        print(f"note: {question} against {peer} was in the last run and is not in this one")
    found = falls(history, run, tolerance)
    for fall in found:
        print(fall)
    print(f"{len(run['rows'])} ratios, {len(found)} worse by more than {tolerance:.0%}")
    return 1 if found else 0


def spark_line(values: Sequence[float | None]) -> str:
    """Draw values as a small line; a run without the question leaves a gap."""
    known = [value for value in values if value is not None]
    top = max(known, default=1.0) or 1.0
    width, height = 14 * max(len(values) - 1, 1), 28
    points = [
        f"{14 * number},{height - 2 - (height - 4) * value / top:.1f}"
        for number, value in enumerate(values)
        if value is not None
    ]
    marks = "".join(
        f"<circle cx='{point.split(',')[0]}' cy='{point.split(',')[1]}' r='2'/>" for point in points
    )
    return (
        f"<svg width='{width + 8}' height='{height}' viewBox='-4 0 {width + 8} {height}'>"
        f"<polyline fill='none' stroke='#2f5d8a' points='{' '.join(points)}'/>{marks}</svg>"
    )


def page(history: Sequence[Run]) -> str:
    """Make the page: a row for each question and peer, from the oldest run to the newest."""
    keys = list(dict.fromkeys(key for run in history for key in ratios(run)))
    goals = {(row["question"], row["peer"]): row["goal"] for run in history for row in run["rows"]}
    lines = []
    for key in keys:
        values = [ratios(run).get(key) for run in history]
        last = next((value for value in reversed(values) if value is not None), None)
        cells = [key[0], key[1], goals[key] or "", "" if last is None else f"{last:.2f}"]
        texts = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f"<tr>{texts}<td>{spark_line(values)}</td></tr>")
    runs = "".join(
        f"<li>{html.escape(run['at'][:10])}, {html.escape(run['commit'])}, "
        f"{html.escape(run['machine'])}</li>"
        for run in history
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Peers over time</title>"
        "<style>body{font:15px system-ui;max-width:60rem;margin:2rem auto}td,th{padding:.2rem;"
        "text-align:left;border-bottom:1px solid #ddd}</style>"
        "<h1>This engine's ratios to its peers, over time</h1>"
        "<p>A ratio of 2 means twice as fast as the peer in the same run; each line starts at 0."
        "</p><table><tr><th>question</th><th>peer</th><th>goal</th><th>last</th><th>ratio over runs"
        f"</th></tr>{''.join(lines)}</table><h2>Runs</h2><ol>{runs}</ol></html>"
    )


def main(words: Sequence[str], history: Path = HISTORY) -> int:
    """Do what the command line says; give the exit code."""
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
    run = run_of(json.loads(chosen.file.read_text(encoding="utf-8")))
    if chosen.action == "add":
        with history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(f"{len(run['rows'])} ratios of {run['commit']} added, {len(runs) + 1} runs")
        return 0
    return gate([old for old in runs if old["at"] != run["at"]], run, chosen.tolerance)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
