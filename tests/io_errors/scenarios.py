"""Do everything a store does, in short scenarios that an error may hit at any call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from logstore import (
    LogClosedError,
    LogConfig,
    LogDirFullError,
    LogStore,
    LogStoreError,
    StoreConfig,
)
from support.expectation import Expectation
from support.keepers import wait_until_idle
from support.writer import value_of

HOUR_MS = 3_600_000
IS_WHOLE = os.environ.get("LOGSTORE_STRIDE") == "1"
# For one test: a hang is an error, hours on a busy machine are none when every call is taken.
SECONDS_MAX = 4 * 3600 if IS_WHOLE else 290
QUIET = StoreConfig(
    log_flush_scheduler_interval_ms=HOUR_MS,
    log_flush_offset_checkpoint_interval_ms=HOUR_MS,
    log_retention_check_interval_ms=HOUR_MS,
)
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=256)


class Leak(AssertionError):
    """Says that an error that is none of ours came out."""


def without_frames(error: LogStoreError) -> LogStoreError:
    """Let go of the frames that an error holds on to, and of the descriptors in them."""
    inner: BaseException | None = error
    while inner is not None:
        inner.__traceback__, inner = None, inner.__cause__ or inner.__context__
    return error


class Session:
    """Writes to orders-0 in log dir `a` and keeps account of what was acknowledged.

    Attributes:
        refusals: the errors that calls raised, in order.
        acknowledged_after_flush_failure: must stay empty: fail-stop.
    """

    def __init__(self, root: Path, expected: Expectation, life: int) -> None:
        self.root, self.expected, self.life = root, expected, life
        self.dirs = [root / "a", root / "b"]
        self.store: LogStore | None = None
        self.number = 0
        self.refusals: list[LogStoreError] = []
        expected.begin(life)

    def attempt(self, operation: Callable[[], Any]) -> tuple[bool, Any]:
        """Do something that may fail, with an error of ours only."""
        try:
            return True, operation()
        except LogStoreError as error:
            self.refusals.append(without_frames(error))
            return False, None
        except OSError as error:
            raise Leak(f"an OSError came out: {error!r}") from error

    def open(self) -> None:
        done, store = self.attempt(self.opening)
        if done:
            self.store = store

    def opening(self) -> LogStore:
        return LogStore.open(self.dirs, config=QUIET, admin_socket=False)

    def log(self) -> Any:
        """Give the log, or None when it is not served."""
        store = self.store
        return None if store is None else self.attempt(lambda: store.log("orders", 0))[1]

    def extend(self, count: int, *, durable: bool = False) -> bool:
        log = self.log()
        if log is None:
            return False
        first, self.number = self.number, self.number + count
        values = [value_of(self.life, n) for n in range(first, first + count)]
        words = f"extend {first} {count}"
        self.expected.hear(f"I {words}".encode())
        done, offsets = self.attempt(lambda: log.extend(values, durable=durable))
        if done:
            self.expected.hear(f"A {words} {offsets[0]}".encode())
        elif isinstance(self.refusals[-1], LogDirFullError) and not durable:
            del self.expected.pending[tuple(words.split())]  # nothing was written
        return done

    def change(self, word: str, offset: int, **options: bool) -> None:
        log = self.log()
        if log is None:
            return
        call = log.truncate_to if word == "truncate" else log.delete_records_before
        self.expected.hear(f"I {word} {offset}".encode())
        if self.attempt(lambda: call(offset, **options))[0]:
            self.expected.hear(f"A {word} {offset}".encode())
        elif word == "truncate" and len(self.expected.pending) == 1:
            self.take_end(log.log_end_offset, offset)

    def begin_at(self, offset: int) -> None:
        """Let the log begin anew: all records go, then the start rises."""
        log, expected = self.log(), self.expected
        if log is None:
            return
        words = (f"truncate {expected.start}", f"delete {offset}")
        for word in words:
            expected.hear(f"I {word}".encode())
        if self.attempt(lambda: log.start_at(offset, keep_lost=True))[0]:
            for word in words:
                expected.hear(f"A {word}".encode())
        elif len(expected.pending) == 2 and log.log_end_offset <= expected.end:
            self.take_end(log.log_end_offset, expected.start)

    def take_end(self, end: int, wanted: int) -> None:
        """A truncation that failed may have dropped some of what it was to drop."""
        expected = self.expected
        assert wanted <= end <= expected.end
        expected.end = end
        expected.records = {o: v for o, v in expected.records.items() if o < end}

    def flush(self) -> bool:
        log = self.log()
        return log is not None and self.attempt(log.flush)[0]

    def read_all(self) -> None:
        """Read the whole log; what comes must be right, also when an error ends it."""
        log = self.log()
        if log is None:
            return
        expected = self.expected
        found: list[tuple[int, bytes]] = []
        done, _ = self.attempt(lambda: found.extend((r.offset, r.value) for r in log))
        known = [r for r in found if r[0] in expected.records]
        assert all(expected.records[offset] == value for offset, value in known)
        if done and not expected.pending:
            assert found == sorted(expected.records.items())

    def close(self) -> None:
        if self.store is not None:
            self.attempt(self.store.close)
            self.attempt_twice()

    def attempt_twice(self) -> None:
        """A store whose close failed can be closed again, and refuses all else."""
        store, self.store = self.store, None
        assert store is not None
        self.attempt(store.close)
        try:
            store.log("orders", 0).append(b"after the close")
        except LogStoreError:
            return
        raise AssertionError("a closed store took a record")


def append_flush_roll(session: Session) -> None:
    session.extend(1)
    session.flush()
    session.extend(9)
    session.extend(3, durable=True)
    session.extend(9)
    session.flush()
    session.extend(1)


def truncate(session: Session) -> None:
    end = session.expected.end
    session.extend(2)
    session.change("truncate", end - 2)
    session.extend(1)
    session.flush()
    session.change("truncate", end - 25)
    session.extend(2, durable=True)


def truncate_and_keep(session: Session) -> None:
    end = session.expected.end
    session.change("truncate", end - 25, keep_lost=True)
    session.extend(2, durable=True)
    session.change("truncate", end - 24, keep_lost=True)


def delete_before(session: Session) -> None:
    end = session.expected.end
    session.change("delete", end - 30)
    session.extend(2)
    session.change("delete", end - 1)
    session.flush()


def begin_anew(session: Session) -> None:
    session.change("delete", session.expected.end - 30)
    session.begin_at(session.expected.end + 7)
    session.extend(2, durable=True)


def create(session: Session) -> None:
    store = session.store
    assert store is not None
    path = str(session.dirs[0])
    done, log = session.attempt(
        lambda: store.create("fresh", 3, log_dir=path, config=CONFIG, is_new=True)
    )
    if done:
        session.attempt(lambda: log.append(b"fresh", durable=True))
    session.extend(1)
    session.attempt(lambda: store.delete("fresh", 3))
    wait_until_idle(store)  # the removal behind it meets its fault now, not after it was judged


def read(session: Session) -> None:
    session.read_all()
    log = session.log()
    if log is not None:
        session.attempt(lambda: log.offset_for_timestamp(1 << 50))
        session.attempt(lambda: log.read_raw(log.log_start_offset, 1 << 20))


def close(session: Session) -> None:
    session.extend(4)
    session.close()


class Scenario(NamedTuple):
    """What runs while the disk fails; `is_open`: the store was opened before."""

    name: str
    run: Callable[[Session], None]
    is_open: bool = True
    is_clean: bool = True


def open_and_write(session: Session) -> None:
    session.open()
    session.read_all()
    session.extend(2)
    session.flush()


SCENARIOS = (
    Scenario("append, flush, roll", append_flush_roll),
    Scenario("truncate", truncate),
    Scenario("truncate and keep", truncate_and_keep),
    Scenario("delete records before", delete_before),
    Scenario("begin anew", begin_anew),
    Scenario("create and delete", create),
    Scenario("read", read),
    Scenario("close", close),
    Scenario("open after a stop", open_and_write, is_open=False),
    Scenario("recovery", open_and_write, is_open=False, is_clean=False),
)

__all__ = [
    "CONFIG",
    "IS_WHOLE",
    "QUIET",
    "SCENARIOS",
    "SECONDS_MAX",
    "Leak",
    "LogClosedError",
    "Scenario",
    "Session",
]
