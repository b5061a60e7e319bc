"""A log in Kafka's layout can do all that a log does; both layouts may be in one log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c

from logstore import (
    CorruptRecordBatchError,
    LogConfig,
    LogStore,
    ReplicaOfflineError,
    UnsupportedFormatError,
)
from logstore.format.compression import CODEC_IDS
from logstore.format.kafka import record_batch as kafka
from support.samples import read_everything

CODECS = sorted(CODEC_IDS)


def config(**settings: Any) -> LogConfig:
    """Return a configuration with Kafka's layout and small segments."""
    given: dict[str, Any] = {"record_format": "kafka", "segment_bytes": 20_000}
    return LogConfig(**given | settings)


@pytest.mark.parametrize("codec", CODECS)
def test_a_log_in_kafkas_layout_does_what_a_log_does(tmp_path: Path, codec: str) -> None:
    """Append, extend, Arrow, Appender, point reads, time, truncation, retention, reopening."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config(compression_type=codec))
        assert log.append(b"one", key=b"k", headers=[("h", b"v"), ("h", None)]) == 0
        rng = random.Random(1)
        for number in range(20):
            values = [rng.randbytes(rng.randrange(80)) for _ in range(50)]
            log.extend(values, timestamps=range(number * 50, number * 50 + 50))
        table = pa.table(
            {"value": ["a", "b", None], "key": [b"1", None, b"3"], "timestamp": [1] * 3}
        )
        assert log.append_arrow(table) == range(1001, 1004)
        with log.appender() as appender:
            futures = [appender.append(b"small") for _ in range(10)]
        assert [future.result() for future in futures] == list(range(1004, 1014))
        log.append(None, durable=True)
        assert log[0].headers == (("h", b"v"), ("h", None)) and log[0].key == b"k"
        assert log[1003].value is None and log[1003].key == b"3" and log[1014].value is None
        assert log.offset_for_timestamp(500) == 0 and log[501].timestamp == 500
        records: list[Any] = [tuple(record[:5]) for record in log]
        assert [record[0] for record in records] == list(range(1015))
        log.truncate_to(725)
        log.append(b"again", timestamp=1)
        log.delete_records_before(300)
        records = [*records[300:725], (725, 1, None, b"again", ())]
        assert read_everything(log) == records and not log.verify()
        assert [log[record[0]][:5] for record in records[::40]] == records[::40]
        assert log[300:].to_arrow()["offset"].to_pylist() == list(range(300, 726))
    for read_only in (True, False):
        with LogStore.open(tmp_path, read_only=read_only) as store:
            assert read_everything(store["orders", 0]) == records
            assert store.verify().is_sound


def test_a_crash_is_recovered_from(tmp_path: Path) -> None:
    """Without indexes, the log is scanned, and a torn tail is cut."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config())
        for number in range(10):
            log.extend([b"%d" % number] * 30)
        path = Path(log.directory) / f"{0:020d}.log"
    for name in ("recovery-point-offset-checkpoint", ".clean-shutdown"):
        (tmp_path / name).unlink()
    for each in path.parent.glob("*index"):
        each.unlink()
    path.write_bytes(path.read_bytes()[:-5])
    with LogStore.open(tmp_path) as store:
        (entry,) = store.recovery_report.entries
        assert entry.cut_bytes > 0 and not entry.problems
        log = store["orders", 0]
        assert log.log_end_offset == 270 and log.append(b"goes on") == 270


