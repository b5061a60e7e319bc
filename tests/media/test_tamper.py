"""Spoil every file that only helps or remembers, after a clean stop: no read may change.

Indexes, time indexes, checkpoints and the clean-shutdown marker; one at a time and all at once;
also after `delete_records_before`: what was deleted stays deleted.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from support.places import fast_directory
from support.samples import Observation, fill, observe

CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=256)
PARTITIONS = (("orders", 0), ("orders", 1))
HELPERS = ("*/*.index", "*/*.timeindex", "*/leader-epoch-checkpoint", "*-checkpoint")

Tamper = Callable[[Path, random.Random], None]


def zero(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def cut_one(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def cut_front(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[8:])


def extend_zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + bytes(rng.choice((1, 8, 12, 4096))))


def extend_self(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() * 2)


def extend_garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 300)))


def shuffle_bytes(path: Path, rng: random.Random) -> None:
    data = list(path.read_bytes())
    rng.shuffle(data)
    path.write_bytes(bytes(data))


def shuffle_entries(path: Path, rng: random.Random) -> None:
    data, size = path.read_bytes(), 12 if path.suffix == ".timeindex" else 8
    end = len(data) - (128 if path.suffix == ".index" else 0)
    entries = [data[i : i + size] for i in range(0, end, size)]
    rng.shuffle(entries)
    path.write_bytes(b"".join(entries) + data[end:])


def garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes() or b"x")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def swap(path: Path, rng: random.Random) -> None:
    """Put another file of the same kind in its place: of a segment, a partition or a log dir."""
    root = path.parents[2] if path.parent.name.startswith("orders") else path.parents[1]
    pattern = f"*{path.suffix}" if path.suffix else path.name
    others = sorted(p for p in root.rglob(pattern) if p != path)
    if others:
        other = rng.choice(others)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)


TAMPERS: list[Tamper] = [
    zero, empty, cut_one, cut, cut_front, extend_zeros, extend_self, extend_garbage,
    shuffle_bytes, shuffle_entries, garbage, flip, remove, swap,
]  # fmt: skip


class Stopped:
    """A store stopped in good order, what its readers saw, and a copy to spoil."""

    def __init__(self, base: Path, has_deleted: bool) -> None:
        self.pristine, self.root = base / "pristine", base / "spoiled"
        self.dirs = [self.root / "a", self.root / "b"]
        self.checks = 0
        with LogStore.open(self.dirs) as store:
            for (topic, partition), log_dir in zip(PARTITIONS, self.dirs, strict=True):
                log = store.create(topic, partition, log_dir=log_dir, config=CONFIG)
                fill(log, 60, seed=partition)
                log.truncate_to(log.log_end_offset - 37)
                fill(log, 15, seed=7 + partition)
                if has_deleted:
                    log.delete_records_before(log.log_end_offset // 2)
            self.seen = self.look(store)
        shutil.copytree(self.root, self.pristine)

    def helpers(self) -> list[Path]:
        found = {p for log_dir in self.dirs for pattern in HELPERS for p in log_dir.glob(pattern)}
        found |= {log_dir / ".clean-shutdown" for log_dir in self.dirs}
        return sorted(found)

    def look(self, store: LogStore) -> list[Observation]:
        return [observe(store.log(topic, partition)) for topic, partition in PARTITIONS]

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root)

    def check(self, what: str) -> None:
        """Hold what a reading process and the owner see against what was seen before."""
        self.checks += 1
        with LogStore.open(self.dirs, read_only=True) as store:
            assert self.look(store) == self.seen, f"read-only, {what}"
        with LogStore.open(self.dirs) as store:
            assert self.look(store) == self.seen, what
        if self.checks % 5 == 0:
            with LogStore.open(self.dirs) as store:
                assert self.look(store) == self.seen, f"opened again, {what}"


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "deleted"])
def stopped(request: pytest.FixtureRequest) -> Iterator[Stopped]:
    with fast_directory() as base:
        yield Stopped(base, request.param)


def test_the_store_has_files_to_spoil(stopped: Stopped) -> None:
    """There are indexes of several segments, checkpoints and markers: the suite is not empty."""
    names = [path.name for path in stopped.helpers()]
    assert len([name for name in names if name.endswith(".index")]) >= 6
    assert {".clean-shutdown", "recovery-point-offset-checkpoint"} <= set(names)
    assert all(path.exists() for path in stopped.helpers())


@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda tamper: tamper.__name__)
def test_one_spoiled_file_changes_no_read(stopped: Stopped, tamper: Tamper) -> None:
    """Reads are the same with any one helper file spoiled (each file in every other way)."""
    rng = random.Random(tamper.__name__)
    for path in stopped.helpers()[TAMPERS.index(tamper) % 2 :: 2]:
        stopped.restore()
        tamper(path, rng)
        stopped.check(f"{tamper.__name__} {path.relative_to(stopped.root)}")


@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda tamper: tamper.__name__)
def test_all_files_spoiled_at_once_change_no_read(stopped: Stopped, tamper: Tamper) -> None:
    """Reads are the same with every helper file spoiled in the same way."""
    rng = random.Random(tamper.__name__)
    stopped.restore()
    for path in stopped.helpers():
        tamper(path, rng)
    stopped.check(f"{tamper.__name__} all")


def test_mixed_spoiling_changes_no_read(stopped: Stopped) -> None:
    """Reads are the same with random files spoiled in random ways."""
    for seed in range(30):
        rng = random.Random(seed)
        stopped.restore()
        for path in rng.sample(stopped.helpers(), rng.randint(2, 12)):
            rng.choice(TAMPERS)(path, rng)
        stopped.check(f"mixed, seed {seed}")
