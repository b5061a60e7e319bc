"""Read log dirs that Apache Kafka wrote, as its consumers read them at the time."""

from __future__ import annotations

import base64
import shutil
import struct
from pathlib import Path

import pytest

from logstore import (
    CorruptRecordBatchError,
    DuplicateLogError,
    LogDirIdentityError,
    LogStore,
    ReadOnlyStoreError,
    ReplicaIncompleteError,
    TopicPartition,
    UnknownPartitionError,
    UnsupportedFormatError,
)
from logstore.format.kafka import record_batch as kafka
from logstore.store.kafka import broker_listing as kafka_listing
from logstore.store.kafka import broker_view as kafka_view
from logstore.store.kafka.adoption import adopt
from logstore.store.kafka.broker import registered_dirs
from support.kafka_golden import GOLDEN, given, log_dirs


def contents(place: Path) -> dict[str, tuple[int, bytes]]:
    """Give everything below a directory, with its times."""
    return {
        str(path.relative_to(place)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in place.rglob("*")
        if path.is_file()
    }


def test_the_golden_directories_are_small() -> None:
    """Each takes less than 80 KB; a directory counts as 4 KiB."""
    for top in GOLDEN.iterdir():
        paths = list(top.rglob("*"))
        size = sum(path.stat().st_size if path.is_file() else 4096 for path in paths)
        assert size < 80_000, top


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_records_are_those_that_a_consumer_was_given(tmp_path: Path, name: str) -> None:
    """In both isolation levels, by offset and from the start; and not a byte is touched."""
    dirs = log_dirs(name, tmp_path)
    before = contents(tmp_path)
    with LogStore.open_kafka(dirs) as store:
        for key, expected in given(name).items():
            log = store[key]
            assert (log.log_start_offset, log.log_end_offset) == (expected.start, expected.end)
            assert [tuple(record[:5]) for record in log] == expected.uncommitted
            batches = log.read_batches(isolation_level="read_committed")
            assert [tuple(r[:5]) for batch in batches for r in batch] == expected.committed
            for row in expected.uncommitted:
                assert log[row[0]][:5] == row
                assert log.read(row[0], max_records=1)[0][:5] == row
            latest = max((row[1] for row in expected.uncommitted), default=0)
            assert log.offset_for_timestamp(latest + 1) is None
        assert store.verify().is_sound
        with pytest.raises(ReadOnlyStoreError):
            store.log("stamped", 0).append(b"no")
    assert contents(tmp_path) == before


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    """The copy of an unfinished move, a deleted replica, and what is no broker's."""
    dirs = log_dirs("killed", tmp_path)
    (dirs[0] / "notes.txt").write_text("hello")
    with LogStore.open_kafka(dirs) as store:
        text = str(store.recovery_report)
        assert "-future: the unfinished copy" in text and "-delete: a deleted replica" in text
        assert "notes.txt: a file that does not belong to a broker" in text
        assert ("doomed", 0) not in store and ("__consumer_offsets", 0) in store
        assert "torn" in store.log("torn", 0).topic
        recovery = store.log("torn", 0).recovery
        assert recovery.cut_bytes > 8000 and "did not stop cleanly" in recovery.cut_reason
        with pytest.raises(UnknownPartitionError):
            store.log("doomed", 0)


def test_a_stray_replica_is_named_and_not_read(tmp_path: Path) -> None:
    """A broker puts a replica of no topic aside under its partition's name; nothing serves it."""
    dirs = log_dirs("stopped", tmp_path)
    stray = dirs[1] / "gone-3.746e9e92827d4f7f9401708659533f19-stray"
    shutil.copytree(dirs[1] / "stamped-0", stray)
    shutil.copytree(dirs[1] / "stamped-0", dirs[0] / stray.name.replace("gone-3", "stamped-0"))
    before = contents(tmp_path)
    with LogStore.open_kafka(dirs) as store:
        text = str(store.recovery_report)
        assert text.count("-stray: a replica that the broker found to belong to no topic") == 2
        assert stray.name in text and ("gone", 3) not in store
        with pytest.raises(UnknownPartitionError):
            store.log("gone", 3)
        # The live replica of the same name is served as if nothing stood beside it.
        expected = given("stopped")[TopicPartition("stamped", 0)]
        assert [record[:5] for record in store.log("stamped", 0)] == expected.uncommitted
        assert not [problem for key in store for problem in store[key].verify()]
    assert contents(tmp_path) == before


def test_one_disk_of_a_broker_is_read_alone(tmp_path: Path) -> None:
    """A replica of which only an unfinished copy is there is not served as whole."""
    dirs = log_dirs("killed", tmp_path)
    with LogStore.open_kafka(dirs[1]) as store, pytest.raises(ReplicaIncompleteError):
        store.log("segments", 0)


def test_two_live_directories_are_refused_by_name(tmp_path: Path) -> None:
    """The broker would not start on them; every other replica is read."""
    dirs = log_dirs("stopped", tmp_path)
    shutil.copytree(dirs[1] / "stamped-0", dirs[0] / "stamped-0")
    with LogStore.open_kafka(dirs) as store:
        with pytest.raises(DuplicateLogError, match="a/stamped-0"):
            store.log("stamped", 0)
        assert len(list(store.log("segments", 1))) == 6


@pytest.mark.parametrize("source", [0, 1])
def test_a_replica_that_the_broker_moves_meanwhile_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: int
) -> None:
    """Between the listings of two log dirs it would be in neither, or in both."""
    dirs = log_dirs("stopped", tmp_path)
    if source == 0:
        (dirs[1] / "stamped-0").rename(dirs[0] / "stamped-0")
    with LogStore.open_kafka(dirs) as store:
        listed: list[str] = []

        def list_kafka_dir(path: str) -> kafka_listing.KafkaListing:
            found = kafka_listing.list_kafka_dir(path)
            listed.append(path)
            if len(listed) == 1:
                (dirs[source] / "stamped-0").rename(dirs[1 - source] / "stamped-0")
            return found

        monkeypatch.setattr(kafka_view, "list_kafka_dir", list_kafka_dir)
        assert ("stamped", 0) in list(store) and not store.host.replicas.offline
        expected = given("stopped")[TopicPartition("stamped", 0)]
        assert [record[:5] for record in store.log("stamped", 0)] == expected.uncommitted


