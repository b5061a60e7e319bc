"""The description of log dirs has each replica once, even during moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logstore import LogStore, TopicPartition
from logstore.store import describe
from logstore.store.describe import LogDirDescription

KEY = TopicPartition("orders", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Return a store whose only log is in the second of three log dirs."""
    with LogStore.open([tmp_path / name for name in "abc"]) as store:
        store.create("orders", 0, log_dir=tmp_path / "b").append(b"x")
        yield store


def rows_of(store: LogStore) -> list[tuple[str, bool]]:
    """Return the log dir of each row, and whether a move builds the row's copy."""
    return [
        (Path(log_dir.path).name, row.is_temporary)
        for log_dir in store.describe_dirs().log_dirs
        for row in log_dir.partitions
    ]


@pytest.mark.parametrize(("target", "described"), [("a", 1), ("c", 2)])
def test_regression_a_replica_that_is_swapped_meanwhile_is_in_one_log_dir(
    store: LogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, described: int
) -> None:
    """The replica was in no log dir, or in two, if the swap came between two descriptions."""
    replicas = store.host.replicas
    made: list[LogDirDescription] = []

    def make(*values: Any) -> LogDirDescription:
        """Swap after some log dirs were described."""
        made.append(LogDirDescription(*values))
        if len(made) == described:
            replicas.moved(KEY, replicas.dir_of(str(tmp_path / target)))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(describe, "LogDirDescription", make)
        assert rows_of(store) == [("b", False)]
    assert rows_of(store) == [(target, False)]
    replicas.moved(KEY, replicas.dir_of(str(tmp_path / "b")))


def test_regression_a_move_that_is_swapped_but_not_over_shows_no_copy(
    store: LogStore, tmp_path: Path
) -> None:
    """A client saw only the copy, because it expects each partition once in a log dir."""
    replicas = store.host.replicas
    move = SimpleNamespace(target_dir=str(tmp_path / "c"), size_bytes=1)
    replicas.running_moves[KEY] = move
    assert rows_of(store) == [("b", False), ("c", True)]
    replicas.moved(KEY, replicas.dir_of(str(tmp_path / "c")))
    assert rows_of(store) == [("c", False)]
    del replicas.running_moves[KEY]
    replicas.moved(KEY, replicas.dir_of(str(tmp_path / "b")))


def test_what_no_log_dir_of_the_store_is_has_an_error(store: LogStore, tmp_path: Path) -> None:
    """The path gets an entry, as KIP-113 demands, but the entry is not live."""
    stranger = str(tmp_path / "d")
    (row,) = store.describe_dirs(log_dirs=[stranger]).log_dirs
    assert row == describe.describe_stranger(stranger)
    assert not row.is_live
    assert row.error
