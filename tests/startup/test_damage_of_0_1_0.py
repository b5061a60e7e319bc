"""Damage that version 0.1.0 may have left is found at open and by `verify`, and goes with `repair`.

    hole                     a truncation made the rewritten segment durable, and a power cut took
                             segments before it that were not flushed
    start beyond end         the log start was durable, the records behind it were not
    falling epochs           the epochs of truncated records came back; batches of a lower epoch
    resurrected partition    a deletion was forgotten before the removal of a copy was durable

The files are written by hand here, as 0.1.0 wrote them. The records left are known from outside.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash
from click.testing import CliRunner, Result

from logstore import CorruptRecordBatchError, Log, LogConfig, LogStore, ReplicaIncompleteError
from logstore.cli.app import app
from support.inside import abandon
from support.moves import StagedMove

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=256)
COUNT = 40


def make(base: Path) -> tuple[Path, dict[int, bytes], list[int]]:
    """Make a log of many segments; gives its directory, its records and where segments begin."""
    values = {offset: b"%d:" % offset + b"v" * 60 for offset in range(COUNT)}
    with LogStore.open(base, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        for value in values.values():
            log.append(value)
    directory = base / "t-0"
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert len(bases) > 6
    return directory, values, bases


def remove_segment(directory: Path, base_offset: int) -> None:
    """Take all files of a segment away, as a power cut takes what was never flushed."""
    for path in directory.glob(f"{base_offset:020}.*"):
        path.unlink()


def check(base: Path, values: dict[int, bytes], lost: set[int]) -> None:
    """The damage is named at each open and by verify, and repair leaves all that was left."""
    kept = {offset: value for offset, value in values.items() if offset not in lost}
    for _ in range(2):
        with LogStore.open(base, admin_socket=False) as store:
            problems = store.recovery_report.problems
            named = {o for one in problems for o in range(one.offset, one.end_offset)}
            assert named == lost, str(store.recovery_report)
            assert "missing" in str(store.recovery_report)
            found = {
                o for one in store.verify().problems for o in range(one.offset, one.end_offset)
            }
            assert found == lost
            log = store.log("t", 0)
            assert {offset: log[offset].value for offset in kept} == kept
            with pytest.raises(CorruptRecordBatchError):
                list(log)
    with LogStore.open(base, admin_socket=False) as store:
        report = store.repair("t", 0)
        assert {offset for offsets in report.lost for offset in offsets} == lost
        assert store.log("t", 0).append(b"next") == COUNT
    with LogStore.open(base, admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert store.verify().is_sound
        left = {record.offset: record.value for record in store.log("t", 0)}
        assert left == {**kept, COUNT: b"next"}


def test_a_hole_between_segments_is_named_and_repaired(tmp_path: Path) -> None:
    """A truncation of version 0.1.0 did not make the segment durable."""
    directory, values, bases = make(tmp_path)
    remove_segment(directory, bases[3])
    check(tmp_path, values, set(range(bases[3], bases[4])))


@pytest.mark.parametrize("seed", range(8))
def test_any_holes_are_named_and_repaired(tmp_path: Path, seed: int) -> None:
    """Several segments are missing, the first among them, one by one or side by side."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    directory, values, bases = make(tmp_path)
    lost: set[int] = set()
    for number in rng.sample(range(len(bases) - 1), rng.randrange(2, len(bases) - 2)):
        remove_segment(directory, bases[number])
        lost |= set(range(bases[number], bases[number + 1]))
    check(tmp_path, values, lost)


# --- all kinds of damage, by name -----------------------------------------------------------------

HOLE, START = "hole", "start beyond end"
EPOCHS, CAME_BACK = "falling epochs", "resurrected partition"
START_OFFSET = 30


def small_file(document: dict[str, Any]) -> bytes:
    """Write a small file as version 0.1.0 did: a line of JSON, and a line with its checksum."""
    line = json.dumps(document, separators=(", ", ": "), ensure_ascii=False).encode()
    return line + b"\nxxh3-64 %s\n" % xxhash.xxh3_64_hexdigest(line).encode()


def change_small_file(path: Path, **changes: Any) -> None:
    """Replace keys of a small file."""
    document = json.loads(path.read_bytes().partition(b"\n")[0])
    document.pop("kind", None)  # later versions write it
    path.write_bytes(small_file({**document, **changes}))


