"""Read the golden directories, as every version must."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from format.write_golden import GOLDEN, WRITERS, rows_of
from logstore import CorruptRecordBatchError, LogDirOfflineError, LogStore, TopicPartition
from logstore.disk.documents.catalog_file import CATALOG_NAME, decode_catalog
from logstore.disk.documents.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from logstore.disk.documents.settings import DirSettings, read_settings
from logstore.format import producer_file
from logstore.log.epochs import LeaderEpochs, OfLog
from logstore.log.producers.producer_state import Producers
from support.moves import directory_id_of
from support.places import environment
from support.producers import sent
from support.reader import read_partition


def copied(name: str, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Copy a golden directory, because an owner writes into what it opens."""
    root = tmp_path / name
    shutil.copytree(GOLDEN / name, root)
    expected: dict[str, Any] = json.loads((root / "expected.json").read_text())
    (root / "expected.json").unlink()
    return root, expected


@pytest.mark.parametrize("read_only", [False, True])
def test_v1_is_read(tmp_path: Path, read_only: bool) -> None:
    """All records of a store that version 1 wrote are read, and nothing is scanned or changed."""
    root, expected = copied("v1", tmp_path)
    with LogStore.open(root, read_only=read_only) as store:
        assert {f"{t}-{p}" for t, p in store} == set(expected)
        for topic, partition in store:
            log = store.log(topic, partition)
            rows = expected[f"{topic}-{partition}"]
            assert rows_of(log) == rows
            assert rows_of([log[row[0]] for row in rows[::7]]) == rows[::7]
        assert store.recovery_report.is_sound
        assert store.recovery_report.scanned_bytes == 0
        assert store.verify().is_sound


def test_v1_is_read_by_the_independent_reader() -> None:
    """The document alone is enough to read what version 1 wrote."""
    expected = json.loads((GOLDEN / "v1" / "expected.json").read_text())
    for name, rows in expected.items():
        found = [r for b in read_partition(GOLDEN / "v1" / name) for r in b.records]
        assert rows_of(found)[-len(rows) :] == rows


def test_v1_torn_tail_is_cut(tmp_path: Path) -> None:
    """The torn last batch is cut and reported, and everything before it is read."""
    root, expected = copied("v1_torn_tail", tmp_path)
    with LogStore.open(root) as store:
        (entry,) = store.recovery_report.entries
        assert entry.state == "recovered" and entry.cut_bytes > 0 and not entry.problems
        assert rows_of(store.log("orders", 0)) == expected["orders-0"]


def test_v1_corrupt_is_named_and_repaired(tmp_path: Path) -> None:
    """The bad batch is found when it is read; a repair takes it out and keeps the other offsets."""
    root, expected = copied("v1_corrupt", tmp_path)
    first, _ = expected["lost"]
    with LogStore.open(root) as store:
        log = store.log("orders", 0)
        with pytest.raises(CorruptRecordBatchError):
            log.read(first)
        with pytest.raises(CorruptRecordBatchError):
            list(log)
        assert rows_of([log[row[0]] for row in expected["orders-0"]]) == expected["orders-0"]
        assert not store.verify().is_sound
        store.repair("orders", 0)
        assert rows_of(store.log("orders", 0)) == expected["orders-0"]
        assert store.verify().is_sound


def test_v1_dirs_are_read(tmp_path: Path) -> None:
    """Catalog, settings and the marks of a move: a swap is completed, an absent dir is missed."""
    root, expected = copied("v1_dirs", tmp_path)
    dirs = [root / "a", root / "b"]
    with LogStore.open(dirs[:1]) as store, pytest.raises(LogDirOfflineError):
        store.log("orders", 1)
    for name, settings in zip(
        ("a", "b"),
        (DirSettings(True), DirSettings(False, {TopicPartition("orders", 7): 1_700_000_000_000})),
        strict=True,
    ):
        meta = directory_id_of(root / name)
        assert read_settings(str(root / name), meta) == (settings, "")
        places = decode_catalog((root / name / CATALOG_NAME).read_bytes()).places
        assert set(places) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    with LogStore.open(dirs) as store:
        assert {f"{t}-{p}": rows_of(store.log(t, p)) for t, p in store} == expected
        assert store.log("orders", 1).log_dir == str(dirs[1])
        assert store.recovery_report.is_sound


