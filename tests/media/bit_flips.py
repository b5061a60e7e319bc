"""Flip bits of a 64 KiB segment, one at a time, and read the log after each.

No wrong byte may ever be served: a read gives what was appended, or raises. Four readers look:

    view        a fresh reader beside the owner: no lock, no recovery
    again       the same reader, made to forget all that it has checked: cheap enough for all bits
    stopped     the owner, after a clean stop
    crashed     the owner after a crash, with nothing flushed: recovery looks at every byte

Run as a program for all bits (524,288 and some more): `python tests/media/bit_flips.py --every 1`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import CorruptionError, LogConfig, LogStore, LogStoreError, StoreConfig
from logstore.disk.log_dir import LogDir
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.log.recovery.open_log import open_log
from logstore.log.view import open_view
from support.places import fast_directory
from support.samples import sample_values

SEGMENT_BYTES = 64 * 1024
ROOM_BYTES = 16 * 1024  # more than any batch has, so that the segment has its 64 KiB when it rolls
OWNERS = ("stopped", "crashed")
JOBS = 16


class ServedWrongly(AssertionError):
    """Says that a read gave what was not appended, or lost what is whole."""


class Place(NamedTuple):
    """Where a batch begins: its byte in the segment, and its first offset."""

    position: int
    base_offset: int


class Flips:
    """A log of one or two segments, the first of 64 KiB, whose bits are flipped one by one."""

    def __init__(
        self, base: Path, seed: int = 1, layout: str = "columnar", *, is_last: bool = False
    ) -> None:
        """Fill the log; `is_last` leaves out the second segment."""
        self.root = base
        config = LogConfig(segment_bytes=SEGMENT_BYTES + ROOM_BYTES, record_format=layout)
        rng = random.Random(seed)
        with LogStore.open(base) as store:
            log = store.create("orders", 0, config=config)
            path = base / "orders-0" / f"{0:020d}.log"
            while path.stat().st_size < SEGMENT_BYTES if is_last else not has_two(path.parent):
                append_one(log, rng)
            self.records = list(log)
        self.path = base / "orders-0" / f"{0:020d}.log"
        self.pristine = self.path.read_bytes()
        self.places = places(self.pristine)
        self.helpers = {p: p.read_bytes() for p in base.rglob("*") if p.is_file()}
        self.outcomes: Counter[str] = Counter()
        self.reader: Any = None
        self.fd = os.open(self.path, os.O_RDWR)

    def open(self, reader: str) -> Any:
        """Open the log afresh, without a store around it: 20,000 of these must be cheap."""
        if reader == "again":
            return self.forgetful()
        log_dir = LogDir(str(self.root), read_only=reader == "view")
        environment = LogEnvironment(StoreConfig())
        if reader == "view":
            return open_view(log_dir, "orders-0", environment)
        is_clean = reader == "stopped"
        point = self.records[-1][0] + 1 if is_clean else 0
        return Log(open_log(log_dir, "orders-0", environment, point, None, is_clean=is_clean))

    def forgetful(self) -> Any:
        """Give a reader that knows nothing of the bytes any more."""
        if self.reader is None:
            self.reader = self.open("view")
        for segment in self.reader._state.segments:
            segment.forget(self.reader._state.environment)
            segment._verified = bytearray()
            segment.is_checked = False
        return self.reader

    def flip(self, bit: int, reader: str) -> str:
        """Flip one bit, read everything, put it back; tells whether it was detected."""
        at, mask = divmod(bit, 8)
        os.pwrite(self.fd, bytes([self.pristine[at] ^ 1 << mask]), at)
        try:
            outcome = self.look(reader, at)
        except ServedWrongly as error:
            raise ServedWrongly(f"bit {bit}, byte {at}, {reader}: {error}") from None
        finally:
            os.pwrite(self.fd, self.pristine[at : at + 1], at)
            if reader in OWNERS:
                self.put_back()
        self.outcomes[f"{reader} {outcome}"] += 1
        return outcome

    def put_back(self) -> None:
        """Undo whatever an owner changed."""
        for path in self.path.parent.iterdir():
            if path not in self.helpers:
                path.unlink()
        for path, data in self.helpers.items():
            if path.parent == self.path.parent and path.stat().st_size != len(data):
                path.write_bytes(data)

    def look(self, reader: str, at: int) -> str:
        try:
            log = self.open(reader)
        except LogStoreError:
            return "refused"
        is_named = reader in OWNERS and bool(log.recovery.problems)
        is_behind = any(b.position > at for b in self.places) or has_two(self.path.parent)
        if is_behind and self.path.stat().st_size != len(self.pristine):
            raise ServedWrongly("a segment was cut, although whole batches follow the damage")
        found: list[Any] = []
        try:
            for batch in log.read_batches(0):
                found += batch.records(log.topic, log.partition)
        except CorruptionError:
            self.check(found)
            self.look_behind(log, at)
            return "raised"
        finally:
            if reader in OWNERS:
                log.close(flush=False)
        self.check(found)
        if len(found) != len(self.records):
            raise ServedWrongly(f"{len(found)} of {len(self.records)} records, and no error")
        return "named" if is_named else "harmless"

    def check(self, found: list[Any]) -> None:
        if found != self.records[: len(found)]:
            raise ServedWrongly("a record differs from the one appended")

    def look_behind(self, log: Any, at: int) -> None:
        """What stands behind a damaged batch is read as before."""
        behind = [b for b in self.places if b.position > at][:1]
        if not behind:
            return
        offset = behind[0].base_offset
        found = log.read(offset, max_records=1)
        if found != [self.records[offset]]:
            raise ServedWrongly(f"offset {offset}, behind the damage, reads {found}")


def places(data: bytes) -> list[Place]:
    """Step over whole batches; their first 12 bytes are the same in both layouts."""
    found: list[Place] = []
    position = 0
    while position < len(data):
        base_offset, size = struct.unpack_from(">qi", data, position)
        found.append(Place(position, base_offset))
        position += 12 + size
    return found


def has_two(directory: Path) -> bool:
    """Report whether a log has a second segment."""
    return len(list(directory.glob("*.log"))) > 1


def append_one(log: Any, rng: random.Random) -> None:
    """Append a batch of a shape drawn at random; every part of the format occurs."""
    now, shape, count = 1_700_000_000_000 + rng.randrange(10**6), rng.random(), rng.randint(2, 90)
    if shape < 0.3:
        log.append(rng.randbytes(rng.randrange(200)), timestamp=now)
    elif shape < 0.5:
        log.append(b"v" * rng.randrange(9), key=b"k", timestamp=now, headers=(("h", b"1"),))
    elif shape < 0.8:
        log.extend([rng.randbytes(100) for _ in range(count)], timestamps=[now] * count)
    else:
        values = sample_values(rng, count)
        log.extend(values, keys=values[::-1], timestamps=[now + rng.randrange(99) for _ in values])


def run(job: tuple[int, int, str, bool]) -> dict[str, int]:
    """Flip every n-th bit, from one on, in a log of this process's own."""
    start, step, layout, is_last = job
    with fast_directory() as base:
        flips = Flips(base, layout=layout, is_last=is_last)
        for number, bit in enumerate(range(start, 8 * len(flips.pristine), step)):
            flips.flip(bit, "again")
            if number % 32 == 0:
                flips.flip(bit, "view")
                flips.flip(bit, OWNERS[number // 32 % 2])
        return dict(flips.outcomes)


def main() -> int:
    """Flip all bits, or every n-th, on all cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    parts = [(start * every, JOBS * every) for start in range(JOBS)]
    kinds = itertools.product(("columnar", "kafka"), (False, True))
    jobs = [(*part, *kind) for kind in kinds for part in parts]
    total: Counter[str] = Counter()
    with multiprocessing.Pool() as pool:
        for done, outcomes in enumerate(pool.imap_unordered(run, jobs), 1):
            total.update(outcomes)
            print(f"media: {done} of {len(jobs)} parts, {sum(total.values())} reads", flush=True)
    print(json.dumps(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
