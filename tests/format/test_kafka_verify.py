"""Damage in each kind of file that a Kafka broker keeps is found, and nothing else is damage."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from logstore import LogStore, TopicPartition
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka import sound as kafka_sound
from logstore.format.kafka.files import ABORTED_ENTRY, INDEX_ENTRY, TIME_ENTRY
from logstore.format.prefix import walk
from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.scan import Scan
from logstore.log.segments.time_index import TimeIndex
from support.kafka_golden import log_dirs

META = "version=1\nnode.id=1\ncluster.id=x\n"
BATCHES, RECORDS, EVERY = 60, 4, 7


def found_in(places: Path | list[Path]) -> set[str]:
    """Give the names of the files in which something is wrong."""
    with LogStore.open_kafka(places) as store:
        problems = [problem for key in store for problem in store[key].verify()]
        files = [path for path, _ in store.recovery_report.damaged_files]
        return {Path(path).name for path in [*(problem.path for problem in problems), *files]}


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("*/transactions-0/*3.log", range(0, 905, 29)),
        ("*/transactions-0/*3.index", range(8)),
        ("*/transactions-0/*3.timeindex", range(24)),
        ("*/transactions-0/*3.txnindex", range(0, 68, 5)),
        ("*/transactions-0/*14.snapshot", range(0, 148, 9)),
        ("*/transactions-0/leader-epoch-checkpoint", range(0, 7, 2)),
        ("*/transactions-0/partition.metadata", range(22)),
        ("a/recovery-point-offset-checkpoint", range(4, 16)),
        ("a/replication-offset-checkpoint", range(4, 16)),
        ("a/log-start-offset-checkpoint", range(4)),
        ("a/cleaner-offset-checkpoint", range(4)),
    ],
)
def test_a_changed_byte_is_found_in_every_kind_of_file(
    tmp_path: Path, pattern: str, places: range
) -> None:
    """Each of these bytes, whichever of its lowest two bits is flipped, is told with its file."""
    dirs = log_dirs("stopped", tmp_path)
    assert found_in(dirs) == set()
    (path,) = [path for path in tmp_path.glob(pattern) if path.stat().st_size]
    data = path.read_bytes()
    for place in places:
        bad = bytearray(data)
        bad[place] ^= 1 + place % 2
        path.write_bytes(bad)
        assert found_in(dirs), (place, data[place], bad[place])


@pytest.mark.parametrize("name", ["transactions-0/*3.txnindex", "transactions-0/*3.timeindex"])
def test_a_file_that_was_cut_is_found(tmp_path: Path, name: str) -> None:
    """Between two entries or in one: what the log has more of is missing."""
    dirs = log_dirs("stopped", tmp_path)
    (path,) = tmp_path.glob(f"*/{name}")
    data = path.read_bytes()
    for size in (0, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        assert path.name in found_in(dirs), size
    path.write_bytes(data + bytes(len(data)))
    assert path.name in found_in(dirs)


def test_records_that_are_missing_at_the_end_are_told_by_the_checkpoints(tmp_path: Path) -> None:
    """A last segment that was cut between two batches, or lost, ends before it was known to end."""
    dirs = log_dirs("stopped", tmp_path)
    path = tmp_path / "a/transactions-0/00000000000000000003.log"
    data = path.read_bytes()
    path.write_bytes(data[: struct.unpack_from(">i", data, 8)[0] + 12])
    with LogStore.open_kafka(dirs) as store:
        (problem, *_) = store["transactions", 0].verify()
        assert (problem.offset, problem.end_offset) == (store["transactions", 0].log_end_offset, 14)
        assert "says that the log reached 14" in problem.reason
    path.unlink()
    assert path.with_name(f"{0:020d}.log").name in found_in(dirs)


# --- a log of many batches, with indexes as brokers write them ------------------------------------


class Made:
    """A broker's log dir with one partition, whose index files a test may change."""

    def __init__(self, place: Path, drop: Callable[[int], bool] = lambda number: False) -> None:
        (place / "meta.properties").write_text(META)
        self.place = place
        self.directory = place / "t-0"
        self.directory.mkdir()
        self.positions: list[int] = []
        self.lasts: list[int] = []
        latest: list[tuple[int, int]] = []
        data = b""
        for number in range(BATCHES):
            if drop(number):
                continue
            time = 1000 + number * 5 % 97
            payload = kafka.build_payload([b"v" * number] * RECORDS, None, time, None)
            self.positions.append(len(data))
            self.lasts.append((number + 1) * RECORDS - 1)
            latest.append(max([(time, -self.lasts[-1]), *latest[-1:]]))
            data += b"".join(kafka.frame(payload, number * RECORDS, 0))
        (self.directory / f"{0:020d}.log").write_bytes(data)
        payload = kafka.build_payload([b"next"], None, 5000, None)
        following = b"".join(kafka.frame(payload, BATCHES * RECORDS, 0))
        (self.directory / f"{BATCHES * RECORDS:020d}.log").write_bytes(following)
        self.rows = list(range(EVERY, len(self.lasts), EVERY))
        self.offsets = [(self.lasts[row], self.positions[row]) for row in self.rows]
        # The last entry is written when the segment grows no more.
        times = [(time, -last) for time, last in (latest[row - 1] for row in [*self.rows, 0])]
        self.stamps = [times[0]]
        for each in times[1:]:
            if each[0] > self.stamps[-1][0]:
                self.stamps.append(each)

    def check(self, offsets: list[tuple[int, int]], stamps: list[tuple[int, int]]) -> set[str]:
        """Write both index files, and say in which something is wrong."""
        base = self.directory / f"{0:020d}"
        base.with_suffix(".index").write_bytes(np.array(offsets, INDEX_ENTRY).tobytes())
        base.with_suffix(".timeindex").write_bytes(np.array(stamps, TIME_ENTRY).tobytes())
        return {Path(name).suffix for name in found_in(self.place)}


