"""Test that replicas in a slow log dir lose their roles, and get them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from cluster import znodes
from cluster.pure.replica import Role
from cluster.state import parse_state
from logstore import Log, LogStore
from logstore.errors import LogDirSuspectError
from support.members import Member, Members
from support.places import fast_directory
from support.replica_nodes import wait_until


@pytest.fixture
def members() -> Iterator[Members]:
    with fast_directory() as root, Members(root, dirs=2) as made:
        yield made


@contextmanager
def slow_dir(member: Member) -> Iterator[None]:
    """Let the log dirs of a broker refuse each call, as while a disk is SUSPECT."""
    real = LogStore.log

    def log(store: LogStore, *arguments: Any, **options: Any) -> Log:
        if store is member.store:
            raise LogDirSuspectError(path="a log dir", reason="it hangs")
        return real(store, *arguments, **options)

    def flush(log: Log) -> int:
        raise LogDirSuspectError(path="a log dir", reason="it hangs")

    with ExitStack() as stack:
        stack.enter_context(patch.object(LogStore, "log", log))
        with patch.object(Log, "flush", flush):
            replica = member.replica("orders")
            assert replica is not None
            replica.flush()
        yield


def isr_of(members: Members) -> set[int]:
    path = znodes.state_path("orders", 0)
    return set(parse_state(members.admin.get(path).data, path).isr)


@pytest.mark.parametrize("broker", [1, 2])
def test_regression_a_replica_returns_when_its_log_dir_answers_again(
    members: Members, broker: int
) -> None:
    """A leader is replaced; afterwards, each replica is in sync again."""
    members.create("orders", {0: [1, 2, 3]})
    members.produce("orders", b"before")
    assert members.wait_for_leader("orders").broker == 1
    member = members.members[broker]
    replica = member.replica("orders")
    assert replica is not None
    with slow_dir(member):
        assert replica.role is Role.NONE and replica.log is None
        members.wait_for_leader("orders", other_than=broker)
        wait_until(lambda: isr_of(members) == {1, 2, 3} - {broker})
        members.produce("orders", b"meanwhile")
        assert replica.log is None
    wait_until(lambda: isr_of(members) == {1, 2, 3})
    members.produce("orders", b"after")
    assert replica.log is not None
    wait_until(lambda: replica.log is not None and replica.log.log_end_offset == 3)
