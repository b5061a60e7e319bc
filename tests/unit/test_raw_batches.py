"""Encoded batches are read and appended unchanged, or get new offsets; others are refused."""

from __future__ import annotations

import errno
import os
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.errors import LogStoreError, OffsetOutOfRangeError, RecordTooLargeError
from logstore.format import layouts
from logstore.log.encoded import follower_appends, leader_appends, markers, raw_batches
from logstore.log.encoded.raw_batches import parse
from support.hanging import QUIET
from support.inside import abandon
from support.interrupts import WRITING, InterruptAt
from support.places import fast_directory
from support.producers import sent

CONFIG = LogConfig(segment_bytes=1024)
WORKING = (follower_appends, raw_batches, *WRITING)  # the modules that do an append


@pytest.fixture
def leader(store: LogStore) -> Log:
    """Return a log of several segments and two epochs."""
    log = store.create("leader", 0, config=CONFIG)
    for number in range(20):
        log.extend([b"%d" % number, b"x" * number], keys=[b"k", None], timestamps=number)
    log.leader_epoch = 4
    for number in range(20, 30):
        log.append(b"%d" % number, timestamp=number, headers={"h": b"%d" % number})
    return log


def rows(log: Log) -> list[tuple[object, ...]]:
    """Return all records, with all fields but the topic."""
    return [tuple(record[:5]) for record in log]


def raw_of(log: Log, max_bytes: int) -> list[bytes]:
    """Fetch a whole log, like a follower."""
    found, offset = [], log.log_start_offset
    while raw := log.read_raw(offset, max_bytes):
        found.append(raw)
        offset = parse(raw)[-1][1].last_offset + 1
    return found


def test_regression_a_follower_begins_behind_a_gap_after_a_kill(tmp_path: Path) -> None:
    """The empty segment after the recovery was gone, and every later flush looked for it."""
    store = LogStore.open(tmp_path, config=QUIET, admin_socket=False)
    source = store.create("leader", 0, config=CONFIG)
    source.extend([b"v"] * 18)
    source.extend([b"w"] * 2)
    raw = source.read_raw(18, 1)
    store.create("follower", 0, config=CONFIG)
    abandon(store)
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        log = store.log("follower", 0)
        assert log.append_as_follower(raw) == range(18, 20)
        log.flush()
        assert log.recovery_point == 20
    with LogStore.open(tmp_path, config=QUIET, admin_socket=False) as store:
        assert [record.value for record in store.log("follower", 0)] == [b"w"] * 2


@pytest.mark.timeout(30)
def test_regression_a_follower_that_begins_late_flushes_at_once(
    store: LogStore, leader: Log
) -> None:
    """The append waited forever for the flush lock that it held itself."""
    log = store.create("follower", 0, config=CONFIG.replace(flush_messages=1))
    assert log.append_as_follower(raw_of(leader, 1)[1]) == range(2, 4)
    assert log.recovery_point == 4


@pytest.mark.parametrize("max_bytes", [1, 400, 1 << 20])
def test_a_follower_has_what_its_leader_has(store: LogStore, leader: Log, max_bytes: int) -> None:
    """Offsets, epochs and bytes are equal, for fetches of any size; one batch always fits."""
    log = store.create("follower", 0, config=CONFIG)
    end = 0
    for raw in raw_of(leader, max_bytes):
        offsets = log.append_as_follower(raw)
        assert offsets.start == end
        end = offsets.stop
    assert rows(log) == rows(leader) and log.leader_epoch == 4
    assert raw_of(log, 1 << 20) == raw_of(leader, 1 << 20)
    assert log.verify() == []
    assert log.read_raw(end) == b""


def test_a_follower_takes_only_what_comes_next(store: LogStore, leader: Log) -> None:
    """A gap and a repetition are refused; an empty log begins where its leader's begins."""
    first, second, third, *_ = raw_of(leader, 1)
    log = store.create("follower", 0)
    assert log.append_as_follower(second) == range(2, 4)
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    for raw in (first, second, raw_of(leader, 1)[5]):
        with pytest.raises(OffsetOutOfRangeError, match="but the next offset is 4"):
            log.append_as_follower(raw)
    assert log.append_as_follower(third) == range(4, 6)
    assert log.append_as_follower(b"") == range(6, 6)


@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("kind", [errno.EMFILE, errno.EACCES, errno.ENOSPC, None])
def test_regression_a_follower_that_could_not_begin_loses_nothing(
    leader: Log, tmp_path: Path, kind: int | None, nth: int
) -> None:
    """The log start stayed at the leader's, and records appended before it were deleted."""
    raw, opened, real = raw_of(leader, 1)[5], 0, files.open_file

    def open_file(path: str, *rest: int) -> int:
        nonlocal opened
        opened += path.startswith(str(tmp_path))
        if opened == nth and kind is None:
            raise KeyboardInterrupt
        if opened == nth and kind is not None:
            raise OSError(kind, os.strerror(kind), path)
        return real(path, *rest)

    with LogStore.open(tmp_path / "disk", config=QUIET) as store:
        log = store.create("follower", 0)
        with pytest.MonkeyPatch.context() as patch, suppress(LogStoreError, KeyboardInterrupt):
            patch.setattr(files, "open_file", open_file)
            log.append_as_follower(raw)
        offset, known = log.append(b"own", durable=True), rows(log)
    with LogStore.open(tmp_path / "disk", config=QUIET) as store:
        log = store.log("follower", 0)
        assert rows(log) == known and log[offset].value == b"own"
        assert not log.recovery.problems


