"""Test the answer to each transaction request, and the edge cases of a transaction."""

from __future__ import annotations

import pytest

from broker.transactions import steps
from broker.transactions.steps import Asker, Markers
from broker.transactions.transaction import (
    EPOCH_MAX,
    TRANSITIONS,
    Protocol,
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


def test_a_zombie_does_not_abort_the_transaction_of_the_present_client() -> None:
    """A client with a replaced epoch is fenced, and the transaction goes on."""
    rotated = ONGOING._replace(epoch=0, previous_id=6, previous_epoch=EPOCH_MAX - 1)
    for before, asker in ((ONGOING, Asker(7, 2)), (rotated, Asker(6, EPOCH_MAX - 1))):
        step = steps.init_producer(before, asker, 1000, -1, 70)
        assert (step.code, step.after, step.markers) == (90, before, None)
    assert steps.init_producer(ONGOING, OWN, 1000, -1, 70).code == 51


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


RAISED = COMMIT._replace(epoch=4, previous_id=7, previous_epoch=3, protocol=Protocol.RAISING)
RAISED_DONE = RAISED._replace(state=State.COMPLETE_COMMIT, partitions=frozenset())
NEXT = Asker(7, 4)
LAST = ONGOING._replace(epoch=EPOCH_MAX - 1)


def raising(before: Transaction | None, asker: Asker, *, is_commit: bool = True) -> steps.Step:
    return steps.end_raising(before, asker, is_commit=is_commit, new_id=8, now_ms=9)


@pytest.mark.parametrize(
    ("before", "asker", "of_commit", "of_abort"),
    [
        (None, OWN, 49, 49), (EMPTY, OWN, 48, 0), (ONGOING, OWN, 0, 0), (COMMIT, OWN, 51, 51),
        (COMMITTED, OWN, 48, 0), (ABORTED, OWN, 48, 0), (RAISED, OWN, 51, 48),
        (RAISED, NEXT, 51, 51), (RAISED_DONE, OWN, 0, 48), (RAISED_DONE, NEXT, 48, 0),
        (EMPTY, Asker(8, 3), 49, 49), (RAISED_DONE, Asker(7, 2), 90, 90), (ONGOING, NEXT, 90, 90),
        (ABORTED._replace(epoch=EPOCH_MAX), Asker(7, EPOCH_MAX), 90, 90),
        (ABORTED._replace(protocol=Protocol.RAISING), Asker(-1, -1), 49, 49),
    ],
)  # fmt: skip
def test_the_answers_to_a_raising_end(
    before: Transaction | None, asker: Asker, of_commit: int, of_abort: int
) -> None:
    """A repeated end has the old epoch; only an abort may end a transaction without partitions."""
    assert raising(before, asker).code == of_commit
    assert raising(before, asker, is_commit=False).code == of_abort


def test_each_raising_end_gives_the_next_epoch() -> None:
    """The markers have this epoch, and the repeated request gets the same answer."""
    step = raising(ONGOING, OWN)
    assert step.after == RAISED._replace(updated_ms=9)
    assert step.markers == Markers(7, 4, is_commit=True, partitions=PLACE, is_raised=True)
    assert steps.given(RAISED) == NEXT
    done = steps.complete(RAISED, 9).after
    again = raising(done, OWN)
    assert again.after is done and done is not None and steps.given(done) == NEXT
    empty = raising(RAISED_DONE, NEXT, is_commit=False)
    assert empty.markers is None and empty.after is not None
    assert (empty.after[:2], empty.after.state) == ((7, 5), State.COMPLETE_ABORT)


def test_a_raising_end_of_the_last_epoch_gives_a_new_producer_id() -> None:
    """The markers have the old id; the client may use the new id only after the markers."""
    own, new = Asker(7, EPOCH_MAX - 1), Asker(8, 0)
    assert steps.needs_next_id(LAST, own) and not steps.needs_next_id(LAST, OWN)
    assert not steps.needs_next_id(COMMIT._replace(epoch=EPOCH_MAX - 1), own)
    step = raising(LAST, own)
    assert step.markers is not None and step.markers[:2] == (7, EPOCH_MAX)
    prepared = step.after
    assert prepared is not None and steps.given(prepared) == new
    assert steps.add_partitions(prepared, new, PLACE, 9).code == 51
    assert steps.init_producer(prepared, new, 1000, -1, 9).code == 51
    assert steps.add_partitions(prepared, own, PLACE, 9).code == 90
    assert raising(prepared, own).code == raising(prepared, new).code == 51
    done = steps.complete(prepared, 9).after
    assert done is not None and done[:2] == new and raising(done, own).after is done
    assert steps.given(done) == new
    empty = raising(LAST._replace(state=State.EMPTY, partitions=frozenset()), own, is_commit=False)
    assert empty.after is not None and empty.after[:2] == new and empty.markers is None


def test_a_client_changes_its_protocol_between_transactions() -> None:
    """The older protocol continues with the raised epoch, and the newer one with the same epoch."""
    old = steps.add_partitions(RAISED_DONE, NEXT, PLACE, 9).after
    assert old is not None and old.protocol is Protocol.OLD
    ended = steps.end(old, NEXT, is_commit=True, now_ms=9)
    assert ended.markers is not None
    assert (ended.markers.epoch, ended.markers.is_raised) == (4, False)
    new = steps.add_partitions(COMMITTED, OWN, PLACE, 9, Protocol.RAISING).after
    assert new is not None and new.protocol is Protocol.RAISING
    assert raising(new, OWN).after is not None
    assert steps.end(RAISED, NEXT, is_commit=False, now_ms=9).code == 51


def test_a_fenced_client_does_not_repeat_its_end() -> None:
    """The coordinator aborted the transaction, so the epoch was not raised by the client."""
    fenced = steps.time_out(ONGOING._replace(protocol=Protocol.RAISING), 9999).after
    assert fenced is not None and fenced.protocol is Protocol.OLD
    done = steps.complete(fenced, 9999).after
    assert raising(fenced, OWN, is_commit=False).code == 90
    assert raising(done, OWN, is_commit=False).code == 90


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ONGOING, RAISED._replace(epoch=3)), (ONGOING, COMMIT._replace(next_id=8)),
        (RAISED, RAISED_DONE._replace(next_id=8)), (RAISED, RAISED_DONE._replace(producer_id=8)),
    ],
)  # fmt: skip
def test_a_wrong_raising_step_breaks_an_assertion(before: Transaction, after: Transaction) -> None:
    """The epoch is raised, and only the last epoch is followed by another producer id."""
    with pytest.raises(AssertionError):
        check_step(before, after)
