"""Test the answer to each transaction request, and the edge cases of a transaction."""

from __future__ import annotations

import pytest

from broker.transactions import steps
from broker.transactions.steps import Asker, Markers
from broker.transactions.transaction import (
    EPOCH_MAX,
    TRANSITIONS,
    State,
    Transaction,
    check_step,
)

PLACE = frozenset({("t", 0)})
EMPTY = Transaction(7, 3, 1000, State.EMPTY, frozenset(), -1, 50)
ONGOING = EMPTY._replace(state=State.ONGOING, partitions=PLACE, started_ms=60)
COMMIT = ONGOING._replace(state=State.PREPARE_COMMIT)
ABORT = ONGOING._replace(state=State.PREPARE_ABORT)
COMMITTED = EMPTY._replace(state=State.COMPLETE_COMMIT)
ABORTED = EMPTY._replace(state=State.COMPLETE_ABORT)
OWN = Asker(7, 3)


@pytest.mark.parametrize(
    ("before", "of_commit", "of_abort"),
    [
        (EMPTY, 48, 48), (ONGOING, 0, 0), (COMMIT, 51, 48), (ABORT, 48, 51),
        (COMMITTED, 0, 48), (ABORTED, 48, 0), (None, 49, 49),
    ],
)  # fmt: skip
def test_the_answers_to_an_end(before: Transaction | None, of_commit: int, of_abort: int) -> None:
    """A repeated end succeeds after the markers; before, the client has to ask again."""
    assert steps.end(before, OWN, is_commit=True, now_ms=9).code == of_commit
    assert steps.end(before, OWN, is_commit=False, now_ms=9).code == of_abort


@pytest.mark.parametrize(("before", "code"), [(COMMIT, 51), (ABORT, 51), (EMPTY, 0), (None, 49)])
def test_the_answers_to_new_partitions(before: Transaction | None, code: int) -> None:
    """Until the markers are written, no other transaction begins."""
    assert steps.add_partitions(before, OWN, PLACE, 9).code == code


def test_a_known_partition_is_not_written_again() -> None:
    """The transaction stays the same object, so nothing is written."""
    assert steps.add_partitions(ONGOING, OWN, PLACE, 9).after is ONGOING


@pytest.mark.parametrize("asker", [Asker(7, 2), Asker(7, 4)])
def test_another_epoch_is_fenced(asker: Asker) -> None:
    """An older epoch, and an epoch that was never given, are fenced."""
    assert steps.add_partitions(EMPTY, asker, PLACE, 9).code == 90
    assert steps.end(ONGOING, asker, is_commit=True, now_ms=9).code == 90
    assert steps.fault_of_batch(ONGOING, asker, ("t", 0)) == 90
    assert steps.init_producer(EMPTY, asker, 1, -1, 9).code == 90


def test_a_batch_needs_its_partition_in_an_ongoing_transaction() -> None:
    """A batch is refused before its partition was added, and after the end (KIP-890)."""
    codes = [
        steps.fault_of_batch(one, OWN, ("t", 0))
        for one in (ONGOING, EMPTY, COMMITTED, COMMIT, None)
    ]
    assert codes == [0, 120, 120, 51, 49]
    assert steps.fault_of_batch(ONGOING, OWN, ("t", 1)) == 120


def test_a_new_client_aborts_the_transaction_of_the_one_before() -> None:
    """The abort has the next epoch; the client asks again until the markers are written."""
    step = steps.init_producer(ONGOING, Asker(), 1000, -1, 70)
    assert (step.code, step.markers) == (51, Markers(7, 4, is_commit=False, partitions=PLACE))
    assert step.after is not None
    assert steps.init_producer(step.after, Asker(), 1000, -1, 70).code == 51
    done = steps.complete(step.after, 80).after
    again = steps.init_producer(done, Asker(), 500, -1, 90)
    assert again.after == Transaction(7, 5, 500, State.EMPTY, frozenset(), -1, 90)


def test_a_client_asks_for_its_next_epoch_twice() -> None:
    """If the answer was lost, the client gets the same epoch again (KIP-360)."""
    first = steps.init_producer(ABORTED, OWN, 1000, -1, 70).after
    assert first is not None and first.epoch == 4
    second = steps.init_producer(first, OWN, 1000, -1, 80).after
    assert second is not None and second[:3] == (7, 4, 1000)
    assert steps.init_producer(second, Asker(7, 2), 1000, -1, 90).code == 90


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    """A client that asked for the new id may repeat its request."""
    last = ABORTED._replace(epoch=EPOCH_MAX - 1)
    assert not steps.needs_new_id(ABORTED, Asker()) and steps.needs_new_id(None, Asker())
    for asker in (Asker(), Asker(7, EPOCH_MAX - 1)):
        assert steps.needs_new_id(last, asker)
        after = steps.init_producer(last, asker, 1000, 8, 70).after
        assert after is not None and after[:2] == (8, 0)
    assert not steps.needs_new_id(last, Asker(7, 5))
    assert steps.init_producer(last, Asker(7, 5), 1000, -1, 70).code == 90
    again = steps.init_producer(after, Asker(7, EPOCH_MAX - 1), 1000, -1, 70)
    assert again.code == 0 and again.after is not None and again.after[:2] == (8, 0)
    fenced = steps.time_out(ONGOING._replace(epoch=EPOCH_MAX - 1), 1061)
    assert fenced.after is not None and fenced.after.epoch == EPOCH_MAX


def test_time_and_idleness() -> None:
    """A transaction ends after its timeout, and an idle id after its retention."""
    assert steps.time_out(ONGOING, 1060).after is ONGOING
    late = steps.time_out(ONGOING, 1061)
    assert (late.code, late.markers) == (0, Markers(7, 4, is_commit=False, partitions=PLACE))
    assert steps.time_out(COMMIT, 9999).after is COMMIT
    assert steps.expire(EMPTY, 100, 149).after is EMPTY
    gone = steps.expire(EMPTY, 100, 150).after
    assert gone is not None and gone.state is State.DEAD
    assert steps.expire(ONGOING, 100, 9999).after is ONGOING


def test_the_table_has_every_state() -> None:
    """No state follows DEAD, and a prepared transaction has only one next state."""
    assert set(TRANSITIONS) == set(State) and not TRANSITIONS[State.DEAD]
    assert TRANSITIONS[State.PREPARE_COMMIT] == {State.COMPLETE_COMMIT}
    assert [state.title for state in (State.EMPTY, State.PREPARE_COMMIT)] == [
        "Empty", "PrepareCommit",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COMMIT, ABORTED), (ONGOING, ABORTED), (EMPTY, EMPTY._replace(epoch=2)),
        (ONGOING, ONGOING._replace(partitions=frozenset())), (None, ONGOING),
        (ONGOING, COMMIT._replace(partitions=PLACE | {("t", 1)})),
        (EMPTY, EMPTY._replace(epoch=EPOCH_MAX)), (EMPTY, EMPTY._replace(producer_id=9)),
        (ONGOING, ABORT._replace(epoch=5)),
    ],
)  # fmt: skip
def test_a_wrong_step_breaks_an_assertion(before: Transaction | None, after: Transaction) -> None:
    """Each invariant is checked by an assertion."""
    with pytest.raises(AssertionError):
        check_step(before, after)