def test_indexes_as_brokers_write_them_are_sound(tmp_path: Path) -> None:
    """With the last offset of a batch, or before Kafka 2.0 the first, and after a compaction."""
    (tmp_path / "a").mkdir()
    made = Made(tmp_path / "a")
    assert made.check(made.offsets, made.stamps) == set()
    firsts = [(last - RECORDS + 1, position) for last, position in made.offsets]
    assert made.check(firsts, made.stamps) == set()
    two = [(made.lasts[row + 1], made.positions[row]) for row in made.rows[:-1]]
    assert made.check(two, made.stamps) == set()
    (tmp_path / "b").mkdir()
    made = Made(tmp_path / "b", drop=lambda number: number % 5 == 1)
    assert made.check(made.offsets, made.stamps) == set()


def test_entries_that_do_not_agree_are_found(tmp_path: Path) -> None:
    """A position, an offset, a timestamp, an order, a lost last entry, zeros, half an entry."""
    made = Made(tmp_path)
    good, stamps = made.offsets, made.stamps
    for number, (last, position) in enumerate(good):
        for wrong in ((last, position + 1), (last - 1, position), (last + 1, position), (0, 1)):
            bad = [*good[:number], wrong, *good[number + 1 :]]
            assert made.check(bad, stamps) == {".index"}, wrong
    for number, (time, offset) in enumerate(stamps):
        for stamp in ((time + 1, offset), (time - 1, offset), (time, 2**31)):
            bad = [*stamps[:number], stamp, *stamps[number + 1 :]]
            assert made.check(good, bad) == {".timeindex"}, stamp
    assert made.check(good, stamps[:-1]) == {".timeindex"}
    assert made.check([*good, (0, 0)], stamps) == {".index"}
    assert made.check([*good, (2**31, 2**31)], [*stamps, (0, 0)]) == {".index", ".timeindex"}
    made.check(good, stamps)
    path = made.directory / f"{0:020d}.index"
    path.write_bytes(path.read_bytes() + b"abc")
    assert found_in(tmp_path) == {path.name}