def test_regression_an_interrupted_follower_serves_what_it_has(leader: Log) -> None:
    """After Ctrl-C in the first segment's creation, earlier offsets counted as damage."""
    raw, number, was_hit, starts = raw_of(leader, 1)[5], 0, True, set()
    with fast_directory() as path, LogStore.open(path, config=QUIET) as store:
        while was_hit:
            log = store.create("follower", number)
            number += 1
            with suppress(KeyboardInterrupt), InterruptAt(number, *WORKING) as it:
                log.append_as_follower(raw)
            was_hit = it.was_hit
            starts.add(log.log_start_offset)
            assert len(rows(log)) == len(log)
            if not len(log):
                log.append_as_follower(raw)
            assert log.log_start_offset == 10
            assert [segment.base_offset for segment in log._state.segments] == [10]
    assert starts == {0, 10}


def test_an_older_epoch_is_refused(store: LogStore, leader: Log) -> None:
    """The batch comes from a leader that was replaced."""
    log = store.create("follower", 0)
    log.leader_epoch = 9
    with pytest.raises(ValueError, match="epoch"):
        log.append_as_follower(raw_of(leader, 1)[0])
    assert len(log) == 0


def test_appended_with_new_offsets_records_stay_what_they_are(store: LogStore, leader: Log) -> None:
    """The records follow the records of the log, in this log's epoch."""
    log = store.create("other", 0, config=CONFIG)
    log.append(b"first")
    log.leader_epoch = 7
    raw = b"".join(raw_of(leader, 1 << 20))
    assert log.append_encoded(raw) == range(1, 1 + len(leader))
    assert [row[1:] for row in rows(log)[1:]] == [row[1:] for row in rows(leader)]
    assert {batch.leader_epoch for batch in log.read_batches(1)} == {7}
    assert log.append_encoded(b"") == range(len(log), len(log))


def test_what_is_no_whole_sound_batch_is_refused_whole(store: LogStore, leader: Log) -> None:
    """Batches are cut, damaged, too large, or of a wrong type; none of them is written."""
    log = store.create("other", 0, config=LogConfig(max_message_bytes=100))
    raw = b"".join(raw_of(leader, 1 << 20))
    for append in (log.append_as_follower, log.append_encoded):
        for bad in (raw[:-1], raw[1:], raw + b"\0", raw[:500] + b"!" + raw[501:], b"garbage"):
            with pytest.raises(ValueError, match="no whole batch"):
                append(bad)
        with pytest.raises(TypeError):
            append("text")  # type: ignore[arg-type]
    with pytest.raises(RecordTooLargeError):
        log.append_encoded(raw)
    assert len(log) == 0 and log.size_bytes == 0


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_a_peers_batch_is_judged_as_one_in_a_file(store: LogStore, record_format: str) -> None:
    """With any bit changed, or cut anywhere, both give the same error or the same records."""
    log = store.create("one", 0, config=LogConfig(record_format=record_format))
    log.extend([b"a", b"b"], timestamps=[5, 7])
    whole = log.read_raw(0, 1000)
    turned = [bytearray(whole) for _ in range(8 * len(whole))]
    for bit, data in enumerate(turned):
        data[bit >> 3] ^= 1 << (bit & 7)
    for raw in [whole, *map(bytes, turned), *(whole[:size] for size in range(1, len(whole)))]:
        fault = layouts.fault(memoryview(raw), 0, None)
        if fault is None:  # Kafka's checksum covers neither offset nor epoch
            assert parse(raw) == [(raw, layouts.read_header(raw, 0))]
            continue
        with pytest.raises(ValueError, match=f" no whole .* position 0: {re.escape(fault)}$"):
            parse(raw)


def test_raw_reads_keep_to_the_log(leader: Log) -> None:
    """Before the log start and after the log end there is nothing; inside a batch, it is read."""
    with pytest.raises(OffsetOutOfRangeError):
        leader.read_raw(len(leader) + 1)
    assert leader.read_raw(1, 1) == leader.read_raw(0, 1)
    leader.delete_records_before(20)
    with pytest.raises(OffsetOutOfRangeError):
        leader.read_raw(19)


def test_a_follower_begins_anew_beside_flushes(store: LogStore, leader: Log) -> None:
    """No flush meets the removed file of the empty segment."""
    raw = leader.read_raw(2, 1)
    log, is_over = store.create("follower", 0), threading.Event()

    def flush() -> None:
        while not is_over.is_set():
            log.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        assert log.append_as_follower(raw) == range(2, 4)
    finally:
        is_over.set()
        thread.join()
    log.flush()
    assert log.recovery_point == log.log_end_offset == 4


class Crowded:
    """A log's lock for which another thread waits: this thread appends when the lock is free."""

    def __init__(self, log: Log) -> None:
        self._log, self._lock, self._is_over = log, log._state.lock, False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if not self._is_over:
            self._is_over = True
            self._log.append(b"of another thread")


@pytest.mark.parametrize("name", ["append_encoded", "append_marker"])
def test_regression_what_another_thread_appends_does_not_count_as_written(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An interrupt came before the write, and the lock was free before the end was read."""
    log = store.create("t", 0, config=LogConfig(record_format="kafka"))
    raw = sent(7, 0)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module in (leader_appends, markers):
        monkeypatch.setattr(module, "write_and_take", interrupted)
    log._state.lock = Crowded(log)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt) as caught:
        if name == "append_encoded":
            log.append_encoded(raw)
        else:
            log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    assert vars(caught.value)["is_written"] is False
    assert [record.value for record in log] == [b"of another thread"]
