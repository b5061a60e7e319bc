"""The last stable offset of an open log is kept in memory, and equals that of a walk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.log.producers.open_transactions import UNDECIDED_MAX, OpenTransactions
from logstore.log.read import transactions
from support.hanging import QUIET
from support.producers import marker_of, sent

CONFIG = LogConfig(record_format="kafka", segment_bytes=1024)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_that_of_a_walk(tmp_path: Path, seed: int) -> None:
    """There are transactions of several producers, a high watermark, rolls and truncations."""
    rng, sequences = random.Random(seed), dict.fromkeys(range(4), 0)
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        if seed:
            log.advance_high_watermark(0)
        for _ in range(150):
            producer_id, dice = rng.randrange(4), rng.random()
            if dice < 0.35:
                log.append_encoded(marker_of(producer_id, commit=rng.random() < 0.5))
            elif dice < 0.8:
                raw = sent(producer_id, sequences[producer_id], transactional=True)
                log.append_encoded(raw)
                sequences[producer_id] += 1
            elif dice < 0.95:
                log.advance_high_watermark(rng.randint(log.high_watermark, log.log_end_offset))
            else:
                log.truncate_to(max(log.log_end_offset - rng.randint(0, 4), 0))
                states = {each.producer_id: each.last_sequence for each in log.producer_states()}
                sequences = {each: states.get(each, -1) + 1 for each in sequences}
            assert log.last_stable_offset == walked(log)


def walked(log: Log) -> int:
    """Find the last stable offset by a walk over all batches."""
    state = log._state
    events = [event for each in state.segments for event in transactions.events_of(state, each)]
    begun: dict[int, int] = {}
    for kind, producer_id, offset in events:
        if offset >= state.high_watermark:
            break
        if kind == transactions.BEGIN:
            begun.setdefault(producer_id, offset)
        else:
            begun.pop(producer_id, None)
    return min([state.high_watermark, *begun.values()])


def test_it_costs_no_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that follows a log reads this offset all the time."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        monkeypatch.setattr(transactions, "events_of", None)  # would fail
        log.append(b"plain")
        assert log.last_stable_offset == 1
        log.append_encoded(sent(7, 0, transactional=True))
        assert log.last_stable_offset == 1
        log.append_encoded(marker_of(7, commit=True))
        assert log.last_stable_offset == 3


def test_it_is_that_of_the_walk_in_a_log_that_is_corrupt(tmp_path: Path) -> None:
    """In a corrupt log, the producers are unknown."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        log.append_encoded(sent(7, 0, transactional=True))
        log._state.refusal = "it is corrupt"
        log._state.producers.replace(None)
        assert log.last_stable_offset == 0


def test_a_program_of_another_process_walks(tmp_path: Path) -> None:
    """Another process knows only the files."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        log.append_encoded(sent(6, 0) + sent(7, 0, transactional=True), durable=True)
        with LogStore.open(tmp_path, read_only=True) as beside:
            assert beside["t", 0].last_stable_offset == 1 == log.last_stable_offset


@pytest.mark.parametrize("is_asked", [False, True])
def test_regression_the_first_high_watermark_may_be_before_a_marker(
    tmp_path: Path, is_asked: bool
) -> None:
    """While the log was not replicated, each read of the offset forgot all ended transactions."""
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        log.append_encoded(sent(7, 0, (b"v",) * 4, transactional=True))
        log.append_encoded(marker_of(7, commit=True))
        log.append(b"plain")
        if is_asked:
            assert log.last_stable_offset == 6
        for high_watermark, stable in ((2, 0), (4, 0), (5, 5), (6, 6)):
            log.advance_high_watermark(high_watermark)
            assert log.last_stable_offset == stable


def test_many_ended_transactions_are_bounded_and_only_delay_the_offset() -> None:
    """The oldest of them count as one transaction, which ends with its last marker."""
    known = OpenTransactions()
    for number in range(UNDECIDED_MAX + 500):
        known.begin(7, 2 * number)
        known.end(7, 2 * number + 1, is_aborted=False)
    pairs, end = known.undecided, 2 * (UNDECIDED_MAX + 500)
    assert len(pairs) == UNDECIDED_MAX and pairs[:2] == [(0, 1001), (1002, 1003)]
    assert known.first_open_offset(end, 0) == end
    for high_watermark, stable in ((1001, 0), (1002, 1002), (1003, 1002), (end, end)):
        assert known.last_stable_offset(high_watermark, 0) == stable