def test_damage_in_a_segment_is_not_told_again_by_its_indexes(tmp_path: Path) -> None:
    """Entries that lead into damaged bytes are no second piece of damage."""
    made = Made(tmp_path)
    made.check(made.offsets, made.stamps)
    path = made.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[made.offsets[2][1] + 70] ^= 1
    path.write_bytes(data)
    assert found_in(tmp_path) == {path.name}


def test_the_list_of_aborted_transactions_is_held_against_the_markers(tmp_path: Path) -> None:
    """One too many, of another producer, with another end, of another stable offset."""
    dirs = log_dirs("stopped", tmp_path)
    (path,) = tmp_path.glob("*/transactions-0/*3.txnindex")
    data = path.read_bytes()
    version, producer, first, last, stable = ABORTED_ENTRY.unpack_from(data)
    for row in (
        (version, producer + 1, first, last, stable),
        (version, producer, first - 1, last, stable),
        (version, producer, first, last - 1, stable),
        (version, producer, first, last, stable + 1),
        (version, producer, last + 1, last, stable),
    ):
        path.write_bytes(ABORTED_ENTRY.pack(*row) + data[ABORTED_ENTRY.size :])
        assert found_in(dirs) == {path.name}, row
    path.write_bytes(data + ABORTED_ENTRY.pack(version, producer, 12, 13, 14))
    assert found_in(dirs) == {path.name}


def test_leader_epochs_that_go_back_are_found(tmp_path: Path) -> None:
    """Kafka's checksum leaves them out; their order and the checkpoint tell."""
    dirs = log_dirs("stopped", tmp_path)
    path = tmp_path / "a/segments-0" / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[15] = 1
    path.write_bytes(data)
    with LogStore.open_kafka(dirs) as store:
        problems = store[TopicPartition("segments", 0)].verify()
    assert [problem.offset for problem in problems] == [3, 4]


# --- batches checked many at once -----------------------------------------------------------------


def told_of(dirs: list[Path], together_min: int) -> list[object]:
    """Give all that is found, and all that a scan keeps, with so many batches checked at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_sound, "TOGETHER_MIN", together_min)
        found: list[object] = []
        with LogStore.open_kafka(dirs) as store:
            found += [problem for key in store for problem in store[key].verify()]
        for path in sorted(path for each in dirs for path in each.glob("*/*.log")):
            index, times = OffsetIndex(), TimeIndex()
            scan = Scan(int(path.stem), index=index, time_index=times, interval_bytes=300)
            fd = os.open(path, os.O_RDONLY)
            try:
                found += [scan.run(fd, path.stat().st_size), index.to_bytes(), times.to_bytes()]
            finally:
                os.close(fd)
            found += [scan.position, scan.offset, scan.epochs, scan.max_timestamp, scan.batches]
            found += [scan.records, scan.last_position, scan.indexed_position, scan.magic]
    return found


def test_many_at_once_is_told_as_one_by_one(tmp_path: Path) -> None:
    """Whatever byte of a segment or an index is changed, in a log that lost batches too."""
    rng = random.Random(1)
    places: list[list[Path]] = [log_dirs("stopped", tmp_path)]
    for number, every in enumerate((10**9, 5)):
        place = tmp_path / f"made-{number}"
        place.mkdir()
        made = Made(place, drop=lambda batch, every=every: batch % every == 1)  # type: ignore[misc]
        made.check(made.offsets, made.stamps)
        places.append([place])
    assert told_of(places[1], 0) == told_of(places[1], 10**9)
    for dirs in places:
        paths = [path for each in dirs for path in each.glob("*/*.*index")]
        paths += [path for each in dirs for path in each.glob("*/*.log")]
        paths = sorted(path for path in paths if path.stat().st_size)
        for _ in range(15):
            path = rng.choice(paths)
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data))
            if path.suffix == ".log" and rng.random() < 0.7:  # headers are small
                at = rng.choice([span.position for span in walk(bytes(data))]) + rng.randrange(61)
            old, data[at] = data[at], rng.choice((0, 255, data[at] ^ 1, data[at] ^ 2))
            path.write_bytes(data)
            assert told_of(dirs, 0) == told_of(dirs, 10**9), (path, at, old, data[at])
            data[at] = old
            path.write_bytes(data)
