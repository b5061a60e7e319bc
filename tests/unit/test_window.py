"""If compaction meets damaged batches, it raises an error with their place."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from logstore import CorruptRecordBatchError
from logstore.errors import RecordExpansionError, UnsupportedFormatError
from logstore.format import layouts
from logstore.format.kafka import record_batch as kafka
from logstore.format.steps import run
from logstore.log.compaction.cleaner import Cleaner, note
from logstore.log.compaction.latest_offsets import LatestOffsets
from logstore.log.compaction.rules import Rules
from logstore.log.compaction.window import CHUNK_BATCHES, CHUNK_RECORDS, STEP_BATCHES, Window
from support.compacting import NOW, ROOM, batch_of, clean, rows_of, windows

LAYOUTS = [("columnar", 0), ("columnar", 4), ("kafka", 0), ("kafka", 1)]


def log_of(layout: str, codec: int) -> list[bytes]:
    """Make a log in which every batch has records that stay and records that go."""
    keys = [b"%d" % (n % 7) for n in range(20)]
    return [
        batch_of(layout, 20 * n, [(key + b"%d" % n, b"v", NOW) for key in keys], codec=codec)
        for n in range(4)
    ]


def both(window: Window) -> list[Callable[[], Any]]:
    """Return the two uses of a window: noting its keys, and cleaning it."""
    empty = LatestOffsets(0, 1 << 16)
    empty.end_offset = 1 << 20
    empty.seal()
    noting = LatestOffsets(0, 1 << 16)
    dirty = Rules(LatestOffsets(1 << 20, 1 << 16), now_ms=NOW, delete_retention_ms=0)
    dirty.latest.seal()
    return [
        lambda: run(note(noting, window, lambda _: False)),
        lambda: run(Cleaner(Rules(empty, now_ms=NOW, delete_retention_ms=0)).clean(window)),
        lambda: run(Cleaner(dirty).clean(window)),
    ]


@pytest.mark.parametrize(("layout", "codec"), LAYOUTS)
def test_a_changed_byte_is_named_with_its_batch(layout: str, codec: int) -> None:
    """This holds for any byte under the checksum, whether or not the records are needed."""
    rng = random.Random(codec)
    log = log_of(layout, codec)
    for _ in range(60):
        number = rng.randrange(4)
        at = rng.randrange(17, len(log[number]))
        torn = bytearray(log[number])
        torn[at] ^= 1 << rng.randrange(8)
        harmed = [*log[:number], bytes(torn), *log[number + 1 :]]
        (window,) = windows(log, 4, position=4096)
        window = window._replace(data=b"".join(harmed))
        for use in both(window):
            with pytest.raises(CorruptRecordBatchError) as caught:
                use()
            assert caught.value.position == 4096 + sum(map(len, log[:number]))
            assert caught.value.path == window.path


def test_a_batch_that_contradicts_itself_is_named() -> None:
    """The checksum is right, but the records are wrong: the error has the batch's position."""
    good = log_of("kafka", 0)
    body = bytearray(good[2])
    body[61] += 2  # the length of the first record
    lie = kafka.with_max_timestamp(bytes(body), NOW)  # with a new checksum
    assert layouts.fault(lie, 0, None) is None
    (window,) = windows([*good[:2], lie, good[3]], 4)
    for use in (both(window)[0], both(window)[2]):
        with pytest.raises(CorruptRecordBatchError) as caught:
            use()
        assert caught.value.position == len(good[0]) + len(good[1])


def test_a_batch_that_is_too_large_is_named() -> None:
    """A log with such a batch cannot be cleaned; the error has the batch and the size."""
    for layout, codec in LAYOUTS:
        log = log_of(layout, codec)
        (window,) = windows(log, 4, position=9)
        window = window._replace(expansion_bytes_max=1000)
        for use in (both(window)[0], both(window)[2]):
            with pytest.raises(RecordExpansionError) as caught:
                use()
            assert caught.value.facts["position"] == 9 and caught.value.facts["path"] == window.path


def test_a_missing_library_is_named_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is not changed until the extra is installed."""
    log = log_of("columnar", 3)
    assert layouts.read_header(log[0], 0).attributes & 7 == 3
    (window,) = windows(log, 4)
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(UnsupportedFormatError, match="compression") as caught:
        both(window)[0]()
    assert caught.value.path == window.path


def test_batches_that_are_too_large_together_are_read_alone() -> None:
    """The limit is for each batch: many small batches may need more together."""
    rows = [(b"k%d" % n, b"v" * 50, NOW) for n in range(30)]
    log = [batch_of("kafka", 30 * n, rows) for n in range(10)]
    (window,) = windows(log, 10)
    window = window._replace(expansion_bytes_max=30 * 500)
    latest = LatestOffsets(0, 1 << 16)
    assert run(note(latest, window, lambda _: False))
    assert latest.key_count == 30 and latest.end_offset == 300


def test_chunks_are_bounded() -> None:
    """Many small batches are divided, and a large one is a chunk of its own."""
    small = [batch_of("kafka", n, [(b"k", b"v", NOW)]) for n in range(3 * CHUNK_BATCHES + 1)]
    (window,) = windows(small, len(small))
    assert [len(one) for one in window.chunks() if one] == [CHUNK_BATCHES] * 3 + [1]
    pauses = [len(one) for one in window.chunks()].count(0)
    assert pauses == 3 * (CHUNK_BATCHES // STEP_BATCHES - 1)
    rows = [(b"%d" % n, b"v", NOW) for n in range(CHUNK_RECORDS + 5)]
    large = [batch_of("columnar", len(rows) * n, rows) for n in range(3)]
    (window,) = windows(large, 3)
    assert window.expansion_bytes_max == ROOM
    assert [len(one) for one in window.chunks()] == [1, 1, 1]
    assert rows_of(clean(large, table_bytes=1 << 18).batches) == rows_of(large[2:])
