"""Read and write the JSON of kafka-reassign-partitions."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mover import MovePlan
from mover.planning.planned_move import PlannedMove

MOVES = (
    PlannedMove("orders", 3, "/disk2/logs", "/disk1/logs", 700),
    PlannedMove("orders", 0, "/disk1/logs", "/disk3/logs", 50),
)


def document(*partitions: Any, **facts: Any) -> str:
    return json.dumps({"version": 1, "partitions": list(partitions), **facts})


def entry(**facts: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": ["/d"]} | facts


def test_a_plan_is_written_as_kafka_takes_it() -> None:
    """The JSON has only version, topic, partition, the broker as only replica, and the log dir."""
    assert json.loads(MovePlan(MOVES, broker_id=7).to_json()) == {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": 3, "replicas": [7], "log_dirs": ["/disk2/logs"]},
            {"topic": "orders", "partition": 0, "replicas": [7], "log_dirs": ["/disk1/logs"]},
        ],
    }


def test_what_was_written_can_be_read() -> None:
    """The moves are read in their order, without sources and sizes; their bytes count as 0."""
    plan = MovePlan(MOVES, broker_id=7)
    assert plan.bytes_to_move == 750
    back = MovePlan.from_json(plan.to_json(indent=2))
    assert back.moves == tuple(move._replace(source=None, size_bytes=None) for move in MOVES)
    assert (back.broker_id, back.bytes_to_move, back.skipped) == (7, 0, ())


def test_only_this_broker_counts() -> None:
    """Of several replicas, the one of the given broker is used, by its place in the list."""
    text = document(entry(replicas=[1, 2], log_dirs=["/d1", "/d2"]), entry(topic="u", replicas=[1]))
    plan = MovePlan.from_json(text, broker_id=2)
    assert plan.moves == (PlannedMove("t", 0, "/d2"),)
    assert [(one.topic, one.reason) for one in plan.skipped] == [
        ("u", "broker 2 is not among the replicas [1]")
    ]


@pytest.mark.parametrize("facts", [{"log_dirs": ["any"]}, {"log_dirs": None}])
def test_any_log_dir_asks_for_nothing(facts: dict[str, Any]) -> None:
    """With "any", or without log_dirs, nothing moves, and the plan reports this."""
    cells = {name: value for name, value in entry(**facts).items() if value is not None}
    plan = MovePlan.from_json(document(cells))
    assert plan.moves == ()
    assert plan.skipped[0].reason == "the document accepts any log dir for this replica"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "no list"),
        ('{"version": 1}', "no list"),
        (document(version=2), "version 2"),
        (document(7), "partitions[0] is 7"),
        (document({"partition": 0}), "no 'topic'"),
        (document(entry(topic="a/b")), "partitions[0]: "),
        (document(entry(partition=-1)), "partitions[0]: "),
        (document(entry(replicas=["0"])), "not a list of int"),
        (document(entry(replicas=[True])), "not a list of int"),
        (document(entry(log_dirs="/d")), "not a list of str"),
        (document(entry(log_dirs=["/d", "/e"])), "1 replicas, but 2 log_dirs"),
        (document(entry(log_dirs=["d"])), "neither"),
        (document(entry(), entry()), "named twice, at 0 and at 1"),
        (document(entry(replicas=[1, 2], log_dirs=["any", "any"])), "give the id of this broker"),
    ],
)
def test_a_bad_document_is_refused_by_place_and_reason(text: str, reason: str) -> None:
    """No part of a bad document is used, and the error names the wrong entry."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        MovePlan.from_json(text)
