"""Test that a group is deleted or expires, even if its deletion is larger than a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.errors import CoordinatorError
from broker.coordinator.shard import Shard
from broker.groups.offsets import Committed
from broker.wire.error_codes import ErrorCode
from support.coordinating import RETENTION_SECONDS, Bench

NAME = "g" * 30_000  # with this name, 300 deletions are larger than a batch can be
KEYS = [("t", number) for number in range(300)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench([tmp_path / "a"]) as made:
        made.load()
        for key in KEYS:
            assert made.groups.commit(NAME, "", None, -1, {key: Committed(1, -1, "", 0)}) == 0
        yield made


def delete(bench: Bench) -> ErrorCode | None:
    with bench.groups.using(NAME) as (shard, hosted):
        return bench.groups.delete(shard, hosted)


def load_again(bench: Bench) -> None:
    """Read the groups from the log."""
    bench.groups.shards()[0].leave("a test")
    bench.scheduler.run()
    bench.load("other")


def test_regression_a_group_with_many_offsets_is_deleted(bench: Bench) -> None:
    """The deletion was one batch, which was too large, so DeleteGroups always got error 28."""
    assert delete(bench) is ErrorCode.NONE
    load_again(bench)
    assert bench.groups.count == 0


def test_regression_a_group_with_many_offsets_expires(bench: Bench) -> None:
    """The offsets stayed for ever."""
    bench.scheduler.seconds += RETENTION_SECONDS
    bench.upkeep.delete_expired()
    load_again(bench)
    assert bench.groups.count == 0


def test_regression_many_offsets_of_a_deleted_topic(bench: Bench) -> None:
    """The offsets stayed, so a new topic with the same name could get them."""
    bench.forget("t")
    assert bench.groups.offsets_of(NAME) == {}
    load_again(bench)
    assert bench.groups.offsets_of(NAME) == {}


def test_a_deletion_that_is_only_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full after the first batch, the groups are loaded again from the log."""
    append, calls = Shard.append, list[int]()

    def full(shard: Shard[Any], *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full")
        return append(shard, *arguments)

    monkeypatch.setattr(Shard, "append", full)
    with pytest.raises(CoordinatorError):
        delete(bench)
    bench.scheduler.run()
    bench.load("other")
    assert 0 < len(bench.groups.offsets_of(NAME)) < len(KEYS)
    assert delete(bench) is ErrorCode.NONE and bench.groups.count == 0