def test_disks_of_several_brokers_are_refused(tmp_path: Path) -> None:
    """Another cluster's disk does not belong here, nor one of our own stores."""
    dirs = log_dirs("stopped", tmp_path)
    meta = dirs[1] / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(LogDirIdentityError, match="several brokers"):
        LogStore.open_kafka(dirs)
    LogStore.open(tmp_path / "ours").close()
    with pytest.raises(LogDirIdentityError, match=r"LogStore\.open"):
        LogStore.open_kafka(tmp_path / "ours")


def test_older_brokers_have_less_in_their_dirs(tmp_path: Path) -> None:
    """Version 0 of meta.properties, no directory id, no partition.metadata, no indexes."""
    dirs = log_dirs("stopped", tmp_path)
    for each in dirs:
        (each / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=abc\n")
        for path in [*each.rglob("partition.metadata"), *each.rglob("*index")]:
            path.unlink()
    with LogStore.open_kafka(dirs) as store:
        for key, expected in given("stopped").items():
            assert [tuple(record[:5]) for record in store[key]] == expected.uncommitted


def test_old_message_sets_are_refused_by_name(tmp_path: Path) -> None:
    """A topic that was last written before 0.11 says so; the others are read."""
    dirs = log_dirs("stopped", tmp_path)
    path = dirs[1] / "stamped-0" / f"{0:020d}.log"
    path.write_bytes(struct.pack(">qiIBB", 0, 30, 0, 1, 0) + bytes(40))
    with LogStore.open_kafka(dirs) as store:
        with pytest.raises(UnsupportedFormatError, match="message format v1"):
            store.log("stamped", 0)
        assert len(list(store.log("segments", 1))) == 6


def test_a_half_done_compaction_is_read_as_it_will_be_done(tmp_path: Path) -> None:
    """A `.swap` stands for the segments that it covers; `.cleaned` and `.deleted` for nothing."""
    dirs = log_dirs("stopped", tmp_path)
    place = dirs[0] / "compacted-0"
    base = f"{0:020d}.log"
    (place / base).rename(place / f"{base}.swap")
    (place / f"{base}.deleted").rename(place / base)
    (place / f"{16:020d}.log.cleaned").write_bytes(b"half of it")
    with LogStore.open_kafka(dirs) as store:
        rows = [tuple(record[:5]) for record in store.log("compacted", 0)]
        assert rows == given("stopped")["compacted", 0].uncommitted  # type: ignore[index]


def test_a_start_offset_is_taken_from_the_checkpoint(tmp_path: Path) -> None:
    """Deleted records stay deleted; a checkpoint that is cut off is not believed."""
    dirs = log_dirs("stopped", tmp_path)
    checkpoint = dirs[1] / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nstamped 0 3\n")
    with LogStore.open_kafka(dirs) as store:
        assert [record.offset for record in store.log("stamped", 0)] == [3, 4]
    checkpoint.write_text("0\n2\nstamped 0 3\n")
    with LogStore.open_kafka(dirs) as store:
        assert store.log("stamped", 0).log_start_offset == 0
        assert "it is not used" in str(store.recovery_report)


@pytest.mark.parametrize("left", range(1, 400, 13))
def test_a_torn_tail_ends_the_log(tmp_path: Path, left: int) -> None:
    """Wherever the last segment is cut, what is whole before it is given."""
    dirs = log_dirs("stopped", tmp_path)
    path = dirs[0] / "compacted-0" / f"{16:020d}.log"
    path.write_bytes(path.read_bytes()[:left])
    expected = given("stopped")["compacted", 0].uncommitted  # type: ignore[index]
    with LogStore.open_kafka(dirs) as store:
        log = store.log("compacted", 0)
        rows = [tuple(record[:5]) for record in log]
        assert rows == expected[: len(rows)] and log.log_end_offset >= 16


def test_a_partition_that_is_made_anew_begins_at_0(tmp_path: Path) -> None:
    """A view of a running broker holds its start against the segments that are there now."""
    dirs = log_dirs("stopped", tmp_path)
    place = dirs[0] / "segments-0"
    whole = tmp_path / "whole"
    shutil.copytree(place, whole)
    for path in place.glob("0*"):
        if int(path.name[:20]) < 4:
            path.unlink()
    with LogStore.open_kafka(dirs) as store:
        log = store["segments", 0]
        assert [record.offset for record in log] == [4, 5]
        shutil.rmtree(place)
        whole.rename(place)
        assert [record.offset for record in log] == list(range(6))


def test_regression_a_split_that_was_cut_short_is_not_believed(tmp_path: Path) -> None:
    """Kafka swaps the last part first, and at a start drops parts behind one that is unfinished."""
    dirs = log_dirs("stopped", tmp_path)
    place = dirs[0] / "segments-0"
    expected = given("stopped")["segments", 0].uncommitted  # type: ignore[index]
    data = b"".join((place / f"{base:020d}.log").read_bytes() for base in range(6))
    for path in place.glob("0*"):
        path.unlink()
    (place / f"{0:020d}.log").write_bytes(data)
    (place / f"{0:020d}.log.cleaned").write_bytes(data[:100])
    (place / f"{4:020d}.log.swap").write_bytes(data[-100:])
    with LogStore.open_kafka(dirs) as store:
        log = store["segments", 0]
        assert [tuple(record[:5]) for record in log] == expected and log.verify() == []


@pytest.mark.parametrize("first", range(1, 6))
def test_regression_a_log_starts_with_its_first_segment(tmp_path: Path, first: int) -> None:
    """Retention removed what was before it, of which no checkpoint of Kafka's tells."""
    dirs = log_dirs("stopped", tmp_path)
    expected = given("stopped")["segments", 0].uncommitted[first:]  # type: ignore[index]
    with LogStore.open_kafka(dirs) as beside:
        assert len(list(beside["segments", 0])) == 6
        for path in (dirs[0] / "segments-0").glob("0*"):
            if int(path.name[:20]) < first:
                path.unlink()
        for store in (LogStore.open_kafka(dirs), beside):
            with store:
                log = store["segments", 0]
                assert [tuple(record[:5]) for record in log] == expected
                assert (log.log_start_offset, log.log_end_offset) == (first, 6)
                assert log.read(first, isolation_level="read_committed")[0].offset == first
                assert log.verify() == []
    with LogStore.open_kafka(dirs) as source, LogStore.open(tmp_path / "ours") as ours:
        adopt(ours, source, TopicPartition("segments", 0), id)
    with LogStore.open(tmp_path / "ours") as ours:
        log = ours["segments", 0]
        assert log.log_start_offset == first and log.append(b"goes on") == 6
        assert ours.verify().is_sound and len(list(log)) == len(expected) + 1


def test_damage_before_whole_batches_is_told(tmp_path: Path) -> None:
    """It does not end the log: what stands behind it is read."""
    dirs = log_dirs("stopped", tmp_path)
    path = dirs[0] / "transactions-0" / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[339 + 65] ^= 1
    path.write_bytes(data)
    with LogStore.open_kafka(dirs) as store:
        log = store.log("transactions", 0)
        with pytest.raises(CorruptRecordBatchError):
            list(log)
        with pytest.raises(CorruptRecordBatchError):
            list(log.read_batches(isolation_level="read_committed"))
        assert log[12].value == b"committed last"
        assert [problem.position for problem in log.verify()] == [339]


def registration(broker_id: int, ids: bytes) -> bytes:
    """Make the record that registers a broker and its log dirs."""
    return (
        b"\x01\x00\x03" + struct.pack(">i", broker_id) + b"\x00" + bytes(16) + bytes(8)
        + b"\x02\x06PLAIN\x05host" [:12] + bytes(4) + b"\x00"
        + b"\x01" + b"\x00" + b"\x00\x00" + b"\x01\x00"
        + bytes([len(ids) + 1, len(ids) // 16 + 1]) + ids
    )  # fmt: skip


def test_registered_log_dirs_are_read() -> None:
    """A record that registers a broker names its disks; any other bytes name none."""
    record = registration(0, bytes(range(32)))
    assert registered_dirs(record, "0") == ["AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"]
    assert registered_dirs(record, "1") == []
    for end in range(len(record)):
        registered_dirs(record[:end], "0")


@pytest.mark.parametrize("place", ["log", "snapshot"])
def test_regression_disks_of_another_broker_are_not_missed(tmp_path: Path, place: str) -> None:
    """The metadata log is the whole cluster's; its older part may be in a snapshot alone."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    records = [registration(7, b"A" * 32), registration(7, b"B" * 16 + b"C" * 16)]
    records += [registration(8, b"D" * 16), b"\x01\x02\x03"]
    whole, rest = (
        b"".join(kafka.frame(kafka.build_payload(values, None, 1, None), offset, 0))
        for values, offset in ((records, 0), (records[2:], 4))
    )
    (directory / f"{0 if place == 'log' else 4:020d}.log").write_bytes(
        whole if place == "log" else rest
    )
    for offset, data in ((2, rest), (4, whole)):
        (directory / f"{offset:020d}-{3:010d}.checkpoint").write_bytes(data)
    with LogStore.open_kafka(tmp_path) as store:
        missing = [line for line in store.recovery_report.warnings if "was not passed" in line]
    names = [base64.urlsafe_b64encode(id_ * 16).decode().rstrip("=") for id_ in (b"B", b"C")]
    assert [line.split()[2] for line in missing] == names
    (directory / f"{5:020d}-{3:010d}.checkpoint").write_bytes(whole[:90])
    LogStore.open_kafka(tmp_path).close()
