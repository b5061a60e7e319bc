"""Read beside an owner that truncates, retains and deletes; a wrong record ends it with an error.

    python second_reader.py LOG_DIR LEDGER_FILE READS SEED

Every value names the offset and the generation (one more with each truncation) of its record. The
owner writes each finished truncation and deletion into a ledger. A read that began after the
ledger said "generation 7 ended at offset 90" must not see a record of generation 7 at 90 or later.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import LogStore, OffsetOutOfRangeError, UnknownPartitionError

ENTRY = struct.Struct("<qq")  # the generation that ended, the first offset that it lost
TAIL_SECONDS = 0.01
RECORDS_MIN = 1000
HANG_SECONDS = 240


def value_of(offset: int, generation: int) -> bytes:
    """Make a value that names its record; its size follows from both."""
    return b"%d|%d|" % (offset, generation) + b"~" * ((offset * 7 + generation) % 180)


class Reader:
    """Reads in every way and judges each record."""

    def __init__(self, log_dir: str, ledger: str, seed: int) -> None:
        self.log_dir, self.rng = log_dir, random.Random(seed)
        self.ledger = os.open(ledger, os.O_RDONLY)
        self.known: list[tuple[int, int]] = []
        self.counts: Counter[str] = Counter()

    def learn(self) -> None:
        """Take in what the ledger says by now."""
        data = os.pread(self.ledger, 1 << 20, ENTRY.size * len(self.known))
        self.known += ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])

    def judge(self, records: list[tuple[int, bytes]], wanted: int | None = None) -> None:
        """Check what a read gave that began after `learn`."""
        last_offset, last_generation = -1, -1
        for offset, value in records:
            at, generation, _ = value.split(b"|")
            assert int(at) == offset, f"offset {offset} holds {value[:30]!r}"
            assert value == value_of(offset, int(generation)), f"{offset}: {value!r}"
            assert offset > last_offset and int(generation) >= last_generation, (
                f"{offset} of generation {generation!r} behind {last_offset} of {last_generation}"
            )
            last_offset, last_generation = offset, int(generation)
            for ended, lost in self.known:
                assert offset < lost or int(generation) > ended, (
                    f"{offset} of generation {generation!r}, which lost {lost} and up before"
                )
        if wanted is not None and records:
            assert records[0][0] == wanted
        self.counts["records"] += len(records)

    def once(self, log: Any) -> None:
        """Read in one way, drawn at random."""
        self.learn()
        start, end = log.log_start_offset, log.log_end_offset
        if end <= start:
            return
        offset = self.rng.randrange(start, end)
        way = self.rng.randrange(6)
        self.counts[f"way {way}"] += 1
        if way == 0:
            self.judge([(r.offset, r.value) for r in log.read(offset, max_bytes=9000)], offset)
        elif way == 1:
            self.judge([(offset, log[offset].value)], offset)
        elif way == 2:
            for batch in log.read_batches(offset, zero_copy=self.rng.random() < 0.5):
                self.judge(list(zip(batch.offsets.tolist(), batch.values.to_list(), strict=True)))
                if self.rng.random() < 0.1:
                    break
                self.learn_nothing_new()
        elif way == 3:
            self.judge([(r.offset, r.value) for r in log[offset : offset + 50]])
        elif way == 4:
            tail = log.tail(max(start, end - 5), timeout=TAIL_SECONDS)
            self.judge([(r.offset, r.value) for r, _ in zip(tail, range(20), strict=False)])
        else:
            found = log.offset_for_timestamp(self.rng.randrange(1, 1 << 20))
            assert found is None or found >= 0

    def learn_nothing_new(self) -> None:
        """A long read is judged by what was known when it began."""

    def run(self, reads: int) -> None:
        """Read so many times, and on until enough records were seen."""
        while self.counts["reads"] < reads or self.counts["records"] <= RECORDS_MIN:
            with LogStore.open(self.log_dir, read_only=True) as store:
                self.counts["opens"] += 1
                for _ in range(self.rng.randrange(1, 120)):
                    self.counts["reads"] += 1
                    try:
                        self.once(store.log("orders", 0))
                    except OffsetOutOfRangeError:
                        self.counts["out of range"] += 1
                    except UnknownPartitionError:
                        self.counts["unknown"] += 1
                        break


def main() -> int:
    log_dir, ledger, reads, seed = sys.argv[1:]
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)  # a read without an end
    reader = Reader(log_dir, ledger, int(seed))
    reader.run(int(reads))
    print(json.dumps(reader.counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
