"""Test that every broker sees every change of shared documents, and that none is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from broker.coordination import shared_documents
from broker.coordination.errors import CoordinationError, LimitError, NotConnectedError
from broker.coordination.shared_documents import (
    HISTORY_CHANGES_MAX,
    NAME_BYTES_MAX,
    Changes,
    Documents,
    SharedDocuments,
    encode_name,
)
from broker.coordination.verbs import (
    OPERATION_BYTES,
    REQUEST_BYTES_MAX,
    Session,
    WatchCallback,
    Znode,
)
from cluster.admin.documents import documents_of
from support.heard import Connect, Heard

KIND = "quotas"


def until(heard: Heard[Documents], wanted: Mapping[str, bytes]) -> None:
    """Wait for a call with these documents."""
    while dict(heard.next()) != wanted:
        pass


def test_every_broker_sees_a_change(connect: Connect) -> None:
    """One broker creates, changes and deletes documents; another broker gets each change."""
    one, other = documents_of(connect()), documents_of(connect())
    heard = Heard[Documents]()
    other.follow(KIND, heard)
    assert dict(heard.next()) == {}
    assert other.is_known(KIND)
    one.change(KIND, lambda now: {"alice": b"1", "bob": b"2"})
    until(heard, {"alice": b"1", "bob": b"2"})
    one.change(KIND, lambda now: {"alice": b"3", "bob": None, "nobody": None})
    until(heard, {"alice": b"3"})
    other.change(KIND, lambda now: {"carol": now["alice"] + b"4"})
    until(heard, {"alice": b"3", "carol": b"34"})
    one.refresh()
    assert dict(one.documents(KIND)) == {"alice": b"3", "carol": b"34"}


class Counted:
    """A session that counts which znodes are read; if it is deaf, it has no watches."""

    def __init__(self, session: Session, *, is_deaf: bool = False) -> None:
        self._session, self.paths, self._is_deaf = session, list[str](), is_deaf

    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        return None if self._is_deaf else self._session.watch(path, callback)

    def get(self, path: str) -> Znode:
        self.paths.append(path)
        return self._session.get(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def read(self) -> list[str]:
        """Return the documents that were read since the last call."""
        paths, self.paths = self.paths, []
        return sorted(one.rpartition("/")[2] for one in paths if one.count("/") == 3)


def counted(connect: Connect, *, is_deaf: bool = False) -> tuple[SharedDocuments, Counted]:
    """Make documents of a broker whose reads are counted."""
    session: Any = Counted(connect(), is_deaf=is_deaf)
    return documents_of(session), session


def always(changes: Changes, now: Documents) -> Changes:
    """Decide for the same changes, whatever there is."""
    return changes


def lengthened(name: str, now: Documents) -> Changes:
    """Add a byte to a document."""
    return {name: now[name] + b"x"}


def test_only_changed_documents_are_read(connect: Connect) -> None:
    """Of 300 documents, a broker reads the one that was written; the writer reads none."""
    one, own = counted(connect)
    other, session = counted(connect)
    every = {f"user {number}": b"1" for number in range(300)}
    one.change(KIND, lambda now: every)
    heard, own_heard = Heard[Documents](), Heard[Documents]()
    other.follow(KIND, heard)
    one.follow(KIND, own_heard)
    until(heard, every)
    assert len(session.read()) == 300
    own.read()
    steps: list[dict[str, bytes | None]] = [
        {"user 7": b"2"},
        {"new": b""},
        {"user 9": None, "user 8": b"3"},
    ]
    for step in steps:
        one.change(KIND, partial(always, step))
        every = {name: data for name, data in {**every, **step}.items() if data is not None}
        until(heard, every)
        assert session.read() == sorted(map(encode_name, step))
    until(own_heard, every)
    assert own.read() == []
    session.set(f"{shared_documents.ROOT}/{KIND}", b"")  # as an earlier version writes the parent
    one.change(KIND, lambda now: {"user 1": b"9"})
    until(heard, {**every, "user 1": b"9"})
    other.refresh()
    assert dict(other.documents(KIND)) == dict(one.documents(KIND))


def test_a_broker_that_missed_changes_reads_what_they_named(connect: Connect) -> None:
    """If it missed too many, or if the data of the parent is wrong, it reads all documents."""
    writer = documents_of(connect())
    writer.change(KIND, lambda now: dict.fromkeys("abcdefgh", b""))
    parent, session = f"{shared_documents.ROOT}/{KIND}", connect()
    for count, data, expected in (
        (3, None, 3), (HISTORY_CHANGES_MAX, None, 8), (HISTORY_CHANGES_MAX + 1, None, 8),
        (1, b"{", 8), (1, b"[]", 8), (1, b'{"version":2,"changes":[]}', 8),
        (1, b'{"version":1,"changes":[[%d,["a"]]]}', 1),
        (1, b'{"version":1,"changes":[[1,["a"]]]}', 8),
        (1, b'{"version":1,"changes":[[%d,"a"]]}', 8),
        (1, b'{"version":1,"changes":[[%d,[1]]]}', 8),
        (1, b'{"version":1,"changes":[[%d,[""]]]}', 8),
        (1, b'{"version":1,"changes":[[%d,["\\ud800"]]]}', 8), (1, b"[" * 10_000, 8),
    ):  # fmt: skip
        late, reads = counted(connect, is_deaf=True)
        late._read(KIND)
        reads.read()
        for number in range(count):
            name = "abcdefgh"[number % 8]
            if data is None:
                writer.change(KIND, partial(lengthened, name))
            else:
                version = session.get(parent).version + 1
                session.set(f"{parent}/{name}", b"y%d" % version)
                session.set(parent, data.replace(b"%d", b"%d" % version))
        reads.read()
        late._read_again(KIND)
        assert len(reads.read()) == expected, (count, data)
        names = session.children(parent)
        assert dict(late.documents(KIND)) == {
            one: session.get(f"{parent}/{one}").data for one in names
        }
        writer.refresh()


def test_a_change_as_large_as_a_request_is_made(connect: Connect) -> None:
    """The parent names the changed documents only if there is room for their names."""
    documents, heard = documents_of(connect()), Heard[Documents]()
    documents_of(connect()).follow(KIND, heard)
    room = REQUEST_BYTES_MAX - 2 * OPERATION_BYTES
    paths = len(f"{shared_documents.ROOT}/{KIND}") + len(f"{shared_documents.ROOT}/{KIND}/a")
    documents.change(KIND, lambda now: {"a": b"x" * (room - paths)})
    until(heard, {"a": b"x" * (room - paths)})
    names = [f"{number:04}" + "n" * 600 for number in range(100)]  # more than 16 KiB
    documents.change(KIND, lambda now: {"a": None, **dict.fromkeys(names, b"")})
    until(heard, dict.fromkeys(names, b""))


def test_regression_a_follower_can_leave(connect: Connect) -> None:
    """It gets no further call; the other followers do, even if their callback is the same."""
    documents = documents_of(connect())
    calls: list[Documents] = []
    ends = [documents.follow(KIND, calls.append) for _ in range(3)]
    ends[1]()
    ends[1]()
    calls.clear()
    documents.change(KIND, lambda now: {"a": b""})
    assert len(calls) == 2
    ends[0]()
    ends[2]()
    documents.change(KIND, lambda now: {"b": b""})
    assert len(calls) == 2 and not documents._kind(KIND).followers


def test_kinds_are_separate(connect: Connect) -> None:
    """A follower of one kind gets no changes of another kind."""
    documents, heard = documents_of(connect()), Heard[Documents]()
    documents.follow(KIND, heard)
    heard.next()
    documents.change("users", lambda now: {"alice": b""})
    documents.change(KIND, lambda now: {"bob": b""})
    assert dict(heard.next()) == {"bob": b""}


@pytest.mark.parametrize(
    "name", [".", "..", "a/b", "Größe", "<default>", "%2E", " ", "\0", "x" * 600]
)
def test_a_name_is_any_text(connect: Connect, name: str) -> None:
    """A name may have characters that a znode must not have."""
    documents = documents_of(connect())
    documents.change(KIND, lambda now: {name: b"data"})
    again = documents_of(connect())
    again.follow(KIND, lambda found: None)
    assert dict(again.documents(KIND)) == {name: b"data"}


def incremented(name: str, now: Documents) -> Mapping[str, bytes]:
    """Add 1 to the number in a document."""
    return {name: b"%d" % (int(now.get(name, b"0")) + 1)}


def test_no_change_is_lost(connect: Connect) -> None:
    """Three brokers add numbers to the same documents; at the end, no number is missing."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    brokers = [documents_of(connect()) for _ in range(3)]
    shared_documents.TRIES_MAX, before = 1000, shared_documents.TRIES_MAX
    names = [[draw.choice("ab") for _ in range(15)] for _ in brokers]

    def add(documents: SharedDocuments, chosen: list[str]) -> None:
        for name in chosen:
            documents.change(KIND, partial(incremented, name))

    threads = [threading.Thread(target=add, args=pair) for pair in zip(brokers, names, strict=True)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        shared_documents.TRIES_MAX = before
    brokers[0].refresh()
    found = {name: int(data) for name, data in brokers[0].documents(KIND).items()}
    every = [name for chosen in names for name in chosen]
    assert found == {name: every.count(name) for name in set(every)}


def test_regression_a_follower_hears_of_a_change_that_was_made_by_another_broker(
    connect: Connect,
) -> None:
    """If two brokers change documents at once, the slower one must not keep the old ones."""
    one, other = documents_of(connect()), documents_of(connect())
    one.change(KIND, lambda now: {"alice": b"1"})
    heard = Heard[Documents]()
    other.follow(KIND, heard)
    assert dict(heard.next()) == {"alice": b"1"}
    decided: list[Documents] = []

    def decide(now: Documents) -> Mapping[str, bytes | None]:
        if not decided:
            one.change(KIND, lambda _: {"alice": None})
        decided.append(now)
        return {"alice": None} if "alice" in now else {}

    other.change(KIND, decide)
    until(heard, {})
    assert len(decided) <= 2


def test_an_error_of_the_decision_changes_nothing(connect: Connect) -> None:
    """The caller can refuse a change by an error."""
    documents = documents_of(connect())

    def refuse(now: Documents) -> Mapping[str, bytes | None]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        documents.change(KIND, refuse)
    assert documents.change(KIND, lambda now: {}) == {}
    assert dict(documents.documents(KIND)) == {}


def test_limits(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of documents is limited. A name has from 1 to `NAME_BYTES_MAX` bytes."""
    monkeypatch.setattr(shared_documents, "DOCUMENTS_MAX", 2)
    documents = documents_of(connect())
    documents.change(KIND, lambda now: {"a": b"", "b": b""})
    with pytest.raises(LimitError, match="DOCUMENTS_MAX"):
        documents.change(KIND, lambda now: {"c": b""})
    documents.change(KIND, lambda now: {"c": b"", "a": None})
    assert set(documents.documents(KIND)) == {"b", "c"}
    for name in ("", "x" * (NAME_BYTES_MAX + 1), "." * (NAME_BYTES_MAX // 2)):
        with pytest.raises(LimitError, match="NAME_BYTES_MAX"):
            encode_name(name)


def test_a_follower_that_fails_harms_no_other(connect: Connect) -> None:
    """The other followers get the change, and the change is made."""
    documents, heard = documents_of(connect()), Heard[Documents]()
    calls: list[int] = []

    def fail(found: Documents) -> None:
        calls.append(len(found))
        if found:
            raise RuntimeError("a mistake")

    documents.follow(KIND, fail)
    documents.follow(KIND, heard)
    heard.next()
    documents.change(KIND, lambda now: {"a": b""})
    assert dict(heard.next()) == {"a": b""}
    assert calls == [0, 1]


def test_a_store_that_is_away_is_read_later(connect: Connect) -> None:
    """Until the store is back, no document is known, and a change is refused."""
    session, is_away = connect(), True

    def run(work):  # type: ignore[no-untyped-def]
        if is_away:
            raise NotConnectedError(1)
        return work(session)

    documents, heard = SharedDocuments(run, is_shared=True), Heard[Documents]()
    documents.follow(KIND, heard)
    assert dict(heard.next()) == {}
    assert not documents.is_known(KIND)
    with pytest.raises(CoordinationError):
        documents.change(KIND, lambda now: {"a": b""})
    is_away = False
    documents_of(connect()).change(KIND, lambda now: {"b": b""})
    documents.refresh()
    until(heard, {"b": b""})
    assert documents.is_known(KIND)


def test_a_store_of_one_process_that_is_older_gets_what_the_memory_has(session: Session) -> None:
    """If a single broker opens its store with other log dirs, its memory wins."""
    documents = SharedDocuments(lambda work: work(session), is_shared=False)
    documents.follow(KIND, lambda found: None)
    documents.change(KIND, lambda now: {"a": b"1", "b": b"2", "c": b"3"})
    parent = f"{shared_documents.ROOT}/{KIND}"
    session.set(f"{parent}/a", b"old")
    session.delete(f"{parent}/b")
    session.create(f"{parent}/gone", b"")
    session.set(parent, b"")
    documents.refresh()
    assert dict(documents.documents(KIND)) == {"a": b"1", "b": b"2", "c": b"3"}
    assert session.children(parent) == ["a", "b", "c"]
    assert session.get(f"{parent}/a").data == b"1"
    documents.change(KIND, lambda now: {"d": b""})
    assert session.children(parent) == ["a", "b", "c", "d"]
