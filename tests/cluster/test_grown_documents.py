"""ACLs, quotas and users go along into a cluster, whatever interrupts the growth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.bindings import Operation as Right
from broker.authorization.bindings import ResourceType
from broker.catalog.admin.acls import Acls
from broker.catalog.admin.sole_users import SoleUsers
from broker.catalog.topic_store import TopicStore
from broker.coordination.continuity import ensure
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError, NotConnectedError
from broker.coordination.verbs import Session
from broker.security.user_settings import USERS
from cluster.admin.cluster_users import ClusterUsers
from cluster.admin.documents import documents_of as shared_documents_of
from cluster.errors import ClusterGrowthError
from cluster.process.grown_documents import (
    DECOYS,
    DONE,
    GROWTH,
    PART_BYTES,
    Documents,
    check_documents,
    documents_of,
    read_documents,
    take_documents,
)
from logstore import LogStore
from support.guarded_broker import allowing
from support.places import fast_directory
from support.secured import scram_users

QUOTAS = "/documents/quotas"
BINDINGS = [
    allowing(Right.READ, ResourceType.TOPIC, "orders", "User:alice", "*"),
    allowing(Right.WRITE, ResourceType.TOPIC, "a b/c.d", "User:bob", "*"),
]
SOURCE: Documents = {
    "/documents/acls": {"literal%2FTopic%2Forders": b"1", "literal%2FGroup%2Fg": b"2"},
    QUOTAS: {"user": b"3"},
    USERS: {"alice": b"4", "b%20c": b"5"},
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with EmbeddedStore([str(tmp_path)]) as store:
        yield store.connect()


def test_the_levels_of_features_stay(session: Session) -> None:
    """A cluster keeps its own level, and a level is no reason to refuse."""
    features = "/documents/features"
    for path in ("/documents", features, f"{features}/transaction%2Eversion"):
        session.create(path, b"2")
    assert read_documents(session) == {}
    check_documents(session, SOURCE)
    assert take_documents(session, SOURCE) == 5
    assert session.get(f"{features}/transaction%2Eversion").data == b"2"
    assert features not in read_documents(session)


class Crashing:
    """A session that fails at its write of a number, before it or after it."""

    def __init__(self, session: Session, number: int, *, is_done: bool) -> None:
        self._session, self._left, self._is_done = session, number, is_done
        self.has_crashed = False

    def _write(self, write: Any, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.has_crashed = True
            if self._is_done:
                write(*arguments)
            raise NotConnectedError(0)
        return write(*arguments)

    def create(self, *arguments: Any) -> Any:
        return self._write(self._session.create, *arguments)

    def set(self, *arguments: Any) -> Any:
        return self._write(self._session.set, *arguments)

    def multi(self, operations: Any) -> Any:
        return self._write(self._session.multi, operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_a_store_gives_its_acls_quotas_and_users(session: Session) -> None:
    """Brokers of the cluster read what the broker alone has written."""
    with fast_directory() as base, LogStore.open(base / "a", admin_socket=False) as store:
        users = SoleUsers(store)
        users.change(scram_users())
        recorded = TopicStore.of(store)
        Acls(recorded.documents, AuthorizerSettings(), 10).create(BINDINGS)
        recorded.documents.change("quotas", lambda _: {"client\\x": b"data"})
        known, documents = users.listed(), documents_of(store)
        recorded.release()
        users.close()
    assert take_documents(session, documents) == 4
    assert ClusterUsers(session).listed() == known
    shared = shared_documents_of(session)
    acls = Acls(shared, AuthorizerSettings(), 10)
    acls.start()
    snapshot = acls.authorizer.snapshot
    assert snapshot is not None and snapshot.count == 2
    shared.follow("quotas", lambda _: None)
    assert shared.documents("quotas") == {"client\\x": b"data"}


def state_of(session: Session) -> bytes:
    try:
        return session.get(GROWTH).data
    except NoNodeError:
        return b""


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_growth_that_ends_at_any_step_is_continued(tmp_path: Path, *, is_done: bool) -> None:
    """Also if the broker ran alone in between, and had its users and ACLs changed."""
    later: Documents = {
        "/documents/acls": {"literal%2FTopic%2Forders": b"changed"},
        USERS: {"alice": b"4", "dora": b"6"},
    }
    for wanted in (SOURCE, later):
        number = 0
        while True:
            number += 1
            directory = tmp_path / f"{len(wanted)}-{number}"
            directory.mkdir()
            with EmbeddedStore([str(directory)]) as store, store.connect() as session:
                crashing: Any = Crashing(session, number, is_done=is_done)
                try:
                    take_documents(crashing, SOURCE)
                except NotConnectedError:
                    is_over = state_of(session) == DONE
                    check_documents(session, wanted)
                    take_documents(session, wanted)
                    assert read_documents(session) == (SOURCE if is_over else wanted), number
                    assert state_of(session) == DONE
                if not crashing.has_crashed:
                    break
        print(f"{number - 1} steps")
        assert number > 8


def test_what_is_removed_later_does_not_come_back(session: Session) -> None:
    """The command that is run again after the growth copies nothing."""
    assert take_documents(session, SOURCE) == 5
    session.delete(f"{USERS}/alice")
    session.set(f"{QUOTAS}/user", b"another")
    check_documents(session, SOURCE)
    assert take_documents(session, SOURCE) == 0
    found = read_documents(session)
    assert set(found[USERS]) == {"b%20c"} and found[QUOTAS] == {"user": b"another"}


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        (f"{USERS}/eve", b"1", "has user of its own, .*: eve"),
        (f"{USERS}/b%20c", b"other", "has user of its own, .*: b c"),
        (f"{QUOTAS}/other", b"3", "has quotas of its own, .*: other"),
    ],
)
def test_a_cluster_with_documents_of_its_own_keeps_them(
    session: Session, path: str, data: bytes, reason: str
) -> None:
    """Nothing is written: whose rights count would not be clear."""
    for parent in ("/config", USERS, "/documents", QUOTAS):
        session.create(parent)
    session.create(f"{QUOTAS}/user", b"3")  # the broker has it, too
    check_documents(session, SOURCE)
    session.create(path, data)
    for call in (check_documents, take_documents):
        with pytest.raises(ClusterGrowthError, match=reason):
            call(session, SOURCE)
    assert not session.children("/config/users")[1:]


def test_many_documents_are_written_in_parts(session: Session) -> None:
    """A request of the coordination store has a largest size; each document fits into one."""
    many = {f"{number:05}": bytes(1000) for number in range(1500)} | {"big": bytes(PART_BYTES)}
    assert take_documents(session, {QUOTAS: many}) == len(many)
    assert read_documents(session) == {QUOTAS: many}


@pytest.mark.parametrize("own", [{}, {"scram": b"own"}])
def test_the_key_of_made_up_credentials_does_not_hinder_a_growth(
    session: Session, own: dict[str, bytes]
) -> None:
    """The broker makes a key in the cluster before it grows; its earlier key replaces it."""
    ensure(session, DECOYS)
    session.create(f"{DECOYS}/scram", b"made just now")
    wanted = {**SOURCE, DECOYS: own} if own else SOURCE
    check_documents(session, wanted)
    assert take_documents(session, wanted) == 5
    assert session.get(f"{DECOYS}/scram").data == own.get("scram", b"made just now")
