"""A reader finds its batch even if the index is wrong; point reads use the right block."""

from __future__ import annotations

import itertools
from array import array
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore
from logstore.log.segments import trailer as trailers
from logstore.log.segments.offset_index import OffsetIndex

COUNT = 60


def sealed(root: Path) -> None:
    """Write a segment with an index entry for each batch of two records, and one behind it."""
    config = LogConfig(segment_bytes=8192, index_interval_bytes=64)
    with LogStore.open(root) as store:
        log = store.create("orders", 0, config=config)
        for number in range(0, COUNT, 2):
            log.extend([b"%04d" % number, b"%04d" % (number + 1)])
        log.append(bytes(8000))


LIES: dict[str, Any] = {
    "every other entry": lambda o, p: (o[::2], p[::2]),
    "offsets too small": lambda o, p: ([0, *[at - 1 for at in o[1:]]], p),
    "positions of the next": lambda o, p: (o[:-1], [0, *p[2:]]),
    "positions of the one before": lambda o, p: (o, [0, *p[:-1]]),
    "positions inside batches": lambda o, p: (o, [0, *[at + 8 for at in p[1:]]]),
    "behind the end": lambda o, p: (o, [0, *[at + 100_000 for at in p[1:]]]),
    "one entry": lambda o, p: (o[:1], p[:1]),
    "none": lambda o, p: ([], []),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("step", [1, 7, -1, -11])
def test_a_lying_index_that_checks_out_changes_no_answer(
    tmp_path: Path, lie: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point reads and ranges, in any order and twice, come from the disk and from the cache."""
    sealed(tmp_path)
    real = trailers.read_index

    def read_index(path: str, **options: Any) -> tuple[OffsetIndex, Any]:
        index, trailer = real(path, **options)
        offsets, positions = LIES[lie](list(index.offsets), list(index.positions))
        return OffsetIndex(array("I", offsets), array("I", positions)), trailer

    monkeypatch.setattr(trailers, "read_index", read_index)
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert len(log._state.segments) == 2
        for offset in itertools.chain(*[range(COUNT)[::step]] * 2):
            assert log[offset].value == b"%04d" % offset
        for offset in range(0, COUNT, 5):
            assert [r.value for r in log.read(offset)][:2] == [
                b"%04d" % (offset + at) for at in range(2)
            ]
