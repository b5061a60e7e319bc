"""Test that a client with a session always knows the same as a client without a session."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.machines.fetch_sessions import EPOCH_MAX, FetchSessions, Key, Opened, Result, Wanted
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FetchRequest, FetchResponse

KEYS: list[Key] = [("a", 0), ("a", 1), ("b", 0), ("c", 7)]


def wanted_of(key: Key, offset: int = 0) -> Wanted:
    return key, FetchRequest.FetchPartition(partition=key[1], fetch_offset=offset)


def data_of(key: Key, high_watermark: int, records: bytes = b"", error: int = 0) -> Any:
    return FetchResponse.PartitionData(key[1], error, high_watermark, -1, 0, records=records)


def sessions_of(slots: int = 10, **limits: Any) -> FetchSessions:
    numbers = itertools.count(1)
    return FetchSessions(slots, lambda: next(numbers), **limits)


def opened(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    *keys: Key,
    forgotten: tuple[Key, ...] = (),
    now: float = 0.0,
    is_by_id: bool = False,
) -> Opened:
    wanted = [wanted_of(key) for key in keys]
    return sessions.open(session_id, epoch, wanted, forgotten, is_by_id=is_by_id, now=now)


class Reader:
    """A client with a session, like Kafka's: it sends only changes since its last request."""

    def __init__(self) -> None:
        self.sessions = sessions_of()
        self.truth = dict.fromkeys(KEYS, (0, 0))  # high watermark, error
        self.read: dict[Key, int] = {}  # its offsets
        self.view: dict[Key, tuple[int, int]] = {}
        self.added: set[Key] = set()
        self.gone: set[Key] = set()
        self.session_id = self.epoch = 0

    def want(self, key: Key) -> None:
        if key not in self.read:
            self.read[key] = 0
            self.added.add(key)
            self.gone.discard(key)

    def forget(self, key: Key) -> None:
        if key in self.read and self.session_id:
            del self.read[key]
            self.added.discard(key)
            self.gone.add(key)

    def append(self, key: Key) -> None:
        high_watermark, error = self.truth[key]
        self.truth[key] = (high_watermark + 1, error)

    def fail(self, key: Key) -> None:
        self.truth[key] = (self.truth[key][0], 56)

    def mend(self, key: Key) -> None:
        self.truth[key] = (self.truth[key][0], 0)

    def poll(self, _: Key) -> None:
        """Fetch, and compare the client's knowledge with the real state."""
        if not self.read and not self.session_id:
            return
        sent = self.added if self.session_id else self.read
        wanted = [wanted_of(key, self.read[key]) for key in sent]
        found = self.sessions.open(
            self.session_id, self.epoch, wanted, self.gone, is_by_id=False, now=0.0
        )
        assert found.error == ErrorCode.NONE
        assert {key: one.fetch_offset for key, one in found.partitions} == self.read
        answered, rows = self.sessions.answer(found, self._results(found), 0.0)
        assert len(rows) == len(self.read) or self.session_id
        for key in self.gone:
            self.view.pop(key, None)
        self.added.clear()
        self.gone.clear()
        self._take(rows)
        assert {key: self.view[key][1] for key in self.read} == {
            key: self.truth[key][1] for key in self.read
        }
        for key in self.read:
            assert self.truth[key][1] or self.view[key] == self.truth[key]
        assert bool(answered) == bool(self.read)
        self.session_id, self.epoch = answered, self.epoch + 1 if answered else 0
        for key, data in rows:  # it asks for what follows the records that it got
            self.read[key] += len(data.records)
            if data.records:
                self.added.add(key)

    def _results(self, found: Opened) -> list[Result]:
        results = []
        for key, request in found.partitions:
            end, error = self.truth[key]
            records = b"" if error else b"x" * (end - request.fetch_offset)
            results.append((key, data_of(key, -1 if error else end, records, error)))
        return results

    def _take(self, rows: Sequence[Result]) -> None:
        for key, data in rows:
            before = self.view.get(key, (0, 0))[0]
            self.view[key] = (max(data.high_watermark, before), data.error_code)


KINDS = ["want", "forget", "append", "fail", "mend", "poll", "poll"]
STEP = st.tuples(st.sampled_from(KINDS), st.sampled_from(KEYS))


@settings(max_examples=300)
@given(st.lists(STEP, max_size=60))
def test_a_session_model(steps: list[tuple[str, Key]]) -> None:
    """After each answer, the client's view of each partition is the broker's."""
    reader = Reader()
    for kind, key in steps:
        getattr(reader, kind)(key)


def test_a_request_of_another_session_or_epoch_is_refused() -> None:
    """70 for an id of before a restart, 71 for a repeated request, 106 if ids replace names."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS), [], 0.0)
    assert opened(sessions, 99, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, number, 2).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_id = opened(sessions, number, 1, is_by_id=True)
    assert by_id.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert opened(sessions, number, 1).error is ErrorCode.NONE
    assert opened(sessions, number, 1).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert opened(sessions, number, 2).error is ErrorCode.NONE


def test_the_epoch_wraps() -> None:
    """After the largest epoch comes 1, because 0 makes a new session."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS), [], 0.0)
    session = opened(sessions, number, 1).session
    assert session is not None
    session.epoch = EPOCH_MAX
    assert opened(sessions, number, EPOCH_MAX).error is ErrorCode.NONE
    assert opened(sessions, number, 1).error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_request_closes_the_session_that_it_names(epoch: int) -> None:
    """A full request with epoch -1 ends the session; with epoch 0 it begins a new one."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS), [], 0.0)
    again = opened(sessions, number, epoch, *KEYS)
    assert again.is_full and len(sessions) == 0
    answered, _ = sessions.answer(again, [], 0.0)
    assert (answered == 0) == (epoch == -1) and answered != number
    assert sessions.partition_count == (0 if epoch == -1 else len(KEYS))


def test_a_session_without_partitions_is_closed() -> None:
    """A client that forgets its last partition gets session id 0, as from Kafka."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, KEYS[0]), [], 0.0)
    last = opened(sessions, number, 1, forgotten=(KEYS[0],))
    assert last.error is ErrorCode.NONE and len(sessions) == 0
    assert sessions.answer(last, [], 0.0) == (0, [])
    assert sessions.answer(opened(sessions, 0, 0), [], 0.0) == (0, [])


