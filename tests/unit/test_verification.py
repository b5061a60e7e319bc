"""Check whole logs and single segments, with damage at known places."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.log.recovery.verification import SegmentCheck, SegmentDamage, verify, verify_segment
from support.reader import batches

COUNT = 60
SMALL = LogConfig(segment_bytes=2048)


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return a flushed log of several segments, with one record in each batch."""
    log = store.create("orders", 0, config=SMALL)
    for number in range(COUNT):
        log.append(b"%02d" % number * 20)
    log.flush()
    assert len(files_of(log)) > 3
    return log


def files_of(log: Log) -> dict[int, Path]:
    """Return the segment files by base offset."""
    return {int(p.stem): p for p in sorted(Path(log.directory).glob("*.log"))}


def places_of(log: Log) -> dict[int, tuple[Path, int, int]]:
    """Return the file, position and end of each batch, by offset, read from the bytes."""
    found = {}
    for path in files_of(log).values():
        for batch in batches(path.read_bytes()):
            end = batch.position + batch.size_bytes
            found[batch.base_offset] = (path, batch.position, end)
    return found


def rot(place: tuple[Path, int, int]) -> None:
    """Flip a bit in the middle of a batch."""
    path, position, end = place
    data = bytearray(path.read_bytes())
    data[(position + end) // 2] ^= 4
    path.write_bytes(data)


def test_a_sound_log_has_no_problem_and_is_read_whole(log: Log) -> None:
    """The sum of the progress is the size of the log."""
    seen: list[int] = []
    assert verify(log._state, seen.append) == []
    assert sum(seen) == log.size_bytes == sum(p.stat().st_size for p in files_of(log).values())


@pytest.mark.parametrize("seed", range(8))
def test_each_damaged_stretch_is_told_with_its_place(log: Log, seed: int) -> None:
    """A problem has the file, the bytes and the lost offsets; other records are not affected."""
    places = places_of(log)
    assert sorted(places) == list(range(COUNT))
    rng = random.Random(seed)
    lost = set(rng.sample(range(COUNT), rng.randint(1, 9)))
    for offset in lost:
        rot(places[offset])
    told = set()
    for problem in log.verify():
        path, position, _ = places[problem.offset]
        assert (Path(problem.path), problem.position) == (path, position)
        told |= set(range(problem.offset, problem.end_offset))
    assert told == lost


def test_a_segment_that_is_gone_is_a_problem(store: LogStore, log: Log) -> None:
    """The problem has the missing offsets and their place."""
    bases = sorted(files_of(log))
    store.close()
    with LogStore.open(log.log_dir, read_only=True) as reader:
        for path in Path(log.directory).glob(f"{bases[1]:020d}.*"):
            path.unlink()
        (problem, *_) = reader["orders", 0].verify()
    assert (problem.offset, problem.end_offset) == (bases[1], bases[2])
    assert problem.reason == (
        f"the segment ends at offset {bases[1]}, but the next segment begins at offset {bases[2]}"
    )


@pytest.mark.parametrize("budget_bytes", [1, 100, 500, 1 << 20])
def test_a_check_in_steps_finds_what_one_in_a_go_finds(log: Log, budget_bytes: int) -> None:
    """Consecutive damaged batches are reported one by one, with steps of any size."""
    base = sorted(files_of(log))[1]
    places = places_of(log)
    lost = [base, base + 2, base + 3, base + 4]
    for offset in lost:
        rot(places[offset])
    wanted = [(places[offset][1], offset) for offset in lost]
    at_once = verify_segment(log._state, base, COUNT)
    assert [(one.position, one.offset) for one in at_once] == wanted
    check = SegmentCheck(log._state, base, COUNT)
    steps = 0
    while not check.is_done:
        check.run(budget_bytes)
        steps += 1
    assert check.found == at_once
    assert (steps > 1) is (budget_bytes < 1000)
    assert check.run() == 0, "a check that is done reads nothing"


def test_a_segment_that_is_not_there_any_more_is_done(log: Log) -> None:
    """Retention or a truncation removed the segment: there is no damage."""
    base = sorted(files_of(log))[1]
    begun = SegmentCheck(log._state, base, COUNT)
    begun.run(1)
    log.delete_records_before(COUNT - 1)
    begun.run()
    late = SegmentCheck(log._state, base, COUNT)
    assert (begun.is_done, begun.found) == (True, [])
    assert (late.is_done, late.found, late.path) == (True, [], "")


@pytest.mark.parametrize("is_flushed", [True, False])
def test_the_last_bytes_are_damage_only_below_what_was_flushed(log: Log, is_flushed: bool) -> None:
    """After the flushed part, a batch may be being written, or cut by a crash."""
    base, path = sorted(files_of(log).items())[-1]
    _, position, end = places_of(log)[COUNT - 1]
    with path.open("r+b") as file:
        file.truncate(end - 3)
    found = verify_segment(log._state, base, COUNT if is_flushed else COUNT - 1)
    assert [(one.position, one.offset) for one in found] == [(position, COUNT - 1)] * is_flushed
    assert all(isinstance(one, SegmentDamage) for one in found)
