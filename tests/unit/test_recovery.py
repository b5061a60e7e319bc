"""What a crash leaves is cut and cleaned up; the part that a trailer describes is never cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.disk import files
from logstore.errors import ReplicaOfflineError
from logstore.log.segments.trailer import TRAILER_BYTES
from support.reader import batches


def closed_log(tmp_path: Path) -> Path:
    """Make a log of ten batches, closed cleanly, without its checkpoint; return its file."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for number in range(10):
            log.append(b"value %d" % number)
    for name in ("recovery-point-offset-checkpoint", ".clean-shutdown"):
        (tmp_path / name).unlink()
    (path,) = (tmp_path / "orders-0").glob("*.log")
    return path


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_the_last_batch_is_not_cut_where_an_index_is_lost(tmp_path: Path, suffix: str) -> None:
    """Only the trailer shows that the batch was flushed: damage is reported, nothing is cut."""
    path = closed_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    index = path.with_suffix(suffix)
    content = index.read_bytes()
    if suffix == ".index":
        content = b"\xff" * (len(content) - TRAILER_BYTES) + content[-TRAILER_BYTES:]
        index.write_bytes(content)
    else:
        index.unlink()
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert (log.recovery.state, log.recovery.cut_bytes) == ("corrupt", 0)
        assert [record.value for record in log.read(0)] == [b"value %d" % n for n in range(9)]
        with pytest.raises(ReplicaOfflineError):
            log.append(b"x")
    assert path.stat().st_size == len(data)


def crashed_log(tmp_path: Path, count: int) -> Path:
    """Copy an open store of unflushed batches of one record, like a kill."""
    with LogStore.open(tmp_path / "open") as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        for number in range(count):
            log.append(b"value %d" % number)
        shutil.copytree(tmp_path / "open", tmp_path / "crashed")
    return tmp_path / "crashed"


def test_a_tail_that_is_torn_anywhere_is_cut_to_the_last_whole_batch(tmp_path: Path) -> None:
    """Any number of its bytes may be on the disk; the report has the exact number that is cut."""
    crashed = crashed_log(tmp_path, 6)
    (path,) = (crashed / "orders-0").glob("*.log")
    data = path.read_bytes()
    *_, last = batches(data)
    for end in (*range(last.position + 1, len(data), 9), len(data) - 1):
        place = tmp_path / str(end)
        shutil.copytree(crashed, place)
        (place / "orders-0" / path.name).write_bytes(data[:end])
        with LogStore.open(place, admin_socket=False) as store:
            log = store.log("orders", 0)
            assert log.recovery.state == "recovered"
            assert log.recovery.cut_bytes == end - last.position
            assert [record.value for record in log] == [b"value %d" % n for n in range(5)]
            assert log.append(b"next") == 5


def test_a_crash_in_the_midst_of_small_files_and_retention_is_tidied_up(tmp_path: Path) -> None:
    """Half-written files are removed, and so is a segment that was already deleted."""
    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        for number in range(60):
            log.append(b"value %d" % number)
        directory, first = Path(log.directory), log._state.view[1][1]
        shutil.copytree(directory, tmp_path / "before")
        log.delete_records_before(first + 1)
        assert not (directory / f"{0:020d}.log").exists()
    for path in (tmp_path / "before").glob(f"{0:020d}.*"):
        shutil.copy(path, directory)
    (directory / "partition.metadata.tmp").write_bytes(b"half")
    with LogStore.open(tmp_path / "logs") as store:
        log = store.log("orders", 0)
        assert store.recovery_report.problems == []
        assert any("partition.metadata.tmp" in one for one in log.recovery.warnings)
        assert [record.offset for record in log] == list(range(first + 1, 60))
    left = [path.name for path in directory.iterdir()]
    assert not [name for name in left if name.endswith(".tmp") or name.startswith(f"{0:020d}")]


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_a_closed_log_is_opened_and_closed_with_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_format: str
) -> None:
    """Each file is opened once, and unchanged files are not written again."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(record_format=record_format))
        log.extend([b"value %d" % number for number in range(10)])
    files_before = {path.name: path.stat() for path in (tmp_path / "orders-0").iterdir()}
    opened: list[str] = []
    real = files.open_file

    def open_file(path: str, *rest: int) -> int:
        if "orders-0/" in path:
            opened.append(Path(path).name)
        return real(path, *rest)

    monkeypatch.setattr(files, "open_file", open_file)
    with LogStore.open(tmp_path) as store:
        assert len(opened) == len(set(opened)) and set(opened) <= set(files_before)
        assert [record.offset for record in store["orders", 0]] == list(range(10))
    for path in (tmp_path / "orders-0").iterdir():
        assert path.stat().st_ino == files_before[path.name].st_ino
    monkeypatch.undo()
    with LogStore.open(tmp_path) as store:
        assert store["orders", 0].append(b"next") == 10
    with LogStore.open(tmp_path) as store:
        assert [record.offset for record in store["orders", 0]] == list(range(11))
        assert store["orders", 0].recovery.scanned_bytes == 0


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
@pytest.mark.parametrize("has_indexes", [True, False])
def test_regression_missing_flushed_records_are_reported_until_a_repair(
    tmp_path: Path, layout: str, has_indexes: bool
) -> None:
    """The second start took the damage for a torn tail, and gave out the offsets a second time."""
    config = LogConfig(segment_bytes=4096, record_format=layout)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=config)
        while len(list((tmp_path / "t-0").glob("*.log"))) < 3:
            log.append(b"v" * 300)
        log.append(b"v" * 300)
        log.flush()
        end = log.log_end_offset
    last = max((tmp_path / "t-0").glob("*.log"))
    last.write_bytes(bytes(last.stat().st_size))
    if not has_indexes:
        for path in (tmp_path / "t-0").glob("*index"):
            path.unlink()
    for _ in range(3):
        with LogStore.open(tmp_path, admin_socket=False) as store:
            log = store["t", 0]
            assert log.recovery.state == "corrupt"
            assert max(problem.end_offset for problem in log.recovery.problems) == end
            with pytest.raises(ReplicaOfflineError, match="corrupt"):
                log.append(b"no")
    with LogStore.open(tmp_path, admin_socket=False) as store:
        store.repair("t", 0)
        assert store["t", 0].append(b"goes on") == end
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert not store["t", 0].recovery.problems and store["t", 0].log_end_offset == end + 1
