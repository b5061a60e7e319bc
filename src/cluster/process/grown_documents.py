"""Bring the ACLs, quotas and users of a single broker into a cluster.

    nothing -> /cluster/growth is "begun" -> it is "done" the documents are made equal they belong
                 to the cluster

Before the growth begins, each document in the cluster must be equal to a document of the broker.
After the growth has begun, all documents in the cluster are copies that an earlier attempt made.
The broker may have run alone since then. So each attempt makes the documents in the cluster equal
to the documents of the broker. After the growth, nothing is copied any more: a user or an ACL that
was removed from the cluster does not come back.

When a broker starts, it makes a key for made-up credentials (`login_decoys`), so the cluster may
already have a key. The key of the single broker replaces the key of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from broker.catalog.admin import login_decoys
from broker.catalog.admin.features import KIND as FEATURES
from broker.catalog.topic_store import TopicStore
from broker.coordination.continuity import ensure
from broker.coordination.errors import NoNodeError
from broker.coordination.shared_documents import ROOT
from broker.coordination.verbs import (
    OPERATION_BYTES,
    REQUEST_BYTES_MAX,
    Create,
    Delete,
    Operation,
    Session,
    Set,
)
from broker.security.user_settings import USERS
from cluster.errors import ClusterGrowthError
from logstore import LogStore

GROWTH, BEGUN, DONE = "/cluster/growth", b"begun", b"done"
DECOYS = f"{ROOT}/{login_decoys.KIND}"
PART_BYTES = REQUEST_BYTES_MAX // 2  # the largest change that writes several documents

Documents = Mapping[str, Mapping[str, bytes]]  # by path of the parent and name of the znode


class Change(NamedTuple):
    """A change that makes a document of the cluster equal to the document of the broker."""

    operation: Operation
    size_bytes: int


def documents_of(store: LogStore) -> Documents:
    """Read the documents and users of a store that no broker serves. Raises CoordinationError."""
    recorded = TopicStore.of(store)
    try:
        return recorded.in_session(read_documents)
    finally:
        recorded.release()


def read_documents(session: Session) -> Documents:
    """Read the documents of all kinds, and the users. Raises CoordinationError.

    The levels of features are left out, because a cluster has its own levels, which all its brokers
    support.
    """
    parents = [f"{ROOT}/{kind}" for kind in _children(session, ROOT) if kind != FEATURES]
    found = {parent: _read(session, parent) for parent in [*parents, USERS]}
    return {parent: documents for parent, documents in found.items() if documents}


def check_documents(session: Session, wanted: Documents) -> None:
    """Check that the growth may begin, or has begun.

    Raises:
        ClusterGrowthError: the cluster has documents that are not copies of the broker's documents.
            The caller must check this before the broker obeys the controller.
        CoordinationError: the coordination store cannot be read now.
    """
    if _state_of(session) is not None:
        return
    for parent, documents in read_documents(session).items():
        if parent == DECOYS:
            continue
        for name, data in sorted(documents.items()):
            if wanted.get(parent, {}).get(name) != data:
                kind = "user" if parent == USERS else parent.removeprefix(f"{ROOT}/")
                reason = f"the cluster has {kind} of its own, which this broker does not have"
                raise ClusterGrowthError(reason=f"{reason}, or has differently: {unquote(name)}")


def take_documents(session: Session, wanted: Documents) -> int:
    """Unless the documents were already written into a cluster, write them; return their number.

    After an error or a crash, the caller must call again.

    Raises:
        ClusterGrowthError: see `check_documents`.
        CoordinationError: the coordination store refused a request.
    """
    check_documents(session, wanted)
    state = _state_of(session)
    if state == DONE:
        return 0
    if state is None:
        ensure(session, GROWTH)
        session.set(GROWTH, BEGUN)
    for parent in sorted({*wanted, *read_documents(session)}):
        if parent == DECOYS and parent not in wanted:
            continue
        ensure(session, parent)
        _make_equal(session, parent, wanted.get(parent, {}))
    session.set(GROWTH, DONE)
    return sum(len(documents) for parent, documents in wanted.items() if parent != DECOYS)


def _state_of(session: Session) -> bytes | None:
    """Read the state of the growth; None if it has not begun."""
    try:
        return session.get(GROWTH).data or None
    except NoNodeError:
        return None


def _make_equal(session: Session, parent: str, wanted: Mapping[str, bytes]) -> None:
    """Change the documents of one parent, in parts.

    Each part also writes the parent, so that the brokers that follow its documents notice the
    change.
    """
    part: list[Operation] = []
    size = 0
    for one in _changes(parent, _read(session, parent), wanted):
        if part and size + one.size_bytes > PART_BYTES:
            session.multi([Set(parent, b""), *part])
            part, size = [], 0
        part.append(one.operation)
        size += one.size_bytes
    if part:
        session.multi([Set(parent, b""), *part])


def _changes(
    parent: str, present: Mapping[str, bytes], wanted: Mapping[str, bytes]
) -> Iterator[Change]:
    for name in sorted({*present, *wanted}):
        path, data = f"{parent}/{name}", wanted.get(name)
        size_bytes = OPERATION_BYTES + len(path.encode()) + len(data or b"")
        if data is None:
            yield Change(Delete(path), size_bytes)
        elif name not in present:
            yield Change(Create(path, data), size_bytes)
        elif present[name] != data:
            yield Change(Set(path, data), size_bytes)


def _read(session: Session, parent: str) -> dict[str, bytes]:
    found = {}
    for name in _children(session, parent):
        try:
            found[name] = session.get(f"{parent}/{name}").data
        except NoNodeError:  # the document was deleted just now
            continue
    return found


def _children(session: Session, path: str) -> list[str]:
    try:
        return session.children(path)
    except NoNodeError:
        return []
