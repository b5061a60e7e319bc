"""Hold the history of ratios to its promises: what fell is named, what did not is let through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.history import by_key, falls, load, main, run_of
from benchmarks.history_page import page


def document(day: int = 1, **by_question: tuple[float, str]) -> dict[str, Any]:
    """Make a document of pytest-benchmark's with one row a question, measured on some day."""
    rows: list[dict[str, Any]] = [
        {
            "question": question, "peer": "LMDB", "ratio": ratio, "goal": goal, "figure": 1.0,
            "unit": "us each" if goal.startswith("<=") else "M records/s", "rounds": [ratio] * 3,
        }
        for question, (ratio, goal) in by_question.items()
    ]  # fmt: skip
    rows.append({"question": "alone", "peer": "", "ratio": None, "goal": None, "unit": "s"})
    return {
        "datetime": f"2026-01-{day:02}T03:04:05",
        "commit_info": {"id": "abcdef0123456789"},
        "machine_info": {"cpu": {"brand_raw": "a processor"}},
        "benchmarks": [{"extra_info": {"rows": rows}}, {"extra_info": {}}],
    }


def test_only_ratios_are_kept() -> None:
    """A row without a peer has nothing to compare."""
    run = run_of(document(append=(2.5, ">= 2")))
    assert {key: row["ratio"] for key, row in by_key(run).items()} == {("append", "LMDB"): 2.5}
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
    """It judges by the median of the last five runs, in the direction that the unit has."""
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
    assert len(load(history)) == 1
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


def test_a_time_that_fell_is_no_step_back_without_a_goal() -> None:
    """The unit says what is better; rounds that reach into what is tolerated accuse nobody."""
    past = [run_of(document(append=(1.0, "")))]
    now = run_of(document(append=(0.7, "")))
    assert falls(past, now)
    now["rows"][0]["is_less_better"] = True
    assert not falls(past, now)
    now["rows"][0] |= {"is_less_better": False, "low": 0.6, "high": 0.9}
    assert not falls(past, now)


def test_the_page_says_what_is_better_and_what_is_missed() -> None:
    """A goal that is missed stands out, and each chart has its scale."""
    runs = [run_of(document(append=(2.0, ">= 3"), read=(0.5, "<= 1"), scan=(7.5, "")))]
    text = page(runs)
    assert text.count("class='n miss'") == 1
    assert text.count("<td>less</td>") == 1 and text.count("<td>more</td>") == 2
    assert "Questions with a goal" in text and "For information" in text and ">7.5</text>" in text


def test_a_run_that_is_not_there_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback: it says what makes one."""
    assert main(["gate", str(tmp_path / "none.json")], tmp_path / "history.jsonl") == 2
    assert "make bench-peers" in capsys.readouterr().out
