"""Test that a broker's log dirs store its coordination store and its session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.coordination.continuity import CLUSTER_ID, WITNESSES, found_cluster
from broker.coordination.errors import OtherClusterError, StoreRestoredError, StoreWipedError
from broker.coordination.verbs import Session, SessionKey
from cluster.presence import boots
from cluster.process.store_memory import SESSION, STORE, StoreMemory
from logstore import LogStore
from support.replica_nodes import wait_until

KEY = SessionKey(-(2**62), bytes(range(16)))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogStore]:
    """Open a store with two log dirs."""
    with LogStore.open([tmp_path / "one", tmp_path / "two"]) as store:
        yield store


@pytest.fixture
def memory(logs: LogStore, session: Session) -> StoreMemory:
    """Remember a coordination store that a cluster uses."""
    found_cluster(session, "abc")
    memory = StoreMemory(logs, 7)
    memory.check(session)  # nothing is remembered yet
    memory.remember(session)
    return memory


def test_a_store_that_continues_is_accepted(memory: StoreMemory, session: Session) -> None:
    """The store is accepted even by a log dir with older facts than another."""
    memory.check(session)
    memory.remember(session)
    session.create("/more")
    memory.check(session)


def test_a_wiped_store_is_refused(memory: StoreMemory, session: Session) -> None:
    """The store is empty, or another cluster uses it."""
    session.delete(CLUSTER_ID)
    with pytest.raises(StoreWipedError):
        memory.check(session)
    found_cluster(session, "abc")
    with pytest.raises(OtherClusterError):
        memory.check(session)


def test_a_restored_store_is_refused_by_each_log_dir(
    memory: StoreMemory, session: Session, logs: LogStore
) -> None:
    """One log dir with facts is enough; unreadable facts are ignored."""
    first, second = logs.log_dirs
    session.delete(f"{WITNESSES}/7")
    for forgetful, other in ((first, second), (second, first)):
        kept = logs.facts(other)[STORE]
        logs.facts(forgetful)[STORE] = "unreadable"
        with pytest.raises(StoreRestoredError):
            memory.check(session)
        logs.facts(forgetful)[STORE] = kept
    for one in (first, second):
        logs.facts(one)[STORE] = [1]
    memory.check(session)


def test_sessions_are_kept_for_this_boot(logs: LogStore, tmp_path: Path) -> None:
    """A session of another boot may belong to another machine with a copy of the disks."""
    memory = StoreMemory(logs, 7)
    assert memory.kept_sessions() == []
    memory.keep_session(KEY)
    assert StoreMemory(logs, 7).kept_sessions() == [KEY]
    with patch.object(boots, "BOOT_ID", "/does/not/exist"):
        assert memory.kept_sessions() == []
        memory.keep_session(KEY)
        assert memory.kept_sessions() == []
    for log_dir in logs.log_dirs:
        logs.facts(log_dir)[SESSION] = [boots.boot_id(), 1, "no hex"]
    assert memory.kept_sessions() == []


def test_it_remembers_from_time_to_time(logs: LogStore, session: Session) -> None:
    """The thread continues while the coordination store fails, and ends with the memory."""
    memory, log_dir = StoreMemory(logs, 7, seconds=0.01), logs.log_dirs[0]
    memory.start(session)  # there is no cluster id yet, so nothing can be remembered
    found_cluster(session, "abc")
    wait_until(lambda: STORE in logs.facts(log_dir))
    first = logs.facts(log_dir)[STORE]
    wait_until(lambda: logs.facts(log_dir)[STORE] != first)
    memory.close()
    last = logs.facts(log_dir)[STORE]
    memory.check(session)
    assert logs.facts(log_dir)[STORE] == last


def test_regression_an_unexpected_error_does_not_end_the_memory(
    logs: LogStore, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread logs it, and stores the facts the next time."""
    found_cluster(session, "abc")
    memory = StoreMemory(logs, 7, seconds=0.01)
    with patch.object(memory, "remember", side_effect=RuntimeError("nobody expected this")):
        memory.start(session)
        wait_until(lambda: len(caplog.records) > 1)
    wait_until(lambda: STORE in logs.facts(logs.log_dirs[0]))
    memory.close()
