"""Hold the history of ratios to its promises: what fell is named, what did not is let through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history import falls, load, main, page, ratios, run_of


def document(day: int = 1, **by_question: tuple[float, str]) -> dict[str, Any]:
    """Make a document of pytest-benchmark's with one row a question, measured on some day."""
    rows = [
        {"question": question, "peer": "LMDB", "ratio": ratio, "goal": goal, "figure": 1.0}
        for question, (ratio, goal) in by_question.items()
    ]
    rows.append({"question": "alone", "peer": "", "ratio": None, "goal": None, "figure": 1.0})
    return {
        "datetime": f"2026-01-{day:02}T03:04:05",
        "commit_info": {"id": "abcdef0123456789"},
        "machine_info": {"cpu": {"brand_raw": "a processor"}},
        "benchmarks": [{"extra_info": {"rows": rows}}, {"extra_info": {}}],
    }


def test_only_ratios_are_kept() -> None:
    """A row without a peer has nothing to compare."""
    run = run_of(document(append=(2.5, ">= 2")))
    assert ratios(run) == {("append", "LMDB"): 2.5}
    assert run["commit"] == "abcdef012345"


@pytest.mark.parametrize(
    ("past", "now", "goal", "is_fall"),
    [
        ([2.0, 2.0, 2.0], 1.6, ">= 2", True),
        ([2.0, 2.0, 2.0], 1.8, ">= 2", False),
        ([2.0, 2.0, 2.0], 3.0, ">= 2", False),
        ([1.0, 1.0, 1.0], 1.3, "<= 3", True),
        ([1.0, 1.0, 1.0], 0.5, "<= 3", False),
        ([9.0, 2.0, 2.0, 2.0, 2.0, 2.0], 1.8, ">= 2", False),
        ([], 0.1, ">= 2", False),
    ],
)
def test_the_gate_names_what_fell(past: list[float], now: float, goal: str, is_fall: bool) -> None:
    """It judges by the median of the last five runs, in the direction that the goal has."""
    history = [run_of(document(append=(ratio, goal))) for ratio in past]
    found = falls(history, run_of(document(append=(now, goal))))
    assert bool(found) == is_fall
    if found:
        assert "append against LMDB" in str(found[0])


def test_a_run_is_added_shown_and_judged(tmp_path: Path) -> None:
    """The command line keeps runs, draws them, and gives 1 for a step back."""
    history, run = tmp_path / "history.jsonl", tmp_path / "run.json"
    out = tmp_path / "page.html"
    assert main(["page", str(out)], history) == 1
    run.write_text(json.dumps(document(append=(2.0, ">= 2"))))
    assert main(["gate", str(run)], history) == 0
    assert main(["add", str(run)], history) == 0
    assert main(["add", str(run)], history) == 0
    assert len(load(history)) == 2
    assert main(["page", str(out)], history) == 0
    text = out.read_text()
    assert "append" in text and "2.00" in text and "a processor" in text
    run.write_text(json.dumps(document(2, append=(1.0, ">= 2"))))
    assert main(["gate", str(run)], history) == 1


def test_the_gate_judges_each_ratio_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noise within the tolerance passes; of several ratios only the one that fell is named."""
    history, run = tmp_path / "history.jsonl", tmp_path / "run.json"

    def judge(day: int, **by_question: tuple[float, str]) -> tuple[int, str]:
        run.write_text(json.dumps(document(day, **by_question)))
        return main(["gate", str(run)], history), capsys.readouterr().out

    first = {"append": (2.0, ">= 2"), "scan": (5.0, ">= 3"), "recover": (0.5, "<= 1")}
    assert judge(1, **first) == (0, "there is no other run in the history to compare with\n")
    assert main(["add", str(run)], history) == 0
    noise = {"append": (1.8, ">= 2"), "scan": (5.7, ">= 3"), "recover": (0.56, "<= 1")}
    assert judge(2, **noise)[0] == 0
    code, said = judge(3, **first | {"scan": (3.9, ">= 3")})
    assert code == 1
    assert said == (
        "scan against LMDB: 3.90, was 5.00 (goal >= 3)\n3 ratios, 1 worse by more than 15%\n"
    )
    code, said = judge(4, append=(2.0, ">= 2"), recover=(0.5, "<= 1"))
    assert code == 0
    assert said.startswith("note: scan against LMDB was in the last run")


def test_a_run_is_not_judged_by_itself(tmp_path: Path) -> None:
    """Whoever adds a run first and asks the gate then hears of the same falls."""
    history, run = tmp_path / "history.jsonl", tmp_path / "run.json"
    for day, ratio in ((1, 2.0), (2, 1.0)):
        run.write_text(json.dumps(document(day, append=(ratio, ">= 2"))))
        assert main(["add", str(run)], history) == 0
    assert main(["gate", str(run)], history) == 1


def test_a_question_that_is_new_leaves_a_gap() -> None:
    """A run without a question has no dot in its line."""
    runs = [run_of(document(append=(2.0, ""))), run_of(document(append=(3.0, ""), scan=(1.0, "")))]
    assert page(runs).count("<circle") == 3
