"""Test the table for differences between coordination store and log dirs, row by row."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from broker.catalog.reconciliation import Known, Plan, adopted, decide
from broker.catalog.topic_znodes import TopicRecord
from broker.config import KAFKA_LOG_CONFIG

OURS, OTHER, THIRD = b"o" * 16, b"x" * 16, b"3" * 16
NOTHING = Plan([], [], [], {}, {}, False, False, [])


def topic(ids: dict[int, bytes], *, is_mixed: bool = False) -> TopicRecord:
    """Make the record of a topic."""
    return TopicRecord("t", OURS, ids, KAFKA_LOG_CONFIG, is_mixed)


ONE = topic({0: OURS})
TWO = topic({0: OURS, 1: OURS})
MIXED = topic({0: OURS, 1: THIRD}, is_mixed=True)
GONE = topic({0: OTHER, 1: OTHER})._replace(id=OTHER)


class Row(NamedTuple):
    """A row: the known and found replicas, and the plan with and without all log dirs."""

    known: Known
    found: dict[int, bytes | None]
    all_serve: Plan
    not_all: Plan


def same(known: Known, found: dict[int, bytes | None], plan: Plan) -> Row:
    """Make a row that does not depend on the log dirs."""
    return Row(known, found, plan, plan)


ROWS = {
    "a topic is being deleted, and a replica is left": same(
        Known(None, None, (GONE,)), {0: OTHER}, NOTHING._replace(delete=[0])
    ),
    "its replica cannot be read": same(Known(None, None, (GONE,)), {1: None}, NOTHING),
    "no replica of it is left": Row(
        Known(None, None, (GONE,)), {}, NOTHING._replace(ended=[GONE]), NOTHING
    ),
    "only a new topic of its name is left": Row(
        Known(ONE, None, (GONE,)), {0: OURS}, NOTHING._replace(ended=[GONE]), NOTHING
    ),
    "a replica of it is in the place of a new topic": Row(
        Known(TWO, None, (GONE,)), {0: OURS, 1: OTHER},
        NOTHING._replace(delete=[1]), NOTHING._replace(delete=[1]),
    ),
    "a replica cannot be read": same(Known(ONE), {0: None}, NOTHING),
    "a replica that is not recorded cannot be read": same(Known(None), {0: None}, NOTHING),
    "the partition is nowhere": Row(
        Known(TWO), {0: OURS}, NOTHING._replace(create_again=[1]), NOTHING
    ),
    "the topic is nowhere": Row(Known(TWO), {}, NOTHING._replace(create_again=[0, 1]), NOTHING),
    "the topic is being created": Row(
        Known(TWO, 0), {0: OURS}, NOTHING._replace(create=[1]), NOTHING
    ),
    "partitions are being added, and an older one is nowhere": Row(
        Known(TWO, 1), {}, NOTHING._replace(create=[1], create_again=[0]), NOTHING
    ),
    "the creation has ended": Row(
        Known(TWO, 0), {0: OURS, 1: OURS}, NOTHING._replace(is_created=True), NOTHING
    ),
    "the same id": same(Known(TWO), {0: OURS, 1: OURS}, NOTHING),
    "ids that differ, as recorded": same(Known(MIXED), {0: OURS, 1: THIRD}, NOTHING),
    "another id in a topic of several ids": Row(
        Known(MIXED), {0: OURS, 1: OTHER},
        NOTHING._replace(adopt={1: OTHER}), NOTHING._replace(refuse={1: OTHER}),
    ),
    "another id": same(
        Known(TWO), {0: OURS, 1: OTHER}, NOTHING._replace(refuse={1: OTHER})
    ),
    "only replicas of another topic": Row(
        Known(ONE), {0: OTHER, 2: OTHER},
        NOTHING._replace(adopt={0: OTHER, 2: OTHER}, is_replaced=True),
        NOTHING._replace(refuse={0: OTHER, 2: OTHER}),
    ),
    "another id, and a replica that cannot be read": Row(
        Known(TWO), {0: OTHER, 1: None},
        NOTHING._replace(refuse={0: OTHER}), NOTHING._replace(refuse={0: OTHER}),
    ),
    "the topic is not recorded": same(
        Known(None), {0: OURS, 3: OTHER}, NOTHING._replace(adopt={0: OURS, 3: OTHER})
    ),
    "a partition more, of the topic": same(
        Known(ONE), {0: OURS, 1: OURS}, NOTHING._replace(adopt={1: OURS})
    ),
    "a partition more, in a topic of several ids": same(
        Known(MIXED), {0: OURS, 1: THIRD, 2: OTHER}, NOTHING._replace(adopt={2: OTHER})
    ),
    "a partition more, of another topic": same(
        Known(ONE), {0: OURS, 1: OTHER}, NOTHING._replace(refuse={1: OTHER})
    ),
    "neither": same(Known(None), {}, NOTHING),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("is_all", [True, False])
def test_each_row(name: str, *, is_all: bool) -> None:
    """Each row is tested with all log dirs, and with one log dir missing."""
    row = ROWS[name]
    wanted = row.all_serve if is_all else row.not_all
    assert decide(row.known, row.found, is_all=is_all) == wanted


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_created_or_forgotten_while_a_log_dir_is_away(name: str) -> None:
    """Only replicas of topics with a recorded deletion are deleted."""
    row = ROWS[name]
    plan = decide(row.known, row.found, is_all=False)
    assert not (plan.create or plan.create_again or plan.ended or plan.is_replaced)
    recorded = {(key, one) for gone in row.known.deleted for key, one in gone.ids.items()}
    assert {(key, row.found[key]) for key in plan.delete} <= recorded


def test_a_plan_that_changes_nothing_is_empty() -> None:
    """A refusal changes nothing in the log dirs or in the coordination store."""
    assert NOTHING.is_empty and NOTHING._replace(refuse={0: OTHER}).is_empty
    assert not NOTHING._replace(is_created=True).is_empty
    assert not NOTHING._replace(adopt={0: OTHER}).is_empty


def test_what_a_topic_has_after_an_adoption() -> None:
    """A replica that cannot be read now counts as a part of an unrecorded topic."""
    assert adopted(None, {0: None, 1: OURS}, {1: OURS}) == {0: OURS, 1: OURS}
    assert adopted(ONE, {0: OURS, 1: None, 2: THIRD}, {2: THIRD}) == {0: OURS, 2: THIRD}
