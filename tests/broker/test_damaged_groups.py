"""Damage in the log of groups: what a power cut left is mended, flushed records are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.coordinator.offsets_topic import NAME
from broker.wire.error_codes import ErrorCode
from support.coordinating import Bench
from support.inside import abandon

GROUPS = ("first", "second", "third")


def damaged_log(directory: Path, *, is_flushed: bool) -> None:
    """Commit for three groups, end in order or as by a crash, and zero the second record."""
    with Bench([directory]) as bench:
        bench.load()
        log = bench.groups.topic.open(0).log
        ends = []
        for number, name in enumerate(GROUPS):
            assert bench.commit(name, number) is ErrorCode.NONE
            ends.append(log.size_bytes)
        if not is_flushed:
            abandon(bench.store)
    path = directory / f"{NAME}-0" / f"{0:020}.log"
    with path.open("r+b") as file:
        file.seek(ends[0])
        file.write(bytes(ends[1] - ends[0]))


@pytest.mark.parametrize("is_flushed", [False, True])
def test_zeros_in_the_log_of_groups(tmp_path: Path, is_flushed: bool) -> None:
    """In the unflushed part, they are what a power cut leaves: every whole record counts."""
    damaged_log(tmp_path / "a", is_flushed=is_flushed)
    with Bench([tmp_path / "a"]) as bench:
        bench.scheduler.run()
        if is_flushed:
            assert bench.code_of("first") is ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        assert [bench.offset(name) for name in GROUPS] == [0, None, 2]
        assert bench.commit("second", 9) is ErrorCode.NONE
    with Bench([tmp_path / "a"]) as bench:
        bench.scheduler.run()
        assert [bench.offset(name) for name in GROUPS] == [0, 9, 2]
