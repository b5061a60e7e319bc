"""A wrong largest timestamp in Kafka's layout is found and corrected, and no record is lost."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.format import layouts
from logstore.log.host import verify_segment
from logstore.log.recovery.report import Problem
from logstore.log.removal.retention import AHEAD_MS_MAX
from support.clock import NOW_MS, Clock
from support.hostile import kafka_batch, kafka_stored, plant, row

DAY_MS = 24 * 3600 * 1000
TOO_LOW, TOO_HIGH = 5, 2**63 - 1


def lying(max_timestamp: int, *deltas: int, codec: str = "none") -> bytes:
    """Make a batch of records at these distances from NOW_MS, whose header names another time."""
    rows = b"".join(row(b"v%d" % at, delta, at) for at, delta in enumerate(deltas))
    return kafka_batch(rows, len(deltas), codec, base_timestamp=NOW_MS, max_timestamp=max_timestamp)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Give a log of a store."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        yield store.create("t", 0, config=LogConfig(record_format="kafka"))


def values(log: Log) -> list[tuple[int, bytes | None, int]]:
    """Give what the records are."""
    return [(record.offset, record.value, record.timestamp) for record in log]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("claimed", [TOO_LOW, TOO_HIGH, NOW_MS + 99])
def test_regression_a_lying_largest_timestamp_is_found_and_corrected(
    log: Log, claimed: int, codec: str
) -> None:
    """`verify` loses no offset over it, `repair` no record, and time is found again."""
    log.append(b"before", timestamp=NOW_MS - 5)
    planted = plant(log, lying(claimed, 3, 100, 50, codec=codec))
    log.append(b"behind", timestamp=NOW_MS + 1)
    before = values(log)
    (problem,) = log.verify()
    assert f"is {NOW_MS + 100}, but the header says {claimed}" in problem.reason
    assert problem.offset == problem.end_offset == planted.start
    assert problem.end_position > problem.position > 0
    (damage,) = verify_segment(log, 0, log.log_end_offset)
    assert (damage.offset, damage.reason) == (planted.start, problem.reason)
    report = log.repair()
    assert report.lost == [] and len(report.quarantined) == 1
    assert log.verify() == [] and values(log) == before
    assert log.offset_for_timestamp(NOW_MS + 100) == planted.start + 1
    assert log.offset_for_timestamp(NOW_MS + 101) is None


def test_regression_records_are_found_where_the_header_says_none(log: Log) -> None:
    """A reader compares the records' own timestamps wherever the indexes lead it."""
    planted = plant(log, lying(TOO_LOW, 3, 100))
    log.append(b"late", timestamp=NOW_MS + 200)
    assert log.offset_for_timestamp(NOW_MS + 50) == planted.start + 1
    assert log.offset_for_timestamp(NOW_MS) == planted.start


def test_any_mixture_of_lies_is_corrected(log: Log) -> None:
    """Good batches, lies and damage in several segments: only damage costs records."""
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    lies: list[range] = []
    bad: list[range] = []
    kept: list[tuple[int, bytes | None, int]] = []
    for _ in range(60):
        deltas = [rng.randrange(-50, 1000) for _ in range(rng.randrange(1, 40))]
        codec = rng.choice(("none", "lz4", "gzip"))
        kind = rng.choice(("good", "good", "lie", "bad"))
        right = NOW_MS + max(deltas)
        claimed = right if kind != "lie" else rng.choice((TOO_LOW, TOO_HIGH, right + 1, right - 1))
        data = lying(claimed, *deltas, codec=codec)
        if kind == "bad":
            data = kafka_stored(b"\x07" * 40, 3)
        offsets = plant(log, data)
        {"lie": lies, "bad": bad, "good": []}[kind].append(offsets)
        if kind != "bad":
            kept += [
                (offsets.start + at, b"v%d" % at, NOW_MS + delta) for at, delta in enumerate(deltas)
            ]
    problems = log.verify()
    assert [problem.offset for problem in problems] == sorted(each.start for each in lies + bad)
    assert sum(map(lost, problems)) == sum(map(len, bad))
    report = log.repair()
    assert sum(map(len, report.lost)) == sum(map(len, bad))
    assert log.verify() == [] and values(log) == kept


def lost(problem: Problem) -> int:
    """Count the offsets that a problem costs."""
    return problem.end_offset - problem.offset


@pytest.mark.parametrize("claimed", [TOO_HIGH, NOW_MS + AHEAD_MS_MAX + 10 * DAY_MS])
def test_regression_a_timestamp_that_cannot_be_keeps_no_segment(
    tmp_path: Path, claimed: int
) -> None:
    """The last write to the file counts instead; a time that may be meant is believed."""
    clock = Clock()
    config = LogConfig(record_format="kafka", segment_bytes=256, retention_ms=7 * DAY_MS)
    with LogStore.open(tmp_path, clock=clock, admin_socket=False) as store:
        log = store.create("t", 0, config=config)
        plant(log, lying(claimed, 0))
        log.append(b"due" * 80, timestamp=NOW_MS + 300 * DAY_MS)
        log.append(b"active" * 40)
        for name in os.listdir(log.directory):
            if name.endswith(".log"):
                os.utime(Path(log.directory, name), (NOW_MS / 1000, NOW_MS / 1000))
        clock.ms += 6 * DAY_MS
        assert log.apply_retention() == 0
        clock.ms += 2 * DAY_MS
        assert log.apply_retention() == 1
        assert [record.value for record in log] == [b"due" * 80, b"active" * 40]
        clock.ms += 300 * DAY_MS
        assert log.apply_retention() == 1


def test_a_corrected_header_says_no_more_than_it_said() -> None:
    """All other fields and the records are the same bytes."""
    data = lying(TOO_HIGH, 1, 2)
    mended = layouts.with_max_timestamp(data, NOW_MS + 2)
    assert mended[:17] == data[:17] and mended[21:35] == data[21:35] and mended[43:] == data[43:]
    assert layouts.fault(mended, 0, 0) is None
    assert layouts.read_header(mended, 0).max_timestamp == NOW_MS + 2
