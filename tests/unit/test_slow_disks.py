"""A disk that is far slower than the others is recognised, and gets no new replicas."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logstore.disk import files, log_dir
from logstore.disk.log_dir import LogDir
from logstore.store.dirs.slow_disks import FACTOR, PROBES_MIN, SECONDS_MIN, judge
from logstore.store.store import LogStore
from mover import ReplicaMover, plan_moves
from support.inside import keepers_of

QUICK, SLOW = 0.002, 0.3


def dirs(*probes: list[float]) -> list[LogDir]:
    """Make log dirs whose last probes took the given times."""
    made = []
    for number, seconds in enumerate(probes):
        made.append(LogDir(f"/disk{number}"))
        made[-1].probe_seconds.extend(seconds)
    return made


def is_slow(own: list[float], *others: list[float]) -> bool:
    """Report whether a dir that was not slow becomes slow."""
    mine, *theirs = dirs(own, *others)
    judge(mine, theirs)
    return mine.is_slow


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ([SLOW] * 5, [[QUICK]], True),  # what the others took at the open counts
        ([SLOW] * 5, [[QUICK] * 5, [SLOW] * 5, [QUICK] * 5], True),
        ([SLOW] * 5, [[SLOW] * 5], False),  # all are alike
        ([SLOW] * 5, [[SLOW] * 5, [QUICK] * 5, [SLOW] * 5], False),
        ([QUICK, QUICK, SLOW, QUICK, SLOW], [[QUICK]], False),  # hiccups
        ([SLOW] * (PROBES_MIN - 1), [[QUICK]], False),  # too few to tell
        ([SLOW] * 5, [[], []], False),  # nobody to compare with
        ([SLOW] * 5, [], False),
        ([SECONDS_MIN * 0.9] * 5, [[0.0001]], False),  # 900 times as slow and still quick enough
        ([FACTOR * 0.1 * 0.9] * 5, [[0.1]], False),
        ([FACTOR * 0.1 * 1.1] * 5, [[0.1]], True),
    ],
)
def test_the_median_probe_is_compared(
    own: list[float], others: list[list[float]], *, expected: bool
) -> None:
    """A disk is slow if it takes much longer than the others, repeatedly."""
    assert is_slow(own, *others) is expected


def test_the_way_back_is_shorter_than_the_way_there() -> None:
    """A disk exactly at the bound does not change its state repeatedly."""
    mine, other = dirs([SECONDS_MIN * 1.1] * 5, [QUICK] * 5)
    judge(mine, [other])
    assert mine.is_slow
    mine.probe_seconds.extend([SECONDS_MIN * 0.9] * 5)
    judge(mine, [other])
    assert mine.is_slow
    mine.probe_seconds.extend([SECONDS_MIN * 0.4] * 5)
    judge(mine, [other])
    assert not mine.is_slow and mine.state.value == "online"


def test_who_is_left_alone_is_slow_no_more() -> None:
    """Without another log dir that serves, there is nothing to compare with."""
    mine, other = dirs([SLOW] * 5, [QUICK] * 5)
    judge(mine, [other])
    assert mine.is_slow
    other.take_offline("its disk is gone")
    judge(mine, [other])
    assert not mine.is_slow


def test_a_slow_dir_serves_and_gets_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log continues; new replicas and planned moves go elsewhere, unless the user names it."""
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    caplog.set_level(logging.WARNING)
    with LogStore.open(paths, admin_socket=False) as store:
        slow = store.host.replicas.dir_of(paths[0])
        log = store.create("old", 0, log_dir=paths[0])
        take_long(monkeypatch, under=paths[0])
        for _ in range(PROBES_MIN + 1):  # the one of the open was quick
            log.append(b"x", durable=True)  # a disk that nobody uses is not asked
            keepers_of(store)[paths[0]].run_one("pace")
        assert [one.state for one in store.describe_dirs().log_dirs] == ["slow", "online", "online"]
        (told,) = [record.getMessage() for record in caplog.records]
        assert "is slow: a probe takes" in told and "new replicas go elsewhere" in told

        assert log.append(b"goes on", durable=True) == PROBES_MIN + 1
        homes = {store.create("new", number).log_dir for number in range(8)}
        assert homes == set(paths[1:])
        assert store.create("wanted", 0, log_dir=paths[0]).log_dir == paths[0]
        log.extend([b"x" * 1000] * 1000)
        assert {move.target for move in plan_moves(store, evacuate=[paths[1]]).moves} == {paths[2]}
        with ReplicaMover(store) as mover:
            assert mover.move("new", 0, paths[0]).wait(30).value == "done"

        monkeypatch.undo()
        while slow.is_slow:
            keepers_of(store)[paths[0]].run_one("pace")  # used or not, until it is itself again
        assert store.describe_dirs().log_dirs[0].state == "online"


def test_when_all_that_is_left_is_slow_it_is_taken(tmp_path: Path) -> None:
    """A slow disk is better than none."""
    paths = [str(tmp_path / name) for name in ("a", "b")]
    with LogStore.open(paths, admin_socket=False) as store:
        slow = store.host.replicas.dir_of(paths[0])
        slow.probe_seconds.extend([SLOW] * 5)
        judge(slow, [store.host.replicas.dir_of(paths[1])])
        store.cordon(paths[1])
        assert store.create("orders", 0).log_dir == paths[0]


def test_an_idle_disk_is_left_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no segment was flushed since the last look, the disk is not probed."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        (keeper,) = keepers_of(store).values()
        probes: list[str] = []
        monkeypatch.setattr(keeper.log_dir, "probe", lambda: probes.append("probe"))
        keeper.run_one("pace")
        store.create("orders", 0).append(b"x", durable=True)
        keeper.run_one("pace")
        keeper.run_one("pace")
        assert probes == ["probe"]


def take_long(monkeypatch: pytest.MonkeyPatch, *, under: str) -> None:
    """Make each new small file below a path take time, as on a failing disk."""
    write_new, passed = files.write_new, [0.0]

    def slowly(path: str, data: Any, *rest: int) -> None:
        if path.startswith(under):
            passed[0] += SECONDS_MIN * 1.2
        write_new(path, data, *rest)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(log_dir, "time", clock)
    monkeypatch.setattr(files, "write_new", slowly)