@pytest.mark.parametrize("read_only", [False, True])
def test_v1_named_is_read(tmp_path: Path, read_only: bool) -> None:
    """Each small file is believed: what was deleted stays so, and nothing is reported."""
    root, expected = copied("v1_named", tmp_path)
    with LogStore.open([root / "a", root / "b"], read_only=read_only) as store:
        assert {f"{t}-{p}": rows_of(store.log(t, p)) for t, p in store} == expected
        assert [store.log("orders", number).log_start_offset for number in range(2)] == [30, 30]
        report = store.recovery_report
        assert report.is_sound and report.was_clean and not report.warnings
        assert not [one for entry in report.entries for one in entry.warnings]
        for number, place in enumerate((root / "a", root / "b")):
            directory, topic_id = place / f"orders-{number}", store.log("orders", number).topic_id
            epochs = LeaderEpochs.read(str(directory))
            assert epochs is not None and epochs.of_log == OfLog("orders", number, topic_id, 30)
            for kind in (RECOVERY_POINTS, LOG_START_OFFSETS):
                found = read_offsets(str(place / kind), kind, directory_id_of(place))
                assert found is not None
                assert found.topic_ids == {TopicPartition("orders", number): topic_id}


@pytest.mark.parametrize("is_lost", [False, True])
def test_v1_replicated_is_read(tmp_path: Path, is_lost: bool) -> None:
    """The checkpoint has a high watermark of 20, the metadata a later one of 30, and the facts."""
    root, expected = copied("v1_replicated", tmp_path)
    if is_lost:
        (root / HIGH_WATERMARKS).unlink()
    with LogStore.open(root) as store:
        assert {f"{t}-{p}": rows_of(store.log(t, p)) for t, p in store} == expected
        log, other = (store.log("orders", number) for number in range(2))
        assert (log.high_watermark, other.high_watermark) == (30, other.log_end_offset)
        for one in (log, other):
            assert dict(one.facts) == {"whole_since": 7, "ids": ["a", None, {"b": 1.5}]}
            assert one.facts.generation == 1
        assert store.recovery_report.is_sound and not store.recovery_report.warnings
    found = read_offsets(str(root / HIGH_WATERMARKS), HIGH_WATERMARKS, directory_id_of(root))
    assert found is not None and dict(found.offsets) == {TopicPartition("orders", 0): 30}
    assert dict(found.topic_ids) == {TopicPartition("orders", 0): log.topic_id}


def test_v1_producers_are_read() -> None:
    """Every batch of every producer, and what is undecided; written again, it is the same file."""
    (path,) = (GOLDEN / "v1_producers" / "orders-4").iterdir()
    offset, topic_id, data = producer_file.offset_of(path.name), bytes(range(16)), path.read_bytes()
    assert offset is not None
    snapshot = producer_file.decode(data, str(path), topic_id, 4, offset)
    producers = Producers(snapshot)
    expected = json.loads((GOLDEN / "v1_producers" / "expected.json").read_text())
    assert json.loads(json.dumps(producers.states())) == expected
    assert snapshot.undecided == [(16, 17)] and producers.last_stable_offset(17) == 10
    assert producer_file.encode(producers.snapshot(), topic_id, 4) == data


def test_v1_idempotent_goes_on(tmp_path: Path) -> None:
    """Producers of both layouts are known, with and without a snapshot; a retry is not appended."""
    root, expected = copied("v1_idempotent", tmp_path)
    for _ in range(2):
        with LogStore.open(root) as store:
            logs = [store.log("orders", number) for number in range(2)]
            assert {f"{log.topic}-{log.partition}": rows_of(log) for log in logs} == expected[
                "rows"
            ]
            states = [
                [state._replace(used_ms=0) for state in log.producer_states()] for log in logs
            ]
            assert json.loads(json.dumps(states)) == expected["states"]
            ends = [log.log_end_offset for log in logs]
            assert logs[1].last_stable_offset < ends[1]
            for log in logs:
                assert log.append_encoded(sent(3, 6, columnar=log is logs[0])).base_offset == 6
                producer = log.idempotent_producer("sensor")
                assert producer.last is not None and producer.next_sequence == 2
            assert logs[1].append_encoded(sent(8, 4)).base_offset == ends[1] - 2
            assert [log.log_end_offset for log in logs] == ends
            assert store.recovery_report.is_sound and store.verify().is_sound


def test_the_writer_overwrites_nothing() -> None:
    """The script that wrote the golden directories refuses to write them again."""
    before = {p: p.read_bytes() for p in GOLDEN.rglob("*") if p.is_file()}
    script = Path(__file__).with_name("write_golden.py")
    done = subprocess.run([sys.executable, str(script)], env=environment(), check=False)
    assert done.returncode == 1
    assert before == {p: p.read_bytes() for p in GOLDEN.rglob("*") if p.is_file()}
    assert {path.name for path in GOLDEN.iterdir()} == set(WRITERS)
