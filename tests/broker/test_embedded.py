"""Test the parts that only the embedded coordination store has: limits, opens and locks."""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordination.copies import Copies
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import (
    CopyFullError,
    LimitError,
    SessionClosedError,
    SessionExpiredError,
    StoreClosedError,
)
from broker.coordination.tree import SEQUENCE_MAX, Draft, EmbeddedSettings, Node, Tree
from broker.coordination.verbs import Create, Delete, Event, EventKind, Operation, SessionState, Set
from logstore.disk import files
from support.faulty import Fault, FaultyFiles
from support.heard import Heard


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return a log dir."""
    return str(tmp_path)


@pytest.fixture
def store(place: str) -> Iterator[EmbeddedStore]:
    """Return a small store."""
    with EmbeddedStore([place], EmbeddedSettings(nodes_max=5, store_bytes_max=100)) as store:
        yield store


def test_the_number_of_znodes_is_bounded(store: EmbeddedStore) -> None:
    """The root counts; at the limit, a change that adds no znode is allowed."""
    with store.connect() as session:
        session.multi([Create(f"/{number}") for number in range(4)])
        with pytest.raises(LimitError) as caught:
            session.create("/4")
        assert (caught.value.limit, caught.value.allowed) == ("nodes_max", 5)
        session.multi([Delete("/0"), Create("/4"), Set("/1", b"x")])
        assert session.children("/") == ["1", "2", "3", "4"]


def test_the_size_of_the_store_is_bounded(store: EmbeddedStore) -> None:
    """Paths and data count together; at the limit, a change that adds no bytes is allowed."""
    with store.connect() as session:
        session.create("/a", b"x" * 97)
        for operation in (Create("/b"), Set("/a", b"x" * 98)):
            with pytest.raises(LimitError) as caught:
                session.multi([operation])
            assert caught.value.limit == "store_bytes_max"
        session.multi([Set("/a", b""), Create("/b", b"y" * 95)])
        session.delete("/b")
        assert session.children("/") == ["a"]


def test_numbers_of_names_do_not_wrap() -> None:
    """After the largest number, a sequential creation is refused."""
    tree = Tree()
    tree.put("/p", Node(b"", 0, 0, created=SEQUENCE_MAX))
    draft = Draft(tree)
    (made,) = draft.perform([Create("/p/n-", sequence=True)], 0)
    assert made and made.path == "/p/n-2147483647"
    with pytest.raises(LimitError, match="SEQUENCE_MAX"):
        draft.perform([Create("/p/n-", sequence=True)], 0)


def test_an_open_ends_the_sessions_of_before(place: str) -> None:
    """The ephemeral znodes of old sessions are deleted in one change; without any, none is made."""
    with EmbeddedStore([place]) as store:
        session = store.connect()
        session.create("/stays")
        for number in range(3):
            session.create(f"/e{number}", ephemeral=True)
        key = session.key
    for _ in range(2):
        with EmbeddedStore([place]) as store, store.connect() as session:
            assert session.children("/") == ["stays"]
            assert session.zxid() == 5
            with pytest.raises(SessionExpiredError):
                store.connect(key)


def test_a_session_can_be_continued(place: str) -> None:
    """A second holder of a living session has its ephemeral znodes."""
    with EmbeddedStore([place]) as store, store.connect() as other:
        first = store.connect()
        first.create("/e", ephemeral=True)
        second = store.connect(first.key)
        assert second.key == first.key
        assert second.create("/f", ephemeral=True).ephemeral_owner == first.key.session_id
        second.close()
        assert other.children("/") == []


def test_a_closed_store_ends_its_sessions(place: str) -> None:
    """The sessions' listeners are called, and no new session can begin."""
    store = EmbeddedStore([place])
    session, states = store.connect(), Heard[SessionState]()
    session.on_session(states)
    store.close()
    store.close()
    assert states.next() is SessionState.CLOSED
    with pytest.raises(SessionClosedError):
        session.get("/")
    with pytest.raises(StoreClosedError):
        store.connect()


