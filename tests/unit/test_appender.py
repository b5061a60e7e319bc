"""An appender makes batches of small appends, in order, and loses none silently."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.errors import LogClosedError, LogDirOfflineError, RecordTooLargeError
from logstore.log.write.appender import Appender, AppendFuture

FOR_EVER = 3600.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Return an empty log that accepts only small batches."""
    with LogStore.open(tmp_path / "logs") as store:
        yield store.create("orders", 0, config=LogConfig(max_message_bytes=1024))


def counts(log: Log) -> list[int]:
    """Return the number of records of each batch."""
    return [batch.count for batch in log.read_batches()]


def test_records_go_as_one_batch_at_the_close(log: Log) -> None:
    """Each record has all its fields, and the futures then have the offsets."""
    with log.appender(linger=FOR_EVER) as appender:
        futures = [
            appender.append(b"a"),
            appender.append(b"b", key=b"k"),
            appender.append(None, timestamp=5),
            appender.append(b"", headers={"h": b"1"}),
        ]
        assert not any(future.done() for future in futures)
        assert repr(futures[0]) == "AppendFuture(pending)" and "4 wait" in repr(appender)
        with pytest.raises(TimeoutError):
            futures[0].result(0)
    assert [future.result() for future in futures] == [0, 1, 2, 3]
    assert repr(futures[3]) == "AppendFuture(offset 3)"
    assert counts(log) == [4]
    assert [record.value for record in log] == [b"a", b"b", None, b""]
    assert [record.key for record in log] == [None, b"k", None, None]
    assert log[2].timestamp == 5 and log[3].headers == (("h", b"1"),)
    assert log[0].timestamp == log[1].timestamp > 5


def test_a_record_goes_when_its_linger_is_over(log: Log) -> None:
    """No call of `flush` or `close` is needed; the next record gets its own linger time."""
    with log.appender(linger=0) as appender:
        assert appender.append(b"a").result(60) == 0
        assert appender.append(b"b").result(60) == 1


def test_a_full_batch_goes_at_once(log: Log) -> None:
    """A batch with `max_bytes` does not wait for the linger time."""
    with log.appender(linger=FOR_EVER, max_bytes=100) as appender:
        futures = [appender.append(b"x" * 60) for _ in range(3)]
        assert [future.done() for future in futures] == [True, True, False]
    assert counts(log) == [1, 1, 1]


def test_flush_returns_when_all_is_in_the_log(log: Log) -> None:
    """All earlier records are in the log; without records, no batch is made."""
    with log.appender(linger=FOR_EVER) as appender:
        appender.flush()
        future = appender.append(b"a")
        appender.flush()
        assert future.result(0) == 0 and len(log) == 1
    assert len(log) == 1


def test_closing_twice_is_fine_and_nothing_goes_in_afterwards(log: Log) -> None:
    """This also holds if nothing was ever appended."""
    log.appender().close()
    appender = log.appender(linger=FOR_EVER)
    appender.append(b"a")
    appender.close()
    appender.close()
    with pytest.raises(LogClosedError):
        appender.append(b"b")
    assert len(log) == 1
    assert appender._thread is not None and not appender._thread.is_alive()


def test_a_record_that_is_none_spares_the_others(log: Log) -> None:
    """`append` refuses the record; the batch that it would have joined is appended."""
    with log.appender(linger=FOR_EVER) as appender:
        before = appender.append(b"a")
        for value, error in (("text", TypeError), (b"x" * 1024, RecordTooLargeError)):
            with pytest.raises(error):
                appender.append(value)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timestamp"):
            appender.append(b"x", timestamp=-1)
        with pytest.raises(TypeError):
            appender.append(b"x", headers=[("a",)])  # type: ignore[list-item]
        after = appender.append(b"b")
    assert (before.result(), after.result()) == (0, 1)


def test_regression_text_that_cannot_be_encoded_spares_the_others(log: Log) -> None:
    """A lone surrogate in the name of a header failed the whole batch."""
    with log.appender(linger=FOR_EVER) as appender:
        good = appender.append(b"a")
        with pytest.raises(UnicodeEncodeError):
            appender.append(b"b", headers={"\ud800": b""})
    assert good.result() == 0


@pytest.mark.parametrize("size", [100, 300, 480, 900])
def test_regression_records_that_fit_alone_never_fail_together(log: Log, size: int) -> None:
    """A batch is closed before it becomes too large, whatever its records are made of."""
    with log.appender(linger=FOR_EVER) as appender:
        futures = [appender.append(b"x" * size) for _ in range(9)]
        futures += [appender.append(b"", key=b"x" * size) for _ in range(9)]
        futures += [appender.append(b"", headers={"é": b"x" * size}) for _ in range(9)]
        futures += [appender.append(None, timestamp=n, headers={"": b""}) for n in range(99)]
    assert [future.result() for future in futures] == list(range(126))


def test_the_largest_record_that_the_log_takes_goes_through(log: Log) -> None:
    """A record of exactly this size is appended; one more byte is refused."""
    with log.appender(linger=FOR_EVER) as appender:
        future = appender.append(b"x" * 936)
        with pytest.raises(RecordTooLargeError):
            appender.append(b"x" * 937)
    assert future.result() == log.append(b"x" * 936) - 1
    with pytest.raises(RecordTooLargeError):
        log.append(b"x" * 937)


