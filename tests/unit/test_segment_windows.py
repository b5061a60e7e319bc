"""Read segments in windows of whole batches, whatever their sizes."""

from __future__ import annotations

import os

import pytest

from logstore import CorruptRecordBatchError, Log, LogConfig, LogStore
from logstore.format import layouts
from logstore.log.compaction import segment_windows
from logstore.log.compaction.segment_windows import last_header, whole_batches, windows
from support.compacting import ROOM, batch_of


def filled(store: LogStore, layout: str) -> Log:
    """Make a log of batches of very different sizes."""
    log = store.create("orders", 0, config=LogConfig(record_format=layout))
    for size in (1, 5000, 3, 0, 900, 20_000, 7):
        log.extend([b"x" * size] * 3, keys=[b"k"] * 3)
    return log


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
@pytest.mark.parametrize("window_bytes", [256, 1000, 6000, 1 << 20])
def test_every_batch_is_in_one_window(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, layout: str, window_bytes: int
) -> None:
    """A batch may be larger than a window; the windows are contiguous."""
    monkeypatch.setattr(segment_windows, "WINDOW_BYTES", window_bytes)
    log = filled(store, layout)
    segment = log._state.active
    handle, position, offset = segment.handle(log._state.environment), 0, 0
    for window in windows(segment, handle, ROOM):
        assert (window.position, window.first_offset) == (position, offset)
        for chunk in window.chunks():
            for at, header in chunk:
                assert position + at < segment.size_bytes
                offset = header.last_offset + 1
        position += len(window.data)
    assert (position, offset) == (segment.size_bytes, 21)
    last = last_header(segment, handle)
    assert (last.base_offset, last.last_offset) == (18, 20)


@pytest.mark.parametrize("harm", [b"cut", b"", b"\0" * 12, b"\xff" * 12, b"\x7f" * 12])
def test_a_size_that_leads_nowhere_is_damage(store: LogStore, harm: bytes) -> None:
    """Reading its window raises an error; so does a file that was cut."""
    log = filled(store, "columnar")
    segment = log._state.active
    handle = segment.handle(log._state.environment)
    with open(segment.log_path, "r+b") as file:
        at = batch_bytes(file.read())
        file.seek(at)
        if len(harm) < 12:  # between two batches, or within one
            os.ftruncate(file.fileno(), at + 30 * (not harm))
        else:
            file.write(harm)
    with pytest.raises(CorruptRecordBatchError) as caught:
        for window in windows(segment, handle, ROOM):
            list(window.chunks())
    assert caught.value.position == at


def batch_bytes(data: bytes) -> int:
    return layouts.read_header(data, 0).size_bytes


def test_whole_batches_end_before_one_that_is_cut() -> None:
    """The result is the start and end of the last batch; for a part of a batch, nothing."""
    one, two = (batch_of("kafka", n, [(b"k", b"v", 1)]) for n in range(2))
    assert whole_batches(one + two) == (len(one), len(one) + len(two), 2)
    assert whole_batches(one + two[:-1]) == (0, len(one), 1)
    assert whole_batches(one[:-1]) == whole_batches(b"") == (0, 0, 0)