def test_damage_in_the_middle_is_told_and_repaired(tmp_path: Path) -> None:
    """Whole batches stay readable; a repair writes a batch without records in the gap."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config())
        for number in range(10):
            log.extend([b"%d" % number] * 30)
        path = Path(log.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    data[4 * size + size // 2] ^= 4
    path.write_bytes(data)
    for each in path.parent.glob("*index"):
        each.unlink()
    with LogStore.open(tmp_path) as store:
        log = store["orders", 0]
        with pytest.raises(ReplicaOfflineError):
            log.append(b"no")
        with pytest.raises(CorruptRecordBatchError):
            list(log)
        assert log[200].value == b"6"
        report = store.repair("orders", 0)
        assert report.lost == [range(120, 150)]
        assert [r.offset for r in log] == [*range(120), *range(150, 300)]
        assert path.read_bytes()[16] == kafka.MAGIC and log.append(b"yes") == 300


def test_two_layouts_meet_in_one_log(tmp_path: Path) -> None:
    """Each segment has one layout; a change of the layout begins a new segment."""
    with LogStore.open(tmp_path) as store:
        ours = store.create("ours", 0)
        theirs = store.create("theirs", 0, config=config())
        theirs.extend([b"k%d" % number for number in range(40)])
        ours.extend([b"c%d" % number for number in range(40)])
        raw = theirs.read_raw(0)
        assert ours.append_encoded(raw + raw) == range(40, 120)
        assert ours.append(b"columns again") == 120
        assert theirs.append_encoded(ours.read_raw(0)) == range(40, 80)
        names = sorted(path.name for path in Path(ours.directory).glob("*.log"))
        assert [int(name[:20]) for name in names] == [0, 40, 120]
        expected = [record.value for record in ours]
        assert expected[39:41] == [b"c39", b"k0"] and len(expected) == 121
    with LogStore.open(tmp_path) as store:
        log = store["theirs", 0]
        assert log.append(b"rows again") == 80 and [r.value for r in log][-2:] == [
            b"c39",
            b"rows again",
        ]
        assert [record.value for record in store["ours", 0]] == expected
        assert store.verify().is_sound


def changed(data: bytes, place: int, number: bytes) -> bytes:
    """Change a field of a batch, and correct its checksum."""
    bad = bytearray(data)
    bad[place : place + len(number)] = number
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    return bytes(bad)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_regression_no_client_puts_what_nobody_reads_into_a_log(
    tmp_path: Path, codec_id: int
) -> None:
    """An unknown codec is refused in appends; on a broker's disk it is only reported."""
    plain = b"".join(kafka.frame(kafka.build_payload([b"v"], None, 5, None), 0, 0))
    bad = changed(plain, 22, bytes([codec_id]))
    with LogStore.open(tmp_path / "ours") as store:
        log = store.create("orders", 0, config=config())
        for append in (log.append_encoded, log.append_as_follower):
            with pytest.raises(ValueError, match=f"codec {codec_id}"):
                append(plain + bad)
        assert len(log) == 0
    (tmp_path / "t-0").mkdir()
    ended = changed(bad, 22, bytes([codec_id | 0x30]))  # a marker, in a codec that there is not
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(ended)
    with LogStore.open_kafka(tmp_path) as store:
        (problem,) = store["t", 0].verify()
        assert problem.reason == f"codec {codec_id} is unknown" and list(store["t", 0]) == []
        assert store["t", 0].read(0, isolation_level="read_committed") == []
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(bad)
    with (
        LogStore.open_kafka(tmp_path) as store,
        pytest.raises(UnsupportedFormatError, match=f"codec number {codec_id} of Kafka's batches"),
    ):
        list(store["t", 0])


@pytest.mark.parametrize("offset", [2**62, 2**63 - 3])
def test_regression_a_leader_cannot_use_up_all_offsets(tmp_path: Path, offset: int) -> None:
    """After the last offset of 64 bits, no store could be closed."""
    payload = kafka.build_payload([b"v"], None, 5, None).spanning(5)
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config())
        with pytest.raises(ValueError, match="larger than any offset that a log can have"):
            log.append_as_follower(b"".join(kafka.frame(payload, offset, 0)))
        assert log.append(b"own") == 0


def test_a_clients_batches_are_taken_verbatim(tmp_path: Path) -> None:
    """A batch gets new offsets and an epoch; its other bytes stay; damage is refused."""
    payload = kafka.build_payload([b"v"] * 100, None, 5, None, codec_id=4)
    raw = b"".join(kafka.frame(payload, 0, -1))
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config())
        log.append(b"first")
        log.leader_epoch = 3
        assert log.append_encoded(raw * 2) == range(1, 201)
        stored = log.read_raw(1)
        assert stored[16 : len(raw)] == raw[16:] and stored[12:16] == bytes([0, 0, 0, 3])
        for bad in (raw[:-1], raw + raw[:20], raw[:-1] + b"\x00", raw[:17] + b"\x00" + raw[18:]):
            with pytest.raises(ValueError, match="no whole batch"):
                log.append_encoded(bad)
        assert log.log_end_offset == 201
        follower = store.create("copy", 0, config=config())
        follower.append_as_follower(log.read_raw(0))
        assert read_everything(follower) == read_everything(log)
