"""Log dirs that fail or return: the cluster hears of it, whatever the other log dirs can take."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from broker.coordination.errors import NotConnectedError
from cluster import znodes
from cluster.host_dirs import DirEntry
from cluster.presence import dir_facts
from cluster.presence.dir_news import DirNews
from cluster.pure.replica import Role
from cluster.state import State, parse_state
from logstore import LogDirFullError, LogStore, StoreEventKind
from support.members import Members
from support.places import fast_directory
from support.replica_nodes import wait_until


def state_of(members: Members) -> State:
    path = znodes.state_path("orders", 0)
    return parse_state(members.admin.get(path).data, path)


def test_regression_a_log_dir_fails_while_the_other_is_full() -> None:
    """Another broker leads soon; the note of the failure is written when there is space again."""
    with fast_directory() as root, Members(root, dirs=2) as members:
        members.create("orders", {0: [1, 2, 3]})
        members.produce("orders", b"first")
        wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
        leader = members.wait_for_leader("orders")
        replica = leader.replica("orders")
        assert replica is not None and replica.log is not None
        bad = replica.log.log_dir
        full = next(str(path) for path in leader.paths if str(path) != bad)
        write, refused = dir_facts.write_entry, list[str]()

        def write_entry(store: LogStore, log_dir: str, entry: DirEntry) -> None:
            if log_dir == full:
                refused.append(log_dir)
                raise LogDirFullError(path=log_dir)
            write(store, log_dir, entry)

        with patch.object(dir_facts, "write_entry", write_entry):
            leader.store.take_offline(Path(bad))
            members.wait_for_leader("orders", other_than=leader.broker)
            members.produce("orders", b"second")
            wait_until(lambda: len(refused) > 1)
        assert replica.role is Role.NONE
        wait_until(lambda: has_note(leader.store, full))
        leader.store.reopen_dir(Path(bad))
        wait_until(lambda: set(state_of(members).isr) == {1, 2, 3})
        assert not has_note(leader.store, full)


def has_note(store: LogStore, log_dir: str) -> bool:
    """Tell whether the entry of a log dir notes a failure."""
    entry = dir_facts.read_entry(store, log_dir)
    return entry is not None and bool(entry.failed)


def test_regression_news_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """After an error that nobody expected, too."""
    registering, session = Mock(), Mock()
    registering.is_late = False
    news = DirNews(registering, session, 1)
    for error in (RuntimeError("nobody expected this"), NotConnectedError(1)):
        registering.repeat.side_effect = registering.failed.side_effect = error
        news.heard(StoreEventKind.LOG_DIR_OFFLINE, "/disk1")
        assert news.is_due
        news.repeat()
        assert news.is_due and not session.create.called
    registering.repeat.side_effect = None
    news.repeat()
    assert not news.is_due and session.create.call_count == 1
    assert sum(one.exc_info is not None for one in caplog.records) == 2
