"""Test the same contract for the embedded store and ZooKeeper: every verb and error."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from broker.coordination.errors import (
    BadVersionError,
    EphemeralParentError,
    LimitError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZnodeError,
)
from broker.coordination.verbs import (
    OPERATION_BYTES,
    REQUEST_BYTES_MAX,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    Operation,
    Session,
    Set,
    Znode,
)
from support.heard import SECONDS_MAX, Connect, Heard

CREATED, CHANGED, DELETED, CHILDREN = list(EventKind)


# --- one znode ------------------------------------------------------------------------------------


def test_a_znode_is_created_read_written_and_deleted(session: Session) -> None:
    """Answers have the path, the data, the zxids, the version and the owner."""
    made = session.create("/a", b"one")
    assert made == Znode("/a", b"one", made.czxid, made.czxid, 0, 0)
    assert session.get("/a") == made
    written = session.set("/a", b"two")
    assert written == Znode("/a", b"two", made.czxid, written.mzxid, 1, 0)
    assert written.mzxid > made.mzxid
    assert session.get("/a") == written
    session.delete("/a")
    with pytest.raises(NoNodeError):
        session.get("/a")


def test_a_znode_that_is_created_again_is_another_one(session: Session) -> None:
    """Its version begins at 0, and its czxid is larger."""
    first = session.create("/a")
    session.set("/a", b"")
    session.delete("/a", version=1)
    again = session.create("/a")
    assert again.version == 0
    assert again.czxid > first.czxid


@pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)), "ß€".encode(), b'{"a":"\\n"}\n'])
def test_data_is_any_bytes(session: Session, data: bytes) -> None:
    """The data can be read again, byte by byte."""
    session.create("/a", data)
    assert session.get("/a").data == data
    session.set("/a", data + data)
    assert session.get("/a").data == data + data


def test_children_are_listed_by_name(session: Session) -> None:
    """The names are sorted, and do not include grandchildren."""
    for path in ("/b", "/a", "/a/z", "/a/y", "/a/y/x"):
        session.create(path)
    assert session.children("/") == ["a", "b"]
    assert session.children("/a") == ["y", "z"]
    assert session.children("/a/z") == []


def test_the_root_exists(session: Session) -> None:
    """The root has data and a version, but cannot be deleted or created."""
    assert session.get("/").path == "/"
    assert session.set("/", b"x").version == session.get("/").version
    assert session.get("/").data == b"x"
    with pytest.raises(NodeExistsError):
        session.create("/")
    with pytest.raises(ValueError, match="root cannot be deleted"):
        session.delete("/")


def test_names_in_other_scripts(session: Session) -> None:
    """A path may have any text."""
    session.create("/größe")
    assert session.create("/größe/日本").path == "/größe/日本"
    assert session.children("/größe") == ["日本"]


# --- errors ---------------------------------------------------------------------------------------


def refused(call: Any, kind: type[ZnodeError], path: str) -> Any:
    """Check that a call is refused, and return the error."""
    with pytest.raises(ZnodeError) as caught:
        call()
    assert (type(caught.value), caught.value.path) == (kind, path)
    assert path in str(caught.value)
    return caught.value


def test_what_is_missing(session: Session) -> None:
    """The error of each verb names the missing znode."""
    for call in (
        lambda: session.get("/no"),
        lambda: session.children("/no"),
        lambda: session.set("/no", b""),
        lambda: session.set("/no", b"", version=3),
        lambda: session.delete("/no"),
        lambda: session.watch_children("/no", print),
        lambda: session.multi([Check("/no", 0)]),
    ):
        refused(call, NoNodeError, "/no")
    refused(lambda: session.create("/no/child"), NoNodeError, "/no/child")
    refused(lambda: session.create("/no/child", sequence=True), NoNodeError, "/no/child")


def test_what_exists(session: Session) -> None:
    """A second creation is refused, and changes nothing."""
    made = session.create("/a", b"x")
    refused(lambda: session.create("/a", b"y"), NodeExistsError, "/a")
    refused(lambda: session.create("/a", ephemeral=True), NodeExistsError, "/a")
    assert session.get("/a") == made


def test_another_version(session: Session) -> None:
    """A write with a wrong version is refused; the error has both versions if known."""
    session.create("/a", b"x")
    session.set("/a", b"y", version=0)
    for call in (
        lambda: session.set("/a", b"z", version=0),
        lambda: session.delete("/a", version=0),
        lambda: session.multi([Check("/a", 0)]),
    ):
        error = refused(call, BadVersionError, "/a")
        assert error.expected == 0
        assert error.found in (1, None)
    assert session.get("/a").data == b"y"


def test_a_parent_is_not_deleted(session: Session) -> None:
    """A parent can only be deleted after its last child; a wrong version is found first."""
    session.create("/a")
    session.create("/a/b")
    refused(lambda: session.delete("/a"), NotEmptyError, "/a")
    refused(lambda: session.delete("/a", version=5), BadVersionError, "/a")
    session.delete("/a/b")
    session.delete("/a")


def test_an_ephemeral_znode_has_no_children(session: Session) -> None:
    """An ephemeral znode can have no children of any kind."""
    session.create("/a", ephemeral=True)
    refused(lambda: session.create("/a/b"), EphemeralParentError, "/a/b")
    refused(lambda: session.create("/a/b", ephemeral=True), EphemeralParentError, "/a/b")


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/\0", "/a\x1fb", "/\x7f"]
)
def test_a_bad_path_is_a_value_error(session: Session, path: str) -> None:
    """Each verb checks the path before it sends a request."""
    for call in (
        lambda: session.get(path),
        lambda: session.children(path),
        lambda: session.create(path),
        lambda: session.set(path, b""),
        lambda: session.delete(path),
        lambda: session.watch(path, print),
        lambda: session.watch_children(path, print),
        lambda: session.multi([Check(path, 0)]),
    ):
        with pytest.raises(ValueError, match=r"path of a znode"):
            call()


def test_wrong_types_are_refused(session: Session) -> None:
    """Wrong types are refused before any change."""
    session.create("/a")
    wrong: list[Any] = [
        lambda: session.create("/b", "text"),  # type: ignore[arg-type]
        lambda: session.set("/a", None),  # type: ignore[arg-type]
        lambda: session.get(b"/a"),  # type: ignore[arg-type]
        lambda: session.set("/a", b"", version="0"),  # type: ignore[arg-type]
        lambda: session.set("/a", b"", version=True),
        lambda: session.multi([Check("/a", None)]),  # type: ignore[arg-type]
        lambda: session.multi(["/a"]),  # type: ignore[list-item]
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    for version in (-1, 2**31):
        with pytest.raises(ValueError, match="is not from 0 to"):
            session.delete("/a", version=version)
    assert session.get("/a").version == 0


def test_a_request_has_at_most_a_mebibyte(session: Session) -> None:
    """A larger request is refused before it is sent; the largest request works."""
    most = REQUEST_BYTES_MAX - OPERATION_BYTES - len("/a")
    session.create("/a", b"x" * most)
    assert len(session.get("/a").data) == most
    with pytest.raises(LimitError) as caught:
        session.set("/a", b"x" * (most + 1))
    assert caught.value.limit == "REQUEST_BYTES_MAX"
    with pytest.raises(LimitError):
        session.multi([Create("/b", b"x" * most), Create("/c")])
    assert session.children("/") == ["a"]


# --- ephemeral and sequential znodes --------------------------------------------------------------


def test_an_ephemeral_znode_ends_with_its_session(session: Session, other: Session) -> None:
    """The session's close deletes exactly its own ephemeral znodes."""
    made = other.create("/mine", ephemeral=True)
    assert made.ephemeral_owner == other.key.session_id
    session.create("/theirs", ephemeral=True)
    session.create("/parent")
    other.create("/parent/child", ephemeral=True)
    other.create("/stays")
    other.close()
    assert session.children("/") == ["parent", "stays", "theirs"]
    assert session.children("/parent") == []


