"""Test what a user meets first: gaps, closed logs, wrong calls, configurations, data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from logstore import (
    Log,
    LogClosedError,
    LogConfig,
    LogStore,
    OffsetOutOfRangeError,
    PartitionExistsError,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore.open(tmp_path / "disk") as store:
        yield store


def test_an_open_slice_begins_at_the_log_start_and_a_named_one_raises(store: LogStore) -> None:
    """An iteration returns what is left; a deleted offset is an error, even 0."""
    log = store.create("orders", 0)
    log.extend([b"a", b"b", b"c"])
    log.delete_records_before(2)
    assert [record.offset for record in log] == [2]
    assert [record.offset for record in log[:]] == [2]
    for start in (0, 1):
        with pytest.raises(OffsetOutOfRangeError):
            _ = log[start:]
    with pytest.raises(OffsetOutOfRangeError):
        log.record_at(-1)
    assert log[-1].value == b"c"


def test_a_gap_of_a_repair_counts_in_the_length(tmp_path: Path) -> None:
    """The length counts offsets; records have their offsets, and the gap raises an error."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for _ in range(5):
            log.append(b"x" * 100)
        size = log.size_bytes // 5
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[2 * size + 90] ^= 1
    path.write_bytes(data)
    with LogStore.open(tmp_path) as store:
        log = store["orders", 0]
        assert log.verify()
        log.repair()
        assert [record.offset for record in log] == [0, 1, 3, 4]
        assert (len(log), len(log[:]), len(log[2:])) == (5, 5, 3)
        assert sum(len(batch) for batch in log.read_batches()) == 4
        with pytest.raises(OffsetOutOfRangeError, match="some of these offsets have no record"):
            _ = log[2]


@pytest.mark.parametrize("read_only", [False, True])
def test_regression_a_closed_log_says_so_in_its_repr(tmp_path: Path, read_only: bool) -> None:
    """Only calls that need the files raise; the length is the last one before the close."""
    with LogStore.open(tmp_path) as store:
        store.create("orders", 0).extend([b"a", b"b"])
    with LogStore.open(tmp_path, read_only=read_only) as store:
        log = store["orders", 0]
        assert not repr(log).endswith("closed>")
    assert repr(log).endswith(", closed>")
    assert repr(store).endswith(", closed>")
    assert (len(log), bool(log), bool(store)) == (2, True, True)
    for use in (lambda: list(log), lambda: log[0], lambda: list(store), lambda: len(store)):
        with pytest.raises(LogClosedError):
            use()


def test_regression_a_wrong_call_is_told_of_the_public_class() -> None:
    """Users do not know ReadableLog."""
    log_class: Any = Log
    store_class: Any = LogStore
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: log_class.read(None, 0, records=3), r"^Log\.read\(\) got"),
        (lambda: log_class.flush(None, 1, 2), r"^Log\.flush\(\) takes"),
        (lambda: store_class.add_dir(None, ".", new=True), r"^LogStore\.add_dir\(\) got"),
        (lambda: store_class.log(None), r"^LogStore\.log\(\) missing"),
    ]
    for call, text in calls:
        with pytest.raises(TypeError, match=text):
            call()


def test_regression_another_configuration_says_what_to_do(store: LogStore) -> None:
    """The error says which keys differ, and that the partition keeps its configuration."""
    store.create("orders", 0, config=LogConfig(retention_ms=1000))
    with pytest.raises(PartitionExistsError, match="or change it with set_config") as e:
        store.create("orders", 0, config=LogConfig(retention_ms=2000), exist_ok=True)
    assert "retention_ms is 1000, not 2000" in str(e.value)
    assert e.value.differences == {"retention_ms": (1000, 2000)}
    assert store.create("orders", 0, exist_ok=True).config.retention_ms == 1000


def test_regression_a_log_is_an_arrow_stream_of_all_of_it(store: LogStore) -> None:
    """DuckDB raised std::bad_cast for a variable that is a log."""
    log = store.create("orders", 0)
    log.extend([b"a", None, b"c"])
    log.delete_records_before(1)
    rows = duckdb.execute('select "offset", value from log').fetchall()
    assert rows == [(1, None), (2, b"c")]
    assert polars.DataFrame(log)["offset"].to_list() == [1, 2]
