"""Ask a store's admin for moves, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore
from logstore.store.admin.admin import Admin
from mover import ReplicaMover, plan_moves
from mover.registration import commands_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.fixture
def store(dirs: list[str]) -> Iterator[LogStore]:
    with LogStore.open(dirs, admin_socket=False) as store:
        log = store.create("t", 0, log_dir=dirs[0])
        log.extend([bytes(1000)] * 20)
        yield store


def test_who_only_looks_starts_nothing(store: LogStore) -> None:
    """A plan and a status request make no mover."""
    assert store.admin.call("move.status")["moves"] == []
    assert store.admin.call("move.plan")["planned"] == []
    assert commands_of(store).mover is None


def test_a_copy_under_way_is_described_as_temporary(store: LogStore, dirs: list[str]) -> None:
    """A running copy has KIP-113's is_temporary and its bytes so far; a plan skips the replica."""
    with ReplicaMover(store, 1, 1) as mover:
        move = mover.move("t", 0, dirs[1])
        first, second = store.describe_dirs().log_dirs
        assert [one.is_temporary for one in first.partitions] == [False]
        assert [(one.topic, one.is_temporary, one.offset_lag) for one in second.partitions] == [
            ("t", True, -1)
        ]
        (skipped,) = plan_moves(store, evacuate=[dirs[0]]).skipped
        assert "being moved to" in skipped.reason
        move.cancel()
        assert store.describe_dirs().log_dirs[1].partitions == ()


def test_the_mover_of_the_store_answers(store: LogStore, dirs: list[str]) -> None:
    """If the owner made a mover, clients talk to this mover, and get its progress."""
    told: list[object] = []
    with ReplicaMover(store) as mover:
        facts = store.admin.call("move.run", {"moves": [["t", 0, dirs[1]]]}, told.append)
        assert commands_of(store).mover is mover
        assert [row["state"] for row in facts["moves"]] == ["done"]
        assert mover.moves()[0].topic == "t"
        assert store.log("t", 0).log_dir == dirs[1]
        with pytest.raises(ValueError, match="x-1 is not being moved"):
            store.admin.call("move.cancel", {"partitions": [["x", 1]]})
        assert store.admin.call("move.cancel")["moves"] == []


def test_regression_commands_of_moves_register_after_a_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted construction of a mover left some commands; then no mover could start."""
    calls, register = itertools.count(), Admin.register

    def interrupted(self: Admin, *arguments: Any, **options: Any) -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt
        register(self, *arguments, **options)

    with LogStore.open(tmp_path / "logs", admin_socket=False) as store:
        monkeypatch.setattr(Admin, "register", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ReplicaMover(store)
        with ReplicaMover(store) as mover:
            assert mover.moves() == []
