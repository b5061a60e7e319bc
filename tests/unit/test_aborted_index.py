"""A reader of encoded committed batches gets each aborted transaction of its range."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import CorruptRecordBatchError, Log, LogConfig, LogStore
from logstore.format import layouts
from logstore.log.read import aborted_index, file_range, transactions
from logstore.log.read.cursor import Cursor
from logstore.log.read.transactions import CONTROL, TRANSACTIONAL
from unit.test_transactions import batch, marker

CONFIG = LogConfig(record_format="kafka", segment_bytes=1024)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogStore.open(tmp_path) as store:
        yield store.create("t", 0, config=CONFIG)


def visible(log: Log, offset: int) -> list[bytes | None]:
    """Read the committed values as a client does: it leaves out what the list names."""
    found: list[bytes | None] = []
    while True:
        taken, rows = log.read_committed_range(offset, 300)
        with taken:
            data = Path(f"/proc/self/fd/{taken.fileno()}").read_bytes()
            data = data[taken.position : taken.position + taken.size_bytes]
        if not data:
            return found
        waiting, aborted, at = sorted(rows, key=lambda row: row[1]), set[int](), 0
        while at < len(data):
            header = layouts.read_header(data, at)
            while waiting and waiting[0][1] <= header.last_offset:
                aborted.add(waiting.pop(0)[0])
            decoded = layouts.kafka_layout().decode_all(data, at, header)
            if header.attributes & CONTROL:
                aborted.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted):
                found += decoded.values.to_list()
            at += header.size_bytes
        offset = taken.next_offset


class Model:
    """What each record is: its producer, its value, and its fate (None: open)."""

    def __init__(self, log: Log, rng: random.Random) -> None:
        self.log, self.rng = log, rng
        self.rows: list[list[Any]] = []

    def append(self) -> None:
        producer_id, kind = self.rng.randrange(4), self.rng.random()
        if kind < 0.4:
            is_commit = self.rng.random() < 0.5
            self.log.append_encoded(marker(producer_id, is_commit))
            for row in self.rows:
                if row[0] == producer_id and row[2] is None:
                    row[2] = is_commit
            self.rows.append([-1, b"", False])
            return
        values = [self.rng.randbytes(8) for _ in range(self.rng.randrange(1, 4))]
        is_plain = kind > 0.9
        self.log.append_encoded(batch(-1, values, 0) if is_plain else batch(producer_id, values))
        self.rows += [[producer_id, one, True if is_plain else None] for one in values]

    def check(self) -> None:
        at = (one for one, row in enumerate(self.rows) if row[2] is None)
        stable = min(at, default=len(self.rows))
        start = self.rng.randrange(self.log.log_start_offset, len(self.rows) + 1)
        expected = [row[1] for row in self.rows[start : max(start, stable)] if row[2]]
        seen = visible(self.log, start)
        assert seen[len(seen) - len(expected) :] == expected  # a range begins with a whole batch
        assert len(seen) - len(expected) < 3


@pytest.mark.parametrize("seed", range(6))
def test_a_model_agrees_while_the_log_changes(log: Log, seed: int) -> None:
    """Appends, the end of the log is cut off, its start is deleted; reads come in between."""
    model = Model(log, random.Random(seed))
    for _ in range(300):
        kind = model.rng.random()
        if kind < 0.6:
            model.append()
        elif kind < 0.97:
            model.check()
        elif kind < 0.985 and model.rows:
            stable = log.last_stable_offset
            open_from = max(stable, len(model.rows) - model.rng.randrange(4))
            if all(row[2] is None for row in model.rows[open_from:]):
                log.truncate_to(open_from)
                del model.rows[log.log_end_offset :]
        elif model.rows:
            end = min(log.last_stable_offset, len(model.rows))
            log.delete_records_before(model.rng.randint(log.log_start_offset, end))
    model.check()


def race(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change the log once, between the read of a range and the search for its transactions."""
    real, changes = file_range.read_range, [change]

    def raced(*args: Any) -> Any:
        found = real(*args)
        if changes:
            changes.pop()()
        return found

    for module in (file_range, aborted_index):
        monkeypatch.setattr(module, "read_range", raced)


def test_a_range_whose_segment_is_removed_has_no_aborted_record(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its transaction in the list, a client would take the aborted records."""
    log.append_encoded(batch(7, [b"aborted"] * 3))
    log.append_encoded(marker(7, is_commit=False))
    while len(log._state.segments) < 4:
        log.append_encoded(batch(-1, [b"plain"], 0))
    race(monkeypatch, lambda: log.delete_records_before(log._state.segments[2].base_offset))
    with pytest.raises(LookupError):  # the records are gone
        log.read_committed_range(0)


def test_a_grown_segment_is_walked_only_from_its_old_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of committed records does not read the whole active segment again."""
    starts: list[int] = []

    class Noted(Cursor):
        def __init__(self, segment: Any, offset: int, environment: Any) -> None:
            starts.append(offset)
            super().__init__(segment, offset, environment)

    monkeypatch.setattr(transactions, "Cursor", Noted)
    ends = []
    for number in range(8):
        log.append_encoded(batch(7, [b"a"]))
        ends.append(log.log_end_offset)
        log.append_encoded(marker(7, is_commit=bool(number % 2)))
        assert len(log.aborted_transactions(0, log.log_end_offset)) == (number + 2) // 2
    assert starts == sorted(set(starts)) and len(starts) == 8


def test_a_transaction_that_may_be_aborted_is_not_shown(tmp_path: Path) -> None:
    """Its marker is in a damaged segment, and the last stable offset is known from a snapshot."""
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0, config=CONFIG)
        log.append_encoded(batch(7, [b"aborted"] * 3))
        while len(log._state.segments) < 2:
            log.append_encoded(batch(-1, [b"plain"], 0))
        log.append_encoded(marker(7, is_commit=False))
        while len(log._state.segments) < 5:
            log.append_encoded(batch(-1, [b"plain"], 0))
        path = Path(log._state.segments[1].log_path)
        data = bytearray(path.read_bytes())
        log.flush()
    data[100] ^= 1
    path.write_bytes(data)
    with LogStore.open(tmp_path) as store:
        log = store.log("t", 0)
        if log.last_stable_offset > 0:
            with pytest.raises(CorruptRecordBatchError):
                log.read_committed_range(0)
