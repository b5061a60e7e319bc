"""Damage segments that Kafka wrote, and read them: told or harmless, never a wrong record.

    PYTHONPATH=src:tests:. python tests/media/kafka_damage.py --count 10000 --seed 1

What no reader can tell, because Kafka's checksum leaves it out or nothing else records it:

- the leader epoch of a batch (which changes no record);
- the base offset of a batch, where no batch follows it, or where what follows leaves a gap that
  compaction might have made: its records then come at other offsets, and only at other offsets;
- a file that is cut exactly between two batches.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from logstore import CorruptRecordBatchError, LogStore, LogStoreError, TopicPartition
from logstore.format.prefix import walk
from support.kafka_golden import GOLDEN, Given, given

META = "version=1\nnode.id=1\ncluster.id=x\n"


class Target(NamedTuple):
    """One partition that Kafka wrote: its files, where their batches begin, what it holds."""

    key: TopicPartition
    place: Path
    logs: dict[str, bytes]
    expected: Given


class Damage(NamedTuple):
    """What was done to which file, and whether it can be told at all."""

    text: str
    name: str
    data: bytes
    shifts_offsets: bool
    is_clean_cut: bool


def targets() -> list[Target]:
    """Give every partition of the golden directories that a consumer was given."""
    found = []
    for key, expected in given("stopped").items():
        (place,) = (GOLDEN / "stopped").glob(f"*/{key}")
        logs = {path.name: path.read_bytes() for path in sorted(place.glob("*.log"))}
        found.append(Target(key, place, logs, expected))
    return found


def damaged(target: Target, rng: random.Random) -> Damage:
    """Flip a byte or bit, cut, or zero a stretch of one segment."""
    name = rng.choice([name for name, data in target.logs.items() if data])
    data = target.logs[name]
    starts = [span.position for span in walk(data)]
    at = rng.randrange(len(data))
    if rng.random() < 0.4:  # headers are small, and most of what can go wrong is in them
        at = min(rng.choice(starts) + rng.randrange(61), len(data) - 1)
    kind = rng.choice(("bit", "byte", "cut", "zeros"))
    bad = bytearray(data)
    touched = range(at, at + 1)
    if kind == "bit":
        bad[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        bad[at] = rng.randrange(256)
    elif kind == "cut":
        del bad[at:]
    else:
        touched = range(at, min(at + rng.randrange(1, 200), len(data)))
        bad[at : touched.stop] = bytes(len(touched))
    changed = {place for place in touched if kind != "cut" and bad[place] != data[place]}
    in_offset = {s + number for s in starts for number in range(8)}
    return Damage(
        f"{kind} of {target.key}/{name} at {at}, {len(touched)} bytes",
        name,
        bytes(bad),
        bool(changed & in_offset),
        kind == "cut" and at in starts,
    )


def look(place: Path, key: TopicPartition) -> tuple[list[Any], list[Any], bool]:
    """Read everything in both isolation levels; say whether anything was told."""
    with LogStore.open_kafka(place) as store:
        log = store[key]
        is_told = log.recovery.cut_bytes > 0
        found: list[list[Any]] = []
        for level in ("read_uncommitted", "read_committed"):
            rows: list[Any] = []
            found.append(rows)
            try:
                for batch in log.read_batches(isolation_level=level):
                    rows += (tuple(record[:5]) for record in batch)
            except CorruptRecordBatchError:
                is_told = True
        for row in found[0][:: max(len(found[0]) // 3, 1)]:
            try:
                assert log[row[0]][:5] == row
            except LogStoreError:
                is_told = True
        return found[0], found[1], is_told or bool(log.verify())


def check(target: Target, damage: Damage, place: Path) -> str:
    """Put the damage in place, read, and say what came of it; AssertionError if it went wrong."""
    (place / str(target.key) / damage.name).write_bytes(damage.data)
    try:
        uncommitted, committed, is_told = look(place, target.key)
    except LogStoreError:
        return "refused"
    finally:
        (place / str(target.key) / damage.name).write_bytes(target.logs[damage.name])
    expected = target.expected
    for found, wanted in (uncommitted, expected.uncommitted), (committed, expected.committed):
        if damage.shifts_offsets:
            contents = {row[1:] for row in expected.uncommitted}
            assert all(row[1:] in contents for row in found), damage.text
        else:
            assert set(found) <= set(wanted), damage.text
            assert [row[0] for row in found] == sorted(row[0] for row in found), damage.text
    is_same = uncommitted == expected.uncommitted and committed == expected.committed
    if not is_same and not is_told:
        assert damage.shifts_offsets or damage.is_clean_cut, damage.text
        return "cannot be told"
    return "told" if is_told else "harmless"


def run(count: int, seed: int, place: Path) -> Counter[str]:
    """Damage so many times; give how often what came of it."""
    rng, outcomes = random.Random(seed), Counter[str]()
    every = targets()
    (place / "meta.properties").write_text(META)
    for target in every:
        shutil.copytree(target.place, place / str(target.key))
    for _ in range(count):
        target = rng.choice(every)
        outcomes[check(target, damaged(target, rng), place)] += 1
    return outcomes


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(dict(run(options.count, options.seed, Path(place))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
