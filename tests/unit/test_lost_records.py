"""`truncate_to(..., keep_lost=True)` keeps the dropped records, whatever happens meanwhile."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from logstore import Log, LogConfig, LogDirFullError, LogStore
from logstore.cli.app import app
from logstore.disk import files
from logstore.log.removal import lost_records
from support.crash_model import CrashModel
from support.inside import abandon
from support.places import fast_directory
from support.recorder import Recorder, lay_out

SMALL = LogConfig(segment_bytes=400, flush_messages=None)
COUNT = 30


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


VALUES = [b"value %d" % number for number in range(COUNT)]


def filled(root: Path, config: LogConfig = SMALL, topic: str = "orders") -> LogStore:
    """A store with a log of several segments, in three leader epochs."""
    store = LogStore.open(root, admin_socket=False)
    log = store.create(topic, 3, config=config)
    for value in VALUES:
        log.append(value)
    return store


def values_in(path: Path, tmp: Path, config: LogConfig | None = None) -> dict[int, bytes]:
    """Read a file of kept records as the only segment of another log."""
    first = int(path.name.split(".")[-3].split("-")[0])
    with LogStore.open(tmp / "reader", admin_socket=False) as store:
        other = store.create("reader", len(store), config=config)
        other.append_as_follower(path.read_bytes())
        return {one.offset: one.value or b"" for one in other if one.offset >= first}


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize("offset", [0, 1, 7, 13, COUNT - 1])
def test_dropped_records_are_in_the_file(base: Path, offset: int, record_format: str) -> None:
    """The file has all dropped records with their offsets; the log has all others."""
    config = SMALL.replace(record_format=record_format)
    with filled(base / "store", config) as store:
        log = store.log("orders", 3)
        assert len(list(Path(log.directory).glob("*.log"))) > 3
        path = Path(log.truncate_to(offset, keep_lost=True) or "")
        assert path.parent == base / "store" and lost_records.is_lost_file(path.name)
        assert [one.value for one in log] == VALUES[:offset]
        kept = values_in(path, base, config)
        assert kept == dict(list(enumerate(VALUES))[offset:])


def test_a_file_is_asked_for_and_needed(base: Path) -> None:
    """Without the argument, or if nothing is dropped, there is no file."""
    with filled(base / "store") as store:
        log = store.log("orders", 3)
        assert log.truncate_to(COUNT, keep_lost=True) is None
        assert log.truncate_to(20) is None
        assert not list((base / "store").glob("*.lost*"))


def test_files_of_two_cuts_at_one_offset_are_two(base: Path) -> None:
    """Records of another leader epoch, or another topic of this name, get another file."""
    with filled(base / "store") as store:
        log = store.log("orders", 3)
        first = log.truncate_to(10, keep_lost=True)
        store.delete("orders", 3)
    with filled(base / "store") as store:
        second = store.log("orders", 3).truncate_to(10, keep_lost=True)
        assert first != second
        assert len(list((base / "store").glob("*.lost"))) == 2
        assert store.recovery_report.is_sound


def test_a_long_name_of_a_topic_is_left_out(base: Path) -> None:
    """The topic id shows to which topic the records belong."""
    topic = "t" * 240
    with filled(base / "store", topic=topic) as store:
        log = store.log(topic, 3)
        path = Path(log.truncate_to(10, keep_lost=True) or "")
        assert path.name.startswith(log.topic_id.hex())
        assert lost_records.is_lost_file(path.name)


def test_a_start_and_a_deletion_leave_the_file(base: Path) -> None:
    """The file belongs to the store, so no report names it; a half-written file is removed."""
    with filled(base / "store") as store:
        path = Path(store.log("orders", 3).truncate_to(10, keep_lost=True) or "")
        store.delete("orders", 3)
    before = path.read_bytes()
    half = path.with_name(path.name + ".tmp")
    half.write_bytes(b"half")
    with LogStore.open(base / "store", admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert not store.recovery_report.warnings
    assert path.read_bytes() == before
    assert not half.exists()


def test_a_full_disk_drops_nothing(base: Path) -> None:
    """Records that cannot be kept stay in the log, and no incomplete file stays."""
    with filled(base / "store") as store:
        log = store.log("orders", 3)
        full = OSError(errno.ENOSPC, "no space")
        with (
            patch.object(files, "sendfile", side_effect=full),
            pytest.raises(LogDirFullError),
        ):
            log.truncate_to(10, keep_lost=True)
        assert [one.value for one in log] == VALUES
        assert not list((base / "store").glob("*.lost*"))
        assert log.truncate_to(10, keep_lost=True)


def test_a_power_cut_at_any_call_loses_no_record(base: Path) -> None:
    """Each flushed record is in the log or in a whole file, also after a repeated truncation."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = filled(root)
        log = store.log("orders", 3)
        store.flush()
        recorder.mark("flushed")
        log.truncate_to(7, keep_lost=True)
        abandon(store)
    model, rng, is_flushed, cuts = CrashModel(recorder.image), random.Random(5), False, 0
    for op in recorder.ops:
        model.apply(op)
        is_flushed = is_flushed or op == ("mark", "flushed")
        for image in (model.lost(), model.crash(rng)) if is_flushed else ():
            cuts += 1
            copy = base / f"cut-{cuts}"
            lay_out(image, copy)
            with LogStore.open(copy, admin_socket=False) as again:
                log = again.log("orders", 3)
                assert everything(log, copy, base / f"read-{cuts}") == dict(enumerate(VALUES))
                log.truncate_to(7, keep_lost=True)
                assert everything(log, copy, base / f"more-{cuts}") == dict(enumerate(VALUES))
                assert log.log_end_offset == 7
    assert cuts > 20


def everything(log: Log, directory: Path, scratch: Path) -> dict[int, bytes]:
    """Read a log, and all files of kept records next to it."""
    found = {one.offset: one.value or b"" for one in log}
    for path in directory.glob("*.lost"):
        found |= values_in(path, scratch)
    return found


def test_dump_prints_the_file(base: Path) -> None:
    """`dump` prints the file like a segment."""
    with filled(base / "store") as store:
        path = store.log("orders", 3).truncate_to(28, keep_lost=True)
    assert path is not None
    done = CliRunner().invoke(app, ["dump", path, "--records", "--format", "jsonl"])
    assert done.exit_code == 0, done.output
    assert "value 29" in done.output