def test_a_read_does_not_wait_for_a_disk(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a change waits for its sync, reads see the old state, and watches wait."""
    with EmbeddedStore([place]) as store:
        session, other = store.connect(), store.connect()
        session.create("/a", b"old")
        is_syncing, may_end, heard = threading.Event(), threading.Event(), Heard[Event]()
        real = files.sync_data

        def hang(fd: int) -> None:
            is_syncing.set()
            assert may_end.wait(60)
            real(fd)

        monkeypatch.setattr(files, "sync_data", hang)
        writer = threading.Thread(target=session.set, args=("/a", b"new"))
        writer.start()
        assert is_syncing.wait(60)
        assert other.watch("/a", heard) == other.get("/a")
        assert other.get("/a").data == b"old"
        assert other.children("/") == ["a"]
        may_end.set()
        writer.join()
        assert heard.next() == Event(EventKind.CHANGED, "/a")
        assert other.get("/a").data == b"new"


def test_a_session_that_cannot_be_closed_stays_open(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, a session with ephemeral znodes stays open; a later close succeeds."""
    with EmbeddedStore([place]) as store:
        session, other = store.connect(), store.connect()
        session.create("/e", ephemeral=True)

        def full(fd: int, buffers: object, position: int) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(files, "write_fully", full)
            with pytest.raises(CopyFullError):
                session.close()
        assert session.get("/e").path == "/e"
        session.close()
        assert other.children("/") == []


def test_the_size_of_a_tree_is_that_of_its_znodes() -> None:
    """The computed size stays exact after any changes, so that the limit is exact."""
    tree = Tree()
    changes: list[list[Operation]] = [
        [Create("/a", b"xyz"), Create("/a/b", b"1")],
        [Set("/a", b""), Set("/a/b", b"12345")],
        [Delete("/a/b"), Create("/a/b", b"1"), Set("/a/b", b"22")],
        [Delete("/a/b"), Delete("/a")],
    ]
    for operations in changes:
        draft = Draft(tree)
        draft.perform(operations, 0)
        tree.apply(draft)
        expected = sum(len(path) + len(node.data) for path, node in tree.nodes.items())
        assert tree.size_bytes == expected
    assert tree.children == {}


def test_regression_a_watch_is_called_although_its_change_ends_with_an_error(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is readable, so its watches must be called."""

    def fail(copies: Copies) -> None:
        raise MemoryError

    with store.connect() as session:
        heard = Heard[Event]()
        session.watch("/a", heard)
        with monkeypatch.context() as patch:
            patch.setattr(Copies, "confirm", fail)
            with pytest.raises(MemoryError):
                session.create("/a")
        assert session.children("/") == ["a"]
        assert heard.next() == Event(EventKind.CREATED, "/a")


def test_regression_a_watch_needs_no_new_thread(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can be started later, watches still work; a new session is refused."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    session, heard = store.connect(), Heard[Event]()
    session.watch("/a", heard)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        session.create("/a")
        assert heard.next() == Event(EventKind.CREATED, "/a")
        with pytest.raises(RuntimeError, match="thread"):
            store.connect()


def test_regression_a_failure_callback_that_raises_stops_no_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, the change counts, its watch is called, and the store continues."""
    dirs = [tmp_path / name for name in "ab"]
    for path in dirs:
        path.mkdir()

    def fail(path: str, error: OSError) -> None:
        raise ValueError("a bug of the caller")

    with EmbeddedStore([str(path) for path in dirs], on_failure=fail) as store:
        session, heard = store.connect(), Heard[Event]()
        session.watch("/a", heard)
        eio = Fault("EIO", errno.EIO, frozenset({"pwrite", "pwritev"}), is_sticky=True)
        with FaultyFiles(str(dirs[0]), eio, 1):
            session.create("/a")
        assert heard.next() == Event(EventKind.CREATED, "/a")
        session.create("/b")
        assert list(store.failures) == [str(dirs[0])]
    assert "a bug of the caller" in caplog.text


def test_regression_a_second_hold_that_is_taken_during_the_end_is_refused(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second hold was given, but its holder never learned of the session's end."""
    session = store.connect()
    real = secrets.compare_digest

    def end_meanwhile(one: bytes, other: bytes) -> bool:
        session.close()
        return real(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(secrets, "compare_digest", end_meanwhile)
        with pytest.raises(SessionExpiredError):
            store.connect(session.key)


def test_a_session_that_begins_during_a_close_is_refused(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that begins during a close is refused, and its thread ends."""
    real = secrets.token_bytes

    def close_meanwhile(count: int) -> bytes:
        store.close()
        return real(count)

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(secrets, "token_bytes", close_meanwhile)
        with pytest.raises(StoreClosedError):
            store.connect()
    assert threading.active_count() <= before
