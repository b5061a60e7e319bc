"""Stage the end of a log: torn tails are cut and reported, damage before good data never is."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogStore
from support.places import fast_directory
from support.reader import batches
from support.staged import Staged


@pytest.fixture(scope="module")
def crashed() -> Iterator[Staged]:
    with fast_directory() as base:
        yield Staged(base, is_clean=False)


@pytest.fixture(scope="module")
def stopped() -> Iterator[Staged]:
    with fast_directory() as base:
        yield Staged(base, is_clean=True)


@pytest.mark.parametrize("size", [1, 7, 8, 17, 79, 80, 512, 4096, 100_000])
def test_a_tail_of_zeros_is_cut(crashed: Staged, size: int) -> None:
    """Zeros behind the last batch, as a crash leaves them, are cut and nothing else is."""
    crashed.restore()
    path = crashed.segments()[-1]
    path.write_bytes(path.read_bytes() + bytes(size))
    crashed.check_sound(cut_bytes=size)


@pytest.mark.parametrize("size", [1, 16, 17, 80, 100, 5000])
def test_garbage_behind_the_last_batch_is_cut(crashed: Staged, size: int) -> None:
    """A file longer than its batches loses what is no batch."""
    crashed.restore()
    path = crashed.segments()[-1]
    path.write_bytes(path.read_bytes() + random.Random(size).randbytes(size))
    crashed.check_sound(cut_bytes=size)


@pytest.mark.parametrize("size", [1, 80, 4096])
def test_a_file_longer_than_its_batches_after_a_clean_stop(stopped: Staged, size: int) -> None:
    """Bytes appended to the active segment while the store was stopped never become records."""
    for filler in (bytes(size), random.Random(size).randbytes(size)):
        stopped.restore()
        path = stopped.segments()[-1]
        path.write_bytes(path.read_bytes() + filler)
        stopped.check_sound()


def test_bytes_behind_a_sealed_segment_never_become_records(stopped: Staged) -> None:
    """Garbage, or a batch of another place, behind a sealed segment's end changes no read."""
    paths = stopped.segments()
    for extra in (bytes(96), b"garbage!" * 12, paths[3].read_bytes()):
        stopped.restore()
        paths[1].write_bytes(paths[1].read_bytes() + extra)
        with LogStore.open(stopped.root) as store:
            log = store.log("orders", 0)
            assert [r[:5] for r in log] == [stopped.records[o] for o in sorted(stopped.records)]


def test_a_torn_last_batch_is_cut_at_every_length(crashed: Staged) -> None:
    """The last batch, cut at every byte and with random bytes wrong, is a torn tail."""
    crashed.restore()
    path = crashed.segments()[-1]
    data = path.read_bytes()
    last = crashed.batches[path.name][-1]
    rng = random.Random(1)
    for size in range(last.size_bytes):
        torn = bytearray(data[: last.position + size])
        if size and rng.random() < 0.3:
            torn[last.position + rng.randrange(size)] ^= 1 << rng.randrange(8)
        path.write_bytes(torn)
        with LogStore.open(crashed.root) as store:
            (entry,) = [e for e in store.recovery_report.entries if e.partition == 0]
            assert (entry.state, entry.cut_bytes) == ("recovered", size) or size == 0
            assert not entry.problems
            assert store.log("orders", 0).log_end_offset == last.base_offset
        assert path.read_bytes() == data[: last.position]
        mark_crashed(crashed.root)


def mark_crashed(root: Path) -> None:
    """Make the next open believe in a crash."""
    (root / ".clean-shutdown").unlink(missing_ok=True)


def test_a_torn_batch_padded_with_zeros_is_cut(crashed: Staged) -> None:
    """A last batch of which later blocks never came (zeros in the file's size) is a torn tail."""
    path = crashed.segments()[-1]
    last = crashed.batches[path.name][-1]
    for kept in range(0, last.size_bytes - 8, 8):
        crashed.restore()
        data = path.read_bytes()
        lost = last.size_bytes - kept
        path.write_bytes(data[: last.position + kept] + bytes(lost))
        if data[last.position + kept :] == bytes(lost):
            continue
        crashed.check_sound(end=last.base_offset)


def test_a_bad_bit_beyond_the_recovery_point_before_good_batches_is_not_cut(
    crashed: Staged,
) -> None:
    """With whole batches behind it a bad batch is damage, however new: nothing is cut."""
    path = crashed.segments()[-1]
    assert len(crashed.batches[path.name]) >= 3
    for number in (0, len(crashed.batches[path.name]) - 2):
        crashed.restore()
        batch = crashed.batches[path.name][number]
        flip(path, batch.position + 40)
        crashed.check_damaged(crashed.offsets_of(path, number, number + 1))


def test_a_bad_bit_in_an_unflushed_older_segment_is_not_cut(crashed: Staged) -> None:
    """The last batch of a segment that others follow is no torn tail."""
    crashed.restore()
    path = crashed.segments()[-2]
    flip(path, crashed.batches[path.name][-1].position + 33)
    crashed.check_damaged(crashed.offsets_of(path, -1))


def test_a_bad_last_batch_below_the_recovery_point_is_not_cut(stopped: Staged) -> None:
    """What was flushed is never a torn tail: a bad last batch after a clean stop is damage."""
    stopped.restore()
    path = stopped.segments()[-1]
    flip(path, stopped.batches[path.name][-1].position + 75)
    stopped.check_damaged(stopped.offsets_of(path, -1), is_rot=True)


def test_a_flushed_tail_that_is_gone_is_named(stopped: Staged) -> None:
    """A last segment shorter than what was flushed is reported, never taken for the log's end."""
    stopped.restore()
    path = stopped.segments()[-1]
    last = stopped.batches[path.name][-1]
    with path.open("r+b") as file:
        file.truncate(last.position)
    with LogStore.open(stopped.root) as store:
        (entry,) = [e for e in store.recovery_report.entries if e.partition == 0]
        assert entry.problems, str(store.recovery_report)
        log = store.log("orders", 0)
        for offset in range(last.base_offset):
            if offset in stopped.records:
                assert log[offset][:5] == stopped.records[offset]


def flip(path: Path, position: int) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))


def test_the_staged_log_is_what_the_independent_reader_sees(crashed: Staged) -> None:
    """The oracle agrees with the engine about the undamaged log."""
    crashed.restore()
    found = [r for p in crashed.segments() for b in batches(p.read_bytes()) for r in b.records]
    assert [tuple(r) for r in found] == [crashed.records[o] for o in sorted(crashed.records)]
    shutil.rmtree(crashed.root)