def test_regression_a_partition_that_is_named_and_forgotten_is_forgotten() -> None:
    """As in Kafka, the order of the two lists in the request does not count."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS[:2]), [], 0.0)
    known = opened(sessions, number, 1, KEYS[0], forgotten=(KEYS[0],))
    assert [key for key, _ in known.partitions] == [KEYS[1]]
    unknown = opened(sessions, number, 2, KEYS[2], forgotten=(KEYS[2], KEYS[3]))
    assert [key for key, _ in unknown.partitions] == [KEYS[1]]
    assert sessions.partition_count == 1
    last = opened(sessions, number, 3, KEYS[1], forgotten=(KEYS[1],))
    assert last.error is ErrorCode.NONE and last.is_full and last.session is None
    assert [key for key, _ in last.partitions] == [KEYS[1]]  # the session is over, this request not
    assert sessions.answer(last, [], 0.0)[0] == 0 and sessions.partition_count == len(sessions) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_regression_a_partition_that_is_named_twice_is_answered_once(epoch: int) -> None:
    """The last mention counts, with and without a session."""
    sessions = sessions_of()
    wanted = [wanted_of(KEYS[0], 1), wanted_of(KEYS[1], 2), wanted_of(KEYS[0], 3)]
    full = sessions.open(0, epoch, wanted, (), is_by_id=False, now=0.0)
    assert full.partitions == [wanted[2], wanted[1]]
    number, _ = sessions.answer(full, [], 0.0)
    assert sessions.partition_count == (0 if epoch == -1 else 2)
    if epoch == 0:
        again = sessions.open(number, 1, wanted, (), is_by_id=False, now=0.0)
        assert again.partitions == [wanted[2], wanted[1]]


def test_clients_that_only_make_sessions_push_nobody_out() -> None:
    """A session is closed only if it was unused for long; until then, new clients get none."""
    sessions = sessions_of(2, age_min=60.0)
    first, second = (
        sessions.answer(opened(sessions, 0, 0, KEYS[0]), [], float(now))[0] for now in (0, 1)
    )
    assert sessions.answer(opened(sessions, 0, 0, KEYS[1]), [], 59.0)[0] == 0
    assert opened(sessions, first, 1, now=59.5).error is ErrorCode.NONE
    third, _ = sessions.answer(opened(sessions, 0, 0, KEYS[1]), [], 61.5)
    assert third and opened(sessions, second, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, first, 2).error is ErrorCode.NONE


def test_the_partitions_of_all_sessions_have_a_limit() -> None:
    """A session beyond the limit is refused or closed, and the client asks for everything."""
    sessions = sessions_of(partitions_max=3)
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS[:2]), [], 0.0)
    assert sessions.answer(opened(sessions, 0, 0, *KEYS[:2]), [], 0.0)[0] == 0
    assert sessions.partition_count == 2
    grown = opened(sessions, number, 1, *KEYS)
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == len(sessions) == 0


@pytest.mark.parametrize("name", ["n" * 250, "n" * 32_767, "\u00fc"])
def test_regression_a_session_keeps_no_name_that_no_topic_can_have(name: str) -> None:
    """A session outlives its connection, and a request has room for thousands of long names."""
    sessions, key = sessions_of(), (name, 0)
    full = opened(sessions, 0, 0, KEYS[0], key)
    assert full.error is ErrorCode.NONE and len(full.partitions) == 2
    assert sessions.answer(full, [], 0.0)[0] == 0
    number, _ = sessions.answer(opened(sessions, 0, 0, KEYS[0]), [], 0.0)
    assert opened(sessions, number, 1, key).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == sessions.partition_count == 0


def test_a_log_start_that_moved_is_a_change() -> None:
    """A moved log start counts as a change, because clients compare their offsets with it."""
    sessions = sessions_of()
    before = data_of(KEYS[0], 5)
    first = opened(sessions, 0, 0, KEYS[0])
    number, _ = sessions.answer(first, [(KEYS[0], before)], 0.0)
    for epoch, start, is_seen in ((1, 0, False), (2, 3, True), (3, 3, False)):
        row = (KEYS[0], before._replace(log_start_offset=start))
        _, rows = sessions.answer(opened(sessions, number, epoch), [row], 0.0)
        assert bool(rows) is is_seen


def test_partitions_with_records_are_last_in_the_next_answer() -> None:
    """So a partition with many records does not delay the other partitions."""
    sessions = sessions_of()
    number, _ = sessions.answer(opened(sessions, 0, 0, *KEYS[:3]), [], 0.0)
    found = opened(sessions, number, 1)
    results = [(KEYS[0], data_of(KEYS[0], 1, b"x")), (KEYS[1], data_of(KEYS[1], 0))]
    sessions.answer(found, results, 0.0)
    assert [key for key, _ in opened(sessions, number, 2).partitions] == [*KEYS[1:3], KEYS[0]]
