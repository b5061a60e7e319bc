"""Replicas in memory that are compared batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from broker.wire.error_codes import ErrorCode
from cluster.tools.comparison import Comparison, Difference
from cluster.tools.replica_reader import LogStartMovedError, ReplicaReader
from support.compacting import batch_of

STEPS_MAX = 1000
Stored = tuple[int, int, bytes]  # base offset, end offset, bytes


def batch(base: int, count: int, value: bytes = b"v", epoch: int = 0) -> Stored:
    """A batch of records with the keys of their offsets."""
    rows = [(b"%d" % (base + one), value, 1000 + base + one) for one in range(count)]
    return base, base + count, batch_of("kafka", base, rows, epoch=epoch)


class Replica:
    """A replica in memory, and how a broker answers about it."""

    def __init__(self, *batches: Stored, mark: int | None = None) -> None:
        self.batches = list(batches)
        self.start = 0
        self.mark = batches[-1][1] if mark is None and batches else mark or 0
        self.unreadable: set[int] = set()
        self.answer_batches = 3

    def fetch(self, offset: int) -> Any:
        """Answer with some batches, from the one with the offset on."""
        found = [one for one in self.batches if one[1] > offset][: self.answer_batches]
        code, records = ErrorCode.NONE, b"".join(one[2] for one in found)
        if not self.start <= offset <= self.batches[-1][1]:
            code, records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
        elif found and found[0][0] in self.unreadable:
            code, records = ErrorCode.CORRUPT_MESSAGE, b""
        elif any(one[0] in self.unreadable for one in found):
            at = next(n for n, one in enumerate(found) if one[0] in self.unreadable)
            records = b"".join(one[2] for one in found[:at])
        return SimpleNamespace(
            error_code=code, high_watermark=self.mark, log_start_offset=self.start, records=records
        )


def comparison(
    *replicas: Replica, start: int = 0, end: int | None = None, is_compacted: bool = False
) -> Comparison:
    end = min(one.mark for one in replicas) if end is None else end
    readers = {
        number: ReplicaReader(one.fetch, start, end) for number, one in enumerate(replicas, start=1)
    }
    return Comparison(readers, is_compacted=is_compacted)


def all_of(comparing: Comparison) -> list[Difference]:
    """Compare to the end."""
    found: list[Difference] = []
    for _ in range(STEPS_MAX):
        try:
            step = comparing.step()
        except LogStartMovedError as error:
            comparing.seek(error.offset)
            continue
        if step is None:
            return found
        found += step
    raise AssertionError("the comparison does not end")


def offsets(differences: Sequence[Difference]) -> list[tuple[int, str]]:
    return [(one.offset, one.kind) for one in differences]