def forget_recovery_point(directory: Path) -> None:
    """Leave the log dir as a power cut does that came before the first checkpoint."""
    (directory.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


def make_hole(directory: Path, bases: list[int]) -> set[int]:
    """Remove a segment in the middle; gives the offsets that are lost."""
    remove_segment(directory, bases[3])
    return set(range(bases[3], bases[4]))


def move_start_beyond_end(directory: Path, bases: list[int]) -> set[int]:
    """Write a log start, and take the records from some way before it on."""
    change_small_file(directory / "partition.metadata", log_start_offset=START_OFFSET)
    left = [base for base in bases if base < START_OFFSET - 8]
    for base in bases[len(left) :]:
        remove_segment(directory, base)
    forget_recovery_point(directory)
    return set(range(bases[len(left)], COUNT))


def let_entries_fall(directory: Path, bases: list[int]) -> set[int]:
    """Write the epochs of truncated records before those that came after the truncation."""
    epochs = b'{"version": 1, "epochs": [[0, 0], [2, 30], [5, 10]]}\nxxh3-64 '
    document = small_file({"version": 1, "epochs": [[0, 0], [2, 30], [5, 10]]})
    assert document.startswith(epochs)
    (directory / "leader-epoch-checkpoint").write_bytes(document)
    return set()


def let_batches_fall(directory: Path, bases: list[int]) -> set[int]:
    """Give the first batch of the sixth segment a lower epoch, and a checksum that holds."""
    path = directory / f"{bases[5]:020}.log"
    data = bytearray(path.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    assert data[12:16] == (5).to_bytes(4, "big")
    data[12:16] = (1).to_bytes(4, "big")
    data[size - 8 : size] = xxhash.xxh3_64_digest(bytes(data[: size - 8]))
    path.write_bytes(data)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    return set()


DAMAGES: dict[str, tuple[str, Callable[[Path, list[int]], set[int]]]] = {
    "hole": (HOLE, make_hole),
    "start": (START, move_start_beyond_end),
    "entries": (EPOCHS, let_entries_fall),
    "batches": (EPOCHS, let_batches_fall),
}
SINGLES: list[tuple[str, ...]] = [(one,) for one in DAMAGES]
PAIRS: list[tuple[str, ...]] = list(itertools.combinations(DAMAGES, 2))


def make_with_epochs(base: Path) -> tuple[Path, dict[int, bytes], list[int]]:
    """Make a log of many segments and three leader epochs."""
    values = {offset: b"%d:" % offset + b"v" * 60 for offset in range(COUNT)}
    with LogStore.open(base, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        for offset, value in values.items():
            log.leader_epoch = {5: 2, 10: 5}.get(offset, log.leader_epoch)
            log.append(value)
    directory = base / "t-0"
    epochs = {"version": 1, "epochs": [[0, 0], [2, 5], [5, 10]]}  # it did not name its log
    (directory / "leader-epoch-checkpoint").write_bytes(small_file(epochs))
    return directory, values, sorted(int(path.stem) for path in directory.glob("*.log"))


def command(base: Path, *args: str) -> Result:
    """Run a command on a store."""
    environment = {"LOGSTORE_LOG_DIRS": str(base)}
    return CliRunner().invoke(app, args, env=environment, catch_exceptions=False)


def named_in(report: str) -> set[str]:
    """Find the names of damage in a report for people."""
    return set(re.findall("|".join((HOLE, START, EPOCHS, CAME_BACK)), report))


@pytest.mark.parametrize("staged", SINGLES + PAIRS, ids="-".join)
def test_regression_damage_is_named_and_repaired(tmp_path: Path, staged: tuple[str, ...]) -> None:
    """Only holes were named; `verify` saw neither a start beyond the end nor falling epochs."""
    directory, values, bases = make_with_epochs(tmp_path)
    expected: set[str] = set()
    lost: set[int] = set()
    for one in staged:
        name, damage = DAMAGES[one]
        expected.add(name)
        lost |= damage(directory, bases)
    rows = json.loads(command(tmp_path, "verify", "--format", "json").stdout)
    assert {row["damage"] for row in rows} == expected
    assert all("logstore" in row["remedy"] for row in rows)
    assert all(Path(row["path"]).exists() for row in rows)
    with LogStore.open(tmp_path, read_only=True) as view:
        assert named_in(str(view.verify())) == expected
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert named_in(str(store.recovery_report)) == expected
        if HOLE not in expected:  # it hinders no append
            end = min({o for o in lost if "start" in staged}, default=COUNT)
            assert store.log("t", 0).append(b"goes on") == end
        report = store.repair("t", 0)
        assert expected <= {*report.mended}
        taken_out = {"hole", "batches"} & {*staged}
        assert len(report.quarantined) == len(taken_out)
    check_mended(tmp_path, values, lost, staged)


def check_mended(
    base: Path, values: dict[int, bytes], lost: set[int], staged: tuple[str, ...]
) -> None:
    """Nothing is named any more, and what was not lost or deleted is there."""
    assert command(base, "verify").exit_code == 0, command(base, "verify").output
    with LogStore.open(base, admin_socket=False) as store:
        report, log = store.recovery_report, store.log("t", 0)
        assert report.is_sound and not report.findings, str(report)
        assert store.verify().is_sound, str(store.verify())
        assert not store.repair("t", 0).mended
        found = {r.offset: r.value for r in log if r.value != b"goes on"}
        assert found == {o: v for o, v in values.items() if o not in lost}
        end = log.append(b"next")
        assert end >= (START_OFFSET - 8 if "start" in staged else COUNT)
        entries = log._state.replication.epochs.entries
        rising = sorted(set(entries))
        assert entries == rising == sorted(rising, key=lambda entry: entry[1])
        assert entries[-1][0] == log.leader_epoch == 5


def test_a_start_that_two_files_name_is_kept(tmp_path: Path) -> None:
    """The records behind it were not flushed: the log begins anew, and no offset is given twice."""
    directory, _, _ = make_with_epochs(tmp_path)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        store.log("t", 0).delete_records_before(START_OFFSET + 1)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert bases[0] < START_OFFSET + 1
    for base in bases:
        remove_segment(directory, base)
    (directory / f"{bases[0]:020}.log").touch()
    forget_recovery_point(directory)
    assert named_in(command(tmp_path, "verify").stdout) == {START}
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert named_in(str(store.recovery_report)) == {START}
        assert store.recovery_report.is_sound
        assert store.repair("t", 0).mended == [START]
        assert store.verify().is_sound
        assert store.log("t", 0).append(b"v") == START_OFFSET + 1


def come_back_empty(directory: Path) -> None:
    """Leave of a deleted partition what a removal removes last."""
    for path in directory.glob("*"):
        if path.name != "partition.metadata":
            path.unlink()
    change_small_file(directory / "partition.metadata", log_start_offset=17)
    forget_recovery_point(directory)


@pytest.mark.parametrize("beside", [None, *DAMAGES])
def test_regression_a_partition_that_came_back_empty_is_named(
    tmp_path: Path, beside: str | None
) -> None:
    """It was opened as any other, beside another damaged one too."""
    directory, _, bases = make_with_epochs(tmp_path)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        store.create("gone", 3).extend([b"v"] * 20)
    come_back_empty(tmp_path / "gone-3")
    expected = {CAME_BACK}
    if beside is not None:
        expected.add(DAMAGES[beside][0])
        DAMAGES[beside][1](directory, bases)
    result = command(tmp_path, "verify")
    assert result.exit_code == 1
    assert named_in(result.stdout) == expected
    assert "logstore delete gone 3" in result.stderr
    for _ in range(2):  # what an opening makes of it looks the same
        with LogStore.open(tmp_path, admin_socket=False) as store:
            assert CAME_BACK in str(store.recovery_report)
            assert "logstore delete gone 3" in str(store.recovery_report)
            assert named_in(str(store.verify(topic="gone"))) == {CAME_BACK}
    deleted = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-deleted"))
    assert command(deleted, "delete", "gone", "3", "--yes").exit_code == 0
    assert command(deleted, "verify", "gone").exit_code == 1  # there is no such topic
    facts = json.loads(command(tmp_path, "repair", "gone", "3", "--format", "json").stdout)
    assert facts["mended"] == [CAME_BACK]
    assert command(tmp_path, "verify", "gone").exit_code == 0
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert CAME_BACK not in str(store.recovery_report)
        assert store.log("gone", 3).append(b"v") == 17


@pytest.mark.parametrize("is_renamed", [False, True])
def test_regression_an_old_copy_that_came_back_is_named(tmp_path: Path, is_renamed: bool) -> None:
    """Its partition was moved, and deleted where it was moved to."""
    dirs = [tmp_path / name for name in ("a", "b")]
    with LogStore.open(dirs, admin_socket=False) as store:
        store.create("t", 0, config=CONFIG, log_dir=dirs[0]).extend([b"v"] * 20)
    staged = StagedMove(dirs[0], dirs[1], "t", 0, 20).name().copy().catch_up()
    shutil.rmtree(staged.move)
    change_small_file(staged.live / "partition.metadata")
    if is_renamed:
        staged.live.rename(staged.delete)
    with LogStore.open(dirs, read_only=True) as view:
        assert named_in(str(view.verify())) == {CAME_BACK}
    with LogStore.open(dirs, admin_socket=False) as store:
        assert named_in(str(store.recovery_report)) >= {CAME_BACK}
        assert str(dirs[1]) in str(store.recovery_report)
        assert named_in(str(store.verify())) == {CAME_BACK}
        if is_renamed:
            with pytest.raises(ReplicaIncompleteError):
                store.repair("t", 0)
            store.promote("t", 0)
        else:
            assert store.repair("t", 0).mended == [CAME_BACK]
        assert store.verify().is_sound
    with LogStore.open(dirs, admin_socket=False) as store:
        assert CAME_BACK not in str(store.recovery_report)
        assert [record.value for record in store.log("t", 0)] == [b"v"] * 20


def test_what_looks_like_damage_and_is_none(tmp_path: Path) -> None:
    """An emptied log, a truncated one and a move that a crash stopped are not named."""
    dirs = [tmp_path / name for name in ("a", "b")]

    def fill(store: LogStore, topic: str) -> Log:
        log = store.create(topic, 0, config=CONFIG, log_dir=str(dirs[0]))
        log.extend([b"v"] * 20)
        return log

    store = LogStore.open(dirs, admin_socket=False)
    fill(store, "emptied").delete_records_before(20)
    truncated = fill(store, "truncated")
    truncated.flush()
    truncated.delete_records_before(10)
    truncated.truncate_to(10)
    fill(store, "moving").flush()
    assert store.verify().is_sound, str(store.verify())
    abandon(store)
    StagedMove(dirs[0], dirs[1], "moving", 0, 20).name().copy().catch_up()
    for _ in range(2):
        with LogStore.open(dirs, read_only=True) as view:
            assert view.verify().is_sound, str(view.verify())
        with LogStore.open(dirs, admin_socket=False) as store:
            assert not store.recovery_report.findings, str(store.recovery_report)
            assert store.verify().is_sound, str(store.verify())


def test_regression_the_mark_of_a_move_that_broke_off_is_no_damage(tmp_path: Path) -> None:
    """An interrupted cancellation left it: `verify` called a sound partition a resurrected one."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        store.create("t", 0, config=CONFIG, log_dir=dirs[0]).extend([b"v"] * 20)
    shutil.rmtree(StagedMove(dirs[0], dirs[1], "t", 0, 20).name().copy().catch_up().move)
    with LogStore.open(dirs, read_only=True) as view:
        assert view.verify().is_sound, str(view.verify())
    with LogStore.open(dirs, admin_socket=False) as store:
        assert not store.recovery_report.findings, str(store.recovery_report)
        assert store.verify().is_sound, str(store.verify())
        assert store["t", 0].append(b"goes on", durable=True) == 20


def test_regression_damaged_metadata_of_an_emptied_log_keeps_nothing_shut(tmp_path: Path) -> None:
    """The look for a resurrected copy read the damaged file again: the replica was offline."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0)
        log.extend([b"v"] * 10)
        log.delete_records_before(10)
    directory = tmp_path / "t-0"
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (directory / f"{10:020}.log").touch()
    path = directory / "partition.metadata"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with LogStore.open(tmp_path, read_only=True) as view:
        view["t", 0].verify()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert store["t", 0].append(b"goes on", durable=True) >= 0
