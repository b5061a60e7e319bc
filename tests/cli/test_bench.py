"""Hold `logstore bench` to its promise: it measures, says what is wrong, leaves all as it was."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logstore import LogStore
from logstore.bench.bed import Bed
from logstore.bench.cases import Case
from logstore.bench.phases import Append
from logstore.bench.report.sheets import costs
from logstore.cli.bench_rows import layout_of
from logstore.cli.output import rate_text
from logstore.disk import bulk, files
from mover.bench import MovePhase
from mover.move import Move
from mover.mover import ReplicaMover
from mover.state import MoveState
from support.command_line import Run


class Space(NamedTuple):
    """What statvfs says of a disk."""

    f_bavail: int
    f_frsize: int = 1 << 20
    f_blocks: int = 1000


@pytest.fixture
def disks(log_dirs: list[str]) -> list[Path]:
    """Make the two directories, one with a file of somebody's in it."""
    found = [Path(path) for path in log_dirs]
    for path in found:
        path.mkdir()
    (found[0] / "mine").write_text("stays")
    return found


def names_in(disks: list[Path]) -> list[str]:
    """List all that is in the directories."""
    return sorted(path.name for disk in disks for path in disk.rglob("*"))


@pytest.fixture(autouse=True)
def short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find out with a MiB how fast the disks are."""
    monkeypatch.setattr("logstore.bench.bed.CALIBRATION_BYTES", 1 << 20)
    monkeypatch.setattr("logstore.bench.bed.CALIBRATION_BYTES_MAX", 1 << 20)
    monkeypatch.setattr("logstore.bench.bed.BUDGET_BYTES_MAX", 1 << 20)


def test_regression_the_row_of_a_move_has_the_rate_of_the_move(
    run: Run, disks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the rate of the appends beside it, which one append every 5 ms sets.

    Every phase has a line, the results are where they were asked for, the disks as before.
    """
    moves: list[Move] = []
    moved: list[float] = []
    inherited, make = MovePhase.run, ReplicaMover.move

    def noted(phase: MovePhase) -> None:
        inherited(phase)
        assert phase.seconds is not None and phase.size_bytes > 0
        if moves[-1].state is MoveState.DONE:
            assert phase.size_bytes == moves[-1].bytes_done
        moved.append(phase.size_bytes / phase.seconds)

    def made(mover: ReplicaMover, topic: str, partition: int, target: str) -> Move:
        moves.append(make(mover, topic, partition, target))
        return moves[-1]

    monkeypatch.setattr(MovePhase, "run", noted)
    monkeypatch.setattr(ReplicaMover, "move", made)
    out = tmp_path / "results"
    done = run("bench", "--plan", "quick", "--out", str(out), "--format", "json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {row["phase"] for row in rows} == {"append", "read", "point-read", "recover", "move"}
    assert names_in(disks) == ["mine"]
    assert sorted(path.name for path in out.iterdir()) == ["directories.json", "trace"]
    rates = [row["bytes_per_second"] for row in rows if row["phase"] == "move"]
    assert len(rates) == len(moved) == 2
    assert rates == pytest.approx(moved, rel=0.01)


def test_regression_a_move_that_is_cut_short_has_the_rate_until_then(
    disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had none: a cancelled move says that nothing is copied, and the quick plan cuts short."""
    monkeypatch.setattr("mover.bench.SECONDS_FACTOR_MAX", 0.5)
    with Bed([str(disk) for disk in disks]) as bed:
        phase = MovePhase(bed, Case("move", 100, 100, "interval", 1, 1.0, 1, "throttled"))
        phase.prepare()
        bytes_whole, records_whole = phase._cold_bytes, phase._cold_records
        phase.run()
        phase.finish()
    assert phase.seconds is not None
    assert 0.4 < phase.seconds < 0.9
    assert 0 < phase.size_bytes < bytes_whole
    assert phase.records / records_whole == pytest.approx(phase.size_bytes / bytes_whole, rel=0.01)


def test_regression_directories_as_found_have_no_cost(disks: list[Path]) -> None:
    """What is free on a file system that others use was drawn as what a layout costs."""
    found = layout_of([str(disk) for disk in disks])
    row = {"layout": found.name, "raw_bytes": found.raw_bytes, "usable_bytes": found.usable_bytes}
    assert costs([row], []) == []


def test_regression_rates_are_in_one_unit(run: Run, disks: list[Path]) -> None:
    """The table was in MiB/s and GiB/s, the page and the throttles in MB/s.

    One of the directories holds a closed store, which stays as it is.
    """
    assert rate_text(52_428_800) == "52.4 MB/s"
    assert rate_text(2_060_000_000) == "2,060 MB/s"
    assert (rate_text(4096), rate_text(0), rate_text(None)) == ("0.004 MB/s", "-", "-")
    with LogStore.open([str(disks[1])], admin_socket=False) as store:
        store.create("orders", 0)
    before = names_in(disks)
    done = run("bench", "--plan", "quick")
    assert done.exit_code == 0
    assert names_in(disks) == before
    rows = [line for line in done.stdout.splitlines()[1:] if not line.startswith("move")]
    assert rows and all(" MB/s " in row for row in rows)
    assert "iB/s" not in done.stdout


def test_results_are_not_mixed(run: Run, disks: list[Path], tmp_path: Path) -> None:
    """A directory with something in it is refused before anything is measured."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "old").write_text("")
    done = run("bench", "--plan", "quick", "--out", str(tmp_path / "results"))
    assert done.exit_code == 2
    assert "is not empty" in done.stderr


def test_a_page_that_cannot_be_made_is_told_before_anything_is_measured(
    run: Run, disks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "results"
    done = run("bench", "--plan", "quick", "--out", str(out), "--page")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: the page needs matplotlib: pip install 'logstore[bench]'\n"
    assert not out.exists()


def test_a_missing_directory_is_named(run: Run, disks: list[Path], tmp_path: Path) -> None:
    """Nothing is made where the others are."""
    missing = tmp_path / "missing"
    done = run("bench", "--plan", "quick", "--log-dirs", f"{disks[0]},{missing}")
    assert (done.exit_code, done.stderr) == (1, f"error: {missing}: No such file or directory\n")
    assert names_in(disks) == ["mine"]


def test_a_directory_that_cannot_be_written_is_named(
    run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made in the others is removed again."""
    mkdir = files.mkdir

    def refuse(path: str, *rest: Any) -> None:
        if path.startswith(str(disks[1])):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        mkdir(path, *rest)

    monkeypatch.setattr(files, "mkdir", refuse)
    done = run("bench", "--plan", "quick")
    said = f"error: {disks[1]}: cannot write here: Permission denied\n"
    assert (done.exit_code, done.stderr) == (1, said)
    assert names_in(disks) == ["mine"]


def test_a_directory_without_room_is_named(
    run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before anything is written how much is free."""
    monkeypatch.setattr(files, "statvfs", lambda _path: Space(f_bavail=1))
    done = run("bench", "--plan", "quick")
    assert done.exit_code == 1
    assert f"log dir {disks[0]} is full" in done.stderr and "1 MiB are free" in done.stderr
    assert names_in(disks) == ["mine"]


def test_a_disk_that_fills_up_meanwhile(
    run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names it, and what was written there is removed."""
    pwritev = files.pwritev
    batches: list[int] = []

    def full(fd: int, buffers: Any, position: int) -> int:
        if sum(map(len, buffers)) > 50_000:
            batches.append(fd)
        if len(batches) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwritev(fd, buffers, position)

    monkeypatch.setattr(files, "pwritev", full)
    done = run("bench", "--plan", "quick")
    assert done.exit_code == 1
    assert "logstore-bench-" in done.stderr and "full" in done.stderr
    assert names_in(disks) == ["mine"]


def test_a_store_in_use_is_left_alone(run: Run, disks: list[Path]) -> None:
    """A directory whose lock somebody holds is refused."""
    with LogStore.open([str(disks[1])], admin_socket=False) as store:
        store.create("orders", 0)
        done = run("bench", "--plan", "quick")
        assert done.exit_code == 1
        assert f"process {os.getpid()} has log dir {disks[1]} open" in done.stderr
        assert not [name for name in names_in(disks) if "bench" in name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_nothing(
    number: signal.Signals, run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a terminal that is gone, ends a round; the directories are as they were."""

    def interrupted(phase: Append) -> None:
        phase.logs[0].append(b"a value")
        signal.raise_signal(number)

    monkeypatch.setattr(Append, "run", interrupted)
    before = signal.signal(number, signal.SIG_DFL)  # it may be ignored where tests run
    try:
        assert run("bench", "--plan", "quick").exit_code == 128 + number
    finally:
        signal.signal(number, before)
    assert names_in(disks) == ["mine"]


def test_an_interrupt_that_python_swallows_ends_the_round(
    run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a handler raises while memory is freed goes nowhere; the next progress ends it."""
    rounds: list[Append] = []

    def swallowed(phase: Append) -> None:
        rounds.append(phase)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Append, "run", swallowed)
    assert run("bench", "--plan", "quick").exit_code == 128 + signal.SIGTERM
    assert len(rounds) == 1
    assert names_in(disks) == ["mine"]


def test_a_second_interrupt_waits_for_the_removal(
    run: Run, disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impatient second Ctrl-C does not keep the directories from being removed."""
    remove_tree = bulk.remove_tree
    asked: list[str] = []

    def interrupted(_phase: Append) -> None:
        signal.raise_signal(signal.SIGINT)

    def impatient(path: str) -> None:
        if os.path.dirname(path) == str(disks[0]) and not asked:
            asked.append(path)
            signal.raise_signal(signal.SIGINT)
        remove_tree(path)

    monkeypatch.setattr(Append, "run", interrupted)
    monkeypatch.setattr(bulk, "remove_tree", impatient)
    assert run("bench", "--plan", "quick").exit_code == 130
    assert asked
    assert names_in(disks) == ["mine"]


def test_a_directory_named_twice_is_refused(run: Run, disks: list[Path]) -> None:
    """Each directory stands for a disk."""
    done = run("bench", "--plan", "quick", "--log-dirs", f"{disks[0]},{disks[0]}/.")
    assert done.exit_code == 2
    assert "named twice" in done.stderr
