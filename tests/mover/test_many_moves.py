"""Move several replicas: room, order, requests, and resources left in the process."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogDirError, LogStore, UnknownPartitionError
from mover import (
    MoveState,
    ReplicaMover,
    TargetFullError,
)
from mover.moves import Moves
from support.gate import SECONDS_MAX, gated
from support.moving import CONFIG, check_whole, fill, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


def test_two_moves_that_fit_singly(
    store: LogStore, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second move is refused before its first byte; after the first is cancelled, it works."""
    logs = [store.create("orders", n, log_dir=base / "a", config=CONFIG) for n in (0, 1)]
    for log in logs:
        fill(log, 60)
    room = logs[0].size_bytes + (2 << 20)
    target = store.host.replicas.find_dir(str(base / "b"))
    assert target is not None
    usage = target.refresh_usage()._replace(usable_bytes=room)
    monkeypatch.setattr(target, "refresh_usage", lambda: usage)
    with gated(store) as (mover, gate):
        gate.hold()
        first = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        second = mover.move("orders", 1, base / "b")
        assert (second.state, second.bytes_done) == (FAILED, 0)
        assert isinstance(second.error, TargetFullError)
        assert second.error.usable_bytes == room
        assert second.error.reserved_bytes > 1 << 20
        first.cancel()
        gate.open()
        second.retry()
        assert second.wait(SECONDS_MAX) is DONE
    assert logs[1].log_dir == str(base / "b")


def test_moves_go_in_order_and_few_at_once(store: LogStore, base: Path) -> None:
    """Moves run by topic and partition, or the smallest first, and never more than allowed."""
    sizes = {("b", 1): 1, ("a", 2): 5, ("a", 0): 9}
    for (topic, partition), count in sizes.items():
        fill(store.create(topic, partition, log_dir=base / "a", config=CONFIG), count)
    for order, target, expected in (
        ("name", "b", [("a", 0), ("a", 2), ("b", 1)]),
        ("smallest", "c", [("b", 1), ("a", 2), ("a", 0)]),
    ):
        store.create("first", 0, log_dir=base / "a", config=CONFIG).append(b"0:")
        ends: list[tuple[str, int]] = []
        options: dict[str, Any] = {"num_replica_move_threads": 1, "order": order}
        options["moves_per_disk_max"] = 1
        with gated(store, **options) as (mover, gate):
            gate.hold()
            blocker = mover.move("first", 0, base / target)
            gate.wait_until_held()
            moves = [mover.move(*key, base / target) for key in sizes]
            swap = Moves.end

            def end(self: Any, move: Any, *rest: Any, swap: Any = swap, ends: Any = ends) -> None:
                ends.append(tuple(move.key))
                swap(self, move, *rest)

            mover._moves.end = end.__get__(mover._moves)  # type: ignore[method-assign]
            gate.open()
            for move in [blocker, *moves]:
                assert move.wait(SECONDS_MAX) is DONE
        assert ends == expected  # the first one began before it was looked at
        store.delete("first", 0)


def test_a_request_is_complete_when_every_result_is_known(
    store: LogStore, log: Log, base: Path
) -> None:
    """KIP-113's response has no error for a completed move, and an error for any other."""
    with ReplicaMover(store) as mover:
        response = mover.change_replica_dirs({base / "b": [("orders", 0), ("orders", 7)]})
        assert response.wait(SECONDS_MAX)
        assert response.results["orders", 0] is None
        assert isinstance(response.results["orders", 7], UnknownPartitionError)
        rows = response.to_dict()["partitions"]
        assert [(row["partition"], row["error_code"]) for row in rows] == [(0, 0), (7, 3)]
        assert store.create("orders", 7).log_dir == str(base / "b")  # the wish is remembered
        response = mover.change_replica_dirs({base / "nowhere": [("orders", 0), ("orders", 8)]})
        assert response.is_complete
        assert [row["error_code"] for row in response.to_dict()["partitions"]] == [57, 57]
    check_whole(log, base, "b")


def test_no_thread_and_no_file_is_left_open(base: Path) -> None:
    """After a mover is closed, the process has as many threads and descriptors as before."""
    with LogStore.open([base / "a", base / "b"]) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
        fill(log, 60)
        threads = set(threading.enumerate())
        for _ in range(3):
            with ReplicaMover(store, num_replica_move_threads=4) as mover:
                for target in ("b", "a"):
                    assert mover.move("orders", 0, base / target).wait(SECONDS_MAX) is DONE
        assert set(threading.enumerate()) == threads
        settle(store)
        gc.collect()
        opened = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        left = [path for path in opened if ".move" in path or "deleted" in path]
        assert [path for path in left if path.startswith(str(base))] == []


def test_what_stands_in_the_way_is_found_before_the_first_byte(
    store: LogStore, log: Log, base: Path
) -> None:
    """If a foreign directory has the replica's name, the move fails; the directory stays."""
    (base / "b" / "orders-0").mkdir()
    with gated(store) as (mover, gate):
        gate.hold()
        move = mover.move("orders", 0, base / "b")
        assert move.wait(SECONDS_MAX) is FAILED
        assert isinstance(move.error, LogDirError)
        assert f"{base}/b/orders-0 exists already" in str(move.error)
        assert (gate.passed, log._state.metadata.moving) == (0, None)
        (base / "b" / "orders-0").rmdir()
        gate.open()
        move.retry()
        assert move.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_what_comes_into_the_way_is_found_at_the_swap(
    store: LogStore, log: Log, base: Path
) -> None:
    """If a directory appears during the copying, the move fails, and its copy is removed."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        (base / "b" / "orders-0").mkdir()
        gate.open()
        assert move.wait(SECONDS_MAX) is FAILED
        assert "exists already" in str(move.error)
    (base / "b" / "orders-0").rmdir()
    check_whole(log, base, "a")
    assert not list(base.glob("?/*.move"))
