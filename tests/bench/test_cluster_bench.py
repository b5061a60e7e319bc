"""The comparison of clusters is run by hand; what needs no broker and no Java is tested here."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from benchmarks.cluster.bench import copying, elections
from benchmarks.cluster.bench.clusters import leader_of
from benchmarks.cluster.bench.plan import (
    OURS,
    PEER,
    SCALES,
    Figures,
    Question,
    questions,
    rows_of,
    turns,
)
from benchmarks.report import at_least, at_most, table

MB = copying.MB
ASKED = [
    Question("rate", "rate", "k records/s", at_least(1.5)),
    Question("kill", "kill", "s", at_most(1.0), is_absolute=True),
    Question(
        "copy", "copy", "MB/s", at_least(0.8), against="bare", against_name="bare copy"
    ),
]  # fmt: skip
OUR_SESSIONS: list[Figures] = [
    {"rate": [3.0, 5.0, 4.0], "kill": [0.5], "copy": [8.0], "bare": [10.0]},
    {"rate": [6.0], "kill": [0.7], "copy": [6.0], "bare": [20.0]},
]
PEER_SESSIONS: list[Figures] = [
    {"rate": [2.0], "kill": [9.0], "copy": [1.0], "bare": [1.0]},
    {"rate": [2.0], "kill": [10.0]},
]


def test_the_clusters_take_turns() -> None:
    """Each has the same number of sessions, and each is first as often as the other."""
    found = list(turns(3))
    assert [turn.side for turn in found] == [OURS, PEER, PEER, OURS, OURS, PEER]
    assert [turn.number for turn in found] == [0, 0, 1, 1, 2, 2]


def test_a_row_has_the_medians_of_the_sessions() -> None:
    """A ratio is of two sessions of one turn; the table shows their median, and the goals."""
    rate, kill, copy = rows_of(ASKED, OUR_SESSIONS, PEER_SESSIONS, "Kafka")
    assert (rate.figure, rate.peer_figure, rate.ratio) == (5.0, 2.0, 2.5)
    assert rate.rounds == (2.0, 3.0) and rate.verdict == "ok"
    assert (kill.figure, kill.peer_figure, kill.ratio) == (0.6, 9.5, None)
    assert kill.verdict == "ok"
    assert (copy.figure, copy.peer, copy.peer_figure, copy.ratio) == (7.0, "bare copy", 15.0, 0.55)
    assert copy.verdict == "short by 31%"
    assert table([rate, kill, copy])[-1] == "2 of 3 goals met"


def test_a_failed_session_costs_only_its_own_figures() -> None:
    """Without a figure of the peer there is no ratio, so no goal of a ratio is judged."""
    rows = rows_of(ASKED, [{"rate": [3.0], "kill": [2.0]}], [], "Kafka")
    assert [(row.question, row.ratio, row.verdict) for row in rows] == [
        ("rate", None, ""), ("kill", None, "short by 100%"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(SCALES))
def test_every_question_of_a_scale_is_asked_once(name: str) -> None:
    """Only the rate of a follower has two lines: beside a bare copy, and beside Kafka."""
    asked = questions(SCALES[name])
    assert len({one.words + one.against for one in asked}) == len(asked)
    assert sum(one.goal is not None for one in asked) >= 10


def test_the_active_controller_is_read_from_the_tool_of_the_quorum() -> None:
    """The tool prints one fact a line."""
    assert leader_of("ClusterId:   x\nLeaderId:               3\nLeaderEpoch: 7\n") == 3
    with pytest.raises(RuntimeError, match="has no leader"):
        leader_of("Error connecting to node 1\n")


def test_a_bare_copy_is_whole(tmp_path: Path) -> None:
    """It leaves only its source."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_001))
    assert copying.bare_copy(source, tmp_path / "target") > 0
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_the_rate_of_a_follower_counts_from_its_first_growth() -> None:
    """Before that, its broker only starts; the bytes of the first growth do not count."""
    sizes = iter([5 * MB, 5 * MB, 25 * MB, 65 * MB, 105 * MB])
    times = itertools.count(100.0)
    rate = copying.growth_rate(
        lambda: next(sizes), 105 * MB, lambda: next(times), lambda seconds: None
    )
    assert rate == pytest.approx((105 - 25) / 2)
    with pytest.raises(RuntimeError, match="before it was watched"):
        copying.growth_rate(lambda: 7, 7)


def test_the_death_of_a_broker_elects_a_tenth_of_the_partitions() -> None:
    """Each one that it led gets a leader; where it followed, it leaves the ISR."""
    found = elections.elect(elections.controller_of(1_000))
    assert (found.elected, found.written) == (100, 300)
    assert found.requests >= 600 and found.cpu_seconds > 0