def test_sequential_names_rise(session: Session, other: Session) -> None:
    """Each parent has its own count of ten digits, which never falls."""
    session.create("/p")
    names = [(session, other)[i % 2].create("/p/n-", sequence=True).path for i in range(4)]
    other.delete(names[-1])
    names.append(session.create("/p/n-", sequence=True, ephemeral=True).path)
    (made,) = session.multi([Create("/p/n-", sequence=True)])
    assert made
    names.append(made.path)
    assert all(re.fullmatch(r"/p/n-\d{10}", name) for name in names)
    assert names == sorted(set(names))
    assert session.create("/q-", sequence=True).path != session.create("/q-", sequence=True).path


def test_a_znode_without_a_prefix_of_its_number_is_refused(session: Session) -> None:
    """The name before the number must not be empty."""
    session.create("/p")
    with pytest.raises(ValueError, match="not the path"):
        session.create("/p/", sequence=True)


# --- multi ----------------------------------------------------------------------------------------


def test_a_multi_is_one_change(session: Session) -> None:
    """All operations have the same zxid, and each sees the results of those before it."""
    session.create("/old", b"x")
    one, two, three, four, five = session.multi([
        Create("/a", b"1"),
        Set("/a", b"2", version=0),
        Create("/a/b", ephemeral=True),
        Delete("/old", version=0),
        Check("/a", 1),
    ])  # fmt: skip
    assert one and two and three and four is None and five is None
    assert one.mzxid == two.mzxid == three.mzxid == session.zxid()
    assert (one.version, two.version, three.ephemeral_owner) == (0, 1, session.key.session_id)
    assert session.get("/a") == two
    assert session.children("/") == ["a"]
    session.multi([Delete("/a/b"), Delete("/a")])
    assert session.children("/") == []
    assert session.multi([]) == []


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/new"), NodeExistsError),
        (Create("/no/x"), NoNodeError),
        (Create("/e/x"), EphemeralParentError),
        (Set("/a", b"", version=7), BadVersionError),
        (Set("/no", b""), NoNodeError),
        (Delete("/a", version=7), BadVersionError),
        (Delete("/no"), NoNodeError),
        (Delete("/new"), NotEmptyError),
        (Check("/a", 7), BadVersionError),
        (Check("/gone", 0), NoNodeError),
    ],
)
def test_a_refused_multi_changes_nothing(session: Session, last: Any, kind: Any) -> None:
    """The error is that of the first refused operation, with its place."""
    session.create("/a", b"x")
    session.create("/gone")
    session.create("/e", ephemeral=True)
    before = [session.get(path) for path in ("/a", "/gone", "/e")]
    heard = Heard[Event]()
    session.watch("/a", heard)
    first: list[Operation] = [
        Create("/new"),
        Create("/new/child"),
        Set("/a", b"y"),
        Delete("/gone"),
    ]
    error = refused(lambda: session.multi([*first, last, Delete("/no")]), kind, last.path)
    assert error.operation == 4
    assert [session.get(path) for path in ("/a", "/gone", "/e")] == before
    assert session.children("/") == ["a", "e", "gone"]
    assert heard.all_until_now(session, session) == []


def test_writers_with_versions_lose_no_update(connect: Connect) -> None:
    """No increment of several sessions and threads is lost."""
    sessions = [connect() for _ in range(4)]
    sessions[0].create("/n", b"0")

    def count(session: Session) -> None:
        for _ in range(25):
            while True:
                now = session.get("/n")
                try:
                    session.set("/n", b"%d" % (int(now.data) + 1), version=now.version)
                    break
                except BadVersionError:
                    continue

    threads = [threading.Thread(target=count, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert sessions[0].get("/n")[1:] == (b"100", *sessions[0].get("/n")[2:4], 100, 0)


def test_regression_a_multi_does_the_operations_of_a_generator(session: Session) -> None:
    """Before, the check consumed the generator, and the change did nothing."""
    made = session.multi(Create(path) for path in ("/a", "/b"))
    assert [znode and znode.path for znode in made] == ["/a", "/b"]
    assert session.children("/") == ["a", "b"]