def test_errors_reach_every_future_of_the_batch(log: Log) -> None:
    """`flush` and `close` return, too."""
    appender = log.appender(linger=FOR_EVER)
    futures = [appender.append(b"a"), appender.append(b"b")]
    log._state.log_dir.failed(OSError(5, "Input/output error"))
    appender.flush()
    for future in futures:
        assert future.done()
        with pytest.raises(LogDirOfflineError):
            future.result()
        assert repr(future) == "AppendFuture(LogDirOfflineError)"
    appender.close()


def test_many_threads_keep_their_own_order(log: Log) -> None:
    """Each record is appended once, in the order of its thread, and its future has its offset."""
    count, each = 8, 200
    found: dict[int, list[int]] = {}

    def give(number: int) -> None:
        futures = [appender.append(b"%d %d" % (number, n)) for n in range(each)]
        found[number] = [future.result(60) for future in futures]

    with log.appender(linger=0.001, max_bytes=512) as appender:
        threads = [threading.Thread(target=give, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(log) == count * each
    for number, offsets in found.items():
        assert offsets == sorted(offsets)
        assert [log[at].value for at in offsets] == [b"%d %d" % (number, n) for n in range(each)]


def test_a_coroutine_waits_without_a_thread(log: Log) -> None:
    """This works for one record, for many records and for full batches; or the error is raised."""

    async def give(appender: Appender) -> list[int]:
        futures = [appender.append(b"x" * 300) for _ in range(8)]
        offsets = list(await asyncio.gather(*futures))
        assert await futures[0] == 0
        count = threading.active_count()
        offsets.append(await appender.append(b"y"))
        assert threading.active_count() == count
        log._state.log_dir.failed(OSError(5, "Input/output error"))
        with pytest.raises(LogDirOfflineError):
            await appender.append(b"z")
        return offsets

    with log.appender(linger=0.001) as appender:
        assert asyncio.run(give(appender)) == list(range(9))


def test_a_coroutine_that_goes_away_is_nobodys_trouble(log: Log) -> None:
    """If a coroutine is cancelled, or its loop closed, the other coroutines get their offsets."""

    async def give(appender: Appender) -> AppendFuture:
        future = appender.append(b"a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0)
        waits = asyncio.ensure_future(future)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waits), 0.001)
        return future

    with log.appender(linger=FOR_EVER) as appender:
        future = asyncio.run(give(appender))
        appender.flush()
        assert future.result(0) == 0
        assert appender.append(b"b") is not None
    assert len(log) == 2


@pytest.mark.parametrize("linger", [-1, float("nan"), float("inf"), 1e30])
def test_a_linger_that_is_no_time_is_refused(log: Log, linger: float) -> None:
    """A ValueError is raised; this also holds for batches of no bytes."""
    with pytest.raises(ValueError, match="linger"):
        log.appender(linger=linger)
    with pytest.raises(ValueError, match="max_bytes"):
        log.appender(max_bytes=0)


def test_regression_a_durable_future_is_done_when_its_record_is_on_the_disk(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The future waits for the sync of its batch; records that came during it share the next."""
    syncing, go_on = threading.Event(), threading.Event()
    syncs: list[int] = []
    real = files.sync_data

    def slow_sync(fd: int) -> None:
        syncs.append(fd)
        syncing.set()
        assert go_on.wait(60)
        real(fd)

    monkeypatch.setattr(files, "sync_data", slow_sync)
    with log.appender(linger=0, durable=True) as appender:
        first = appender.append(b"a")
        assert syncing.wait(60)
        others = [appender.append(b"%d" % number) for number in range(5)]
        assert len(log) == 1 and not first.done()
        with pytest.raises(TimeoutError):
            first.result(0)
        go_on.set()
        assert [future.result(60) for future in (first, *others)] == [0, 1, 2, 3, 4, 5]
        assert log.recovery_point == 6
    assert len(syncs) == 2


def test_a_sync_that_fails_fails_every_future_of_its_batch(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No future reports success for records that the disk did not confirm, and `close` returns."""

    def fail(fd: int) -> None:
        raise files.SyncError(5, "Input/output error")

    with log.appender(linger=FOR_EVER, durable=True) as appender:
        futures = [appender.append(b"x") for _ in range(3)]
        monkeypatch.setattr(files, "sync_data", fail)
        appender.flush()
        for future in futures:
            with pytest.raises(LogDirOfflineError):
                future.result(0)
        late = appender.append(b"y")
    with pytest.raises(LogDirOfflineError):
        late.result(0)


def test_a_close_waits_for_the_disk(log: Log) -> None:
    """After a close, all appended records are durable; `flush` guarantees the same."""
    appender = log.appender(linger=FOR_EVER, durable=True)
    appender.append(b"a")
    appender.flush()
    assert log.recovery_point == 1
    future = appender.append(b"b")
    appender.close()
    assert (future.result(0), log.recovery_point) == (1, 2)


def test_an_interrupted_sync_is_made_up_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the log once, and its future is done after the next sync."""
    real = files.sync_data

    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    appender = log.appender(linger=FOR_EVER, durable=True)
    future = appender.append(b"a")
    monkeypatch.setattr(files, "sync_data", interrupt)
    with pytest.raises(KeyboardInterrupt):
        appender.flush()
    assert not future.done() and len(log) == 1
    monkeypatch.setattr(files, "sync_data", real)
    appender.close()
    assert (future.result(0), len(log), log.recovery_point) == (0, 1, 1)
