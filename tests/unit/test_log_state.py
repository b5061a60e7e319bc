"""Each field of a log has one documented place, and all changes keep the invariants."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest

import logstore.log
from logstore import Log, LogConfig, LogStore
from logstore.log.follow.followed_replica import FollowedReplica
from logstore.log.replica import Replica
from logstore.log.replication import Replication
from logstore.log.state import LogState
from logstore.log.write import appending, flush, roll
from logstore.log.write.rules import AppendRules


@pytest.fixture
def log(store: LogStore) -> Log:
    """Return a log of two records that are not flushed."""
    log = store.create("orders", 0, config=LogConfig(flush_ms=None))
    log.extend([b"a", b"b"])
    return log


def classes() -> Iterator[type]:
    """Return every class that a module of the log defines."""
    for module in pkgutil.walk_packages(logstore.log.__path__, "logstore.log."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name:
                yield kind


def own_bases(kind: type) -> list[type]:
    """Return the log's own classes from which a class is derived directly."""
    return [base for base in kind.__bases__ if base.__module__.startswith("logstore.log")]


def test_no_class_has_a_grandchild() -> None:
    """A method uses only names from its own class, or from the class above it."""
    found = list(classes())
    assert Log in found and LogState in found
    for kind in found:
        for parent in own_bases(kind):
            assert own_bases(parent) == [], kind.__mro__


@pytest.mark.parametrize("kind", [Replica, LogState, FollowedReplica, Replication, AppendRules])
def test_each_field_is_documented(kind: type) -> None:
    """The docstring of a state names each field, with its lock or the reason for none."""
    words = set(re.findall(r"\w+", kind.__doc__ or ""))
    fields: tuple[str, ...] = vars(kind)["__slots__"]
    assert [field for field in fields if field[0] != "_" and field not in words] == []


def test_nothing_after_the_end_counts_as_flushed(log: Log) -> None:
    """The recovery point is never after the log end offset."""
    with pytest.raises(AssertionError):
        log._state.note_flushed(3)
    assert (log.recovery_point, log.flush()) == (0, 2)


@pytest.mark.parametrize("base_offset", [1, 3])
def test_no_batch_leaves_offsets_out_or_repeats_them(log: Log, base_offset: int) -> None:
    """A batch must begin at the log end offset; any other batch is not written."""
    state, size = log._state, log.size_bytes
    with state.lock, pytest.raises(AssertionError):
        appending.write_batch(state, state.active, bytes(96), base_offset, 0, 0, 0)
    assert (log.log_end_offset, log.size_bytes) == (2, size)
    assert log.append(b"c") == 2 and log.verify() == []


@pytest.mark.parametrize("base_offset", [1, 3])
def test_no_segment_begins_but_where_the_last_one_ends(log: Log, base_offset: int) -> None:
    """The segments of a log are contiguous."""
    with log._state.lock, pytest.raises(AssertionError):
        roll.roll(log._state, base_offset)
    assert len(log._state.segments) == 1
    assert log.append(b"c") == 2


def test_a_flush_may_be_repeated(log: Log) -> None:
    """The recovery point does not fall by a second flush."""
    assert [log.flush(), flush.flush_all(log._state), log.recovery_point] == [2, 2, 2]
