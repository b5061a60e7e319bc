"""Append records of few keys to a log, and hold a compacted log against a dictionary."""

from __future__ import annotations

import random
from collections.abc import Iterable

from logstore import Log, LogConfig
from logstore.format.batch import Record

COMPACTED = LogConfig(segment_bytes=2000, index_interval_bytes=256, cleanup_policy="compact")


class Keyed:
    """What was appended to a log, and what of it has to be left.

    Attributes:
        appended: all records that are not truncated, by offset: key and value.
    """

    def __init__(self, log: Log, seed: int = 0, key_count: int = 20) -> None:
        self.log, self.rng, self.key_count = log, random.Random(seed), key_count
        self.appended: dict[int, tuple[bytes | None, bytes | None]] = {}
        self.number = 0

    def row(self) -> tuple[bytes, bytes | None]:
        self.number += 1
        value = b"%d." % self.number + bytes(self.rng.randrange(60))
        key = b"key %d" % self.rng.randrange(self.key_count)
        return key, None if self.rng.random() < 0.1 else value

    def append(self, count: int) -> None:
        """Append so many batches of one or several records, and flush."""
        for _ in range(count):
            rows = [self.row() for _ in range(self.rng.choice((1, 1, 3)))]
            offsets = self.log.extend([v for _, v in rows], keys=[k for k, _ in rows])
            self.appended.update(zip(offsets, rows, strict=True))
        self.log.flush()

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.appended = {at: row for at, row in self.appended.items() if at < offset}

    def state(self) -> dict[bytes | None, bytes]:
        """Give what a reader of all records has to know at the end."""
        known = {key: value for _, (key, value) in sorted(self.appended.items())}
        return {key: value for key, value in known.items() if value is not None}

    def check(self, records: Iterable[Record] | None = None) -> None:
        """Nothing is read that was not appended; the latest records of all keys are there."""
        state: dict[bytes | None, bytes | None] = {}
        last = -1
        for record in self.log if records is None else records:
            assert self.appended[record.offset] == (record.key, record.value)
            assert record.offset > last
            last, state[record.key] = record.offset, record.value
        assert {key: value for key, value in state.items() if value is not None} == self.state()

    def check_compacted(self, end_offset: int) -> None:
        """No two records of one key are left before an offset."""
        self.check()
        keys = [record.key for record in self.log if record.offset < end_offset]
        assert len(keys) == len(set(keys))
        assert self.log.verify() == []
