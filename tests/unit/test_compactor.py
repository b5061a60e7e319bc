"""The background compacts due logs at a limited rate; a log that fails does not stop others."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogStore, StoreConfig
from logstore.log import host
from logstore.log.compaction import compaction
from logstore.store.upkeep.compactor import Compactor
from support.clock import Clock
from support.hanging import QUIET
from support.inside import keepers_of
from support.keyed_logs import COMPACTED, Keyed

OFF = QUIET.replace(log_cleaner_enable=False)
CONFIG = QUIET.replace(log_cleaner_backoff_ms=1000)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LogStore]:
    """Open a store that compacts nothing by itself."""
    with LogStore.open(tmp_path, config=OFF, clock=clock) as opened:
        yield opened


def compactor_of(store: LogStore, clock: Clock, config: StoreConfig = CONFIG) -> Compactor:
    """Make a compactor that works in the thread of the caller."""
    (log_dir,) = store.host.replicas.log_dirs
    return Compactor(log_dir, store.host.replicas, config, clock)


def keyed(store: LogStore, topic: str, count: int = 60, **config: Any) -> Keyed:
    log = Keyed(store.create(topic, 0, config=COMPACTED.replace(**config)))
    log.append(count)
    return log


def is_compacting(thread: threading.Thread) -> bool:
    return thread.name.startswith("logstore-compaction-")


def is_clean(log: Log) -> bool:
    return host.metadata_of(log).cleaned.end_offset == host.segments_of(log)[-1].base_offset


def harm(log: Log) -> bytes:
    """Change a byte in the third segment; return the byte that was there."""
    path = Path(host.segments_of(log)[2].log_path)
    data = path.read_bytes()
    path.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    return data


def test_due_logs_are_compacted_the_dirtiest_first(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overdue logs come first; logs that are not due, or only delete, are not compacted."""
    partly = keyed(store, "partly")
    partly.log.compact()
    partly.append(150)
    wholly, overdue = keyed(store, "wholly"), keyed(store, "overdue", max_compaction_lag_ms=1)
    overdue.log.compact()
    overdue.append(30)
    clock.ms += 10
    others = [keyed(store, "kept", cleanup_policy="delete"), keyed(store, "idle")]
    others[1].log.compact()
    before = [host.segments_of(one.log) for one in others]
    order: list[str] = []
    real = compaction.compact

    def noting(state: Any, *arguments: Any) -> Any:
        order.append(state.topic)
        return real(state, *arguments)

    monkeypatch.setattr(compaction, "compact", noting)
    compactor_of(store, clock).run_due()
    assert order == ["overdue", "wholly", "partly"]
    for one in (partly, wholly, overdue):
        assert is_clean(one.log)
        one.check()
    assert [host.segments_of(one.log) for one in others] == before


def test_a_log_that_cannot_be_compacted_is_set_aside_and_tried_again(
    store: LogStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is reported once, others are compacted, the pause grows; after a repair, it works."""
    bad, good = keyed(store, "bad", 90), keyed(store, "good")
    data = harm(bad.log)
    compactor = compactor_of(store, clock)
    with caplog.at_level(logging.WARNING, "logstore"):
        compactor.run_due()
        assert is_clean(good.log) and not is_clean(bad.log)
        ((key, aside),) = compactor.set_aside.items()
        assert key == ("bad", 0) and "checksum" in aside.reason
        assert store.metrics().log_dirs[0].uncompacted_logs == 1
        for pause_ms in (1000, 2000, 4000):
            clock.ms += pause_ms - 1
            failures = compactor.set_aside[key].failures
            compactor.run_due()
            assert compactor.set_aside[key].failures == failures
            clock.ms += 1
            compactor.run_due()
            assert compactor.set_aside[key].failures == failures + 1
    (record,) = caplog.records
    assert "bad-0" in record.getMessage() and "cannot be compacted" in record.getMessage()
    Path(host.segments_of(bad.log)[2].log_path).write_bytes(data)
    clock.ms += 8000
    compactor.run_due()
    assert is_clean(bad.log) and compactor.set_aside == {}
    assert store.metrics().log_dirs[0].uncompacted_logs == 0
    bad.check()


def test_a_deleted_log_is_not_set_aside_any_more(store: LogStore, clock: Clock) -> None:
    """No retry waits for the log."""
    bad = keyed(store, "bad", 90)
    harm(bad.log)
    compactor = compactor_of(store, clock)
    compactor.run_due()
    assert compactor.set_aside
    store.delete("bad", 0)
    compactor.run_due()
    assert compactor.set_aside == {}


def test_a_duty_of_the_keeper_starts_the_thread(tmp_path: Path) -> None:
    """A close waits for the end of the thread; the next process has nothing to compact."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        keep = keyed(store, "orders")
        (keeper,) = keepers_of(store).values()
        keeper.run_one("compaction")
        assert keeper.compactor.join(60) and is_clean(keep.log)
        keep.append(60)
        keeper.run_one("compaction")
    names = os.listdir(keep.log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert not any(is_compacting(one) for one in threading.enumerate())
    with LogStore.open(tmp_path, config=QUIET) as store:
        keep.check(store.log("orders", 0))


def test_a_store_may_compact_nothing_by_itself(tmp_path: Path) -> None:
    """If `log_cleaner_enable` is False, no keeper looks for a log to compact."""
    with LogStore.open(tmp_path, config=OFF) as store:
        keep = keyed(store, "orders")
        for keeper in keepers_of(store).values():
            keeper.run_one("compaction")
        assert not is_clean(keep.log)
        keep.log.compact()
        assert is_clean(keep.log)


def test_a_stop_ends_a_compaction_within_a_part(store: LogStore, clock: Clock) -> None:
    """The log is unchanged, and no file is left over; at this rate, the work would take an hour."""
    keep = keyed(store, "orders", 200)
    before = host.segments_of(keep.log)
    slow = CONFIG.replace(log_cleaner_io_max_bytes_per_second=keep.log.size_bytes // 1800)
    compactor = compactor_of(store, clock, slow)
    compactor.look()
    assert not compactor.join(0.2)
    compactor.look()  # one runs already
    assert sum(is_compacting(one) for one in threading.enumerate()) == 1
    compactor.stop()
    assert compactor.join(30)
    assert host.segments_of(keep.log) == before and compactor.set_aside == {}
    names = os.listdir(keep.log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    compactor.look()
    assert compactor.join(0), "it was stopped for good"


def test_the_rate_is_kept(store: LogStore, clock: Clock) -> None:
    """Reading everything twice, and writing the rest, takes as long as the rate demands."""
    keep = keyed(store, "orders", 300)
    size_bytes = keep.log.size_bytes
    rate = CONFIG.replace(log_cleaner_io_max_bytes_per_second=4 * size_bytes)
    began = time.monotonic()
    compactor_of(store, clock, rate).run_due()
    assert time.monotonic() - began > 0.3
    keep.check_compacted(host.metadata_of(keep.log).cleaned.end_offset)
