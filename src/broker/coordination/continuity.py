"""Recognise a coordination store that was wiped, replaced, or restored from an older copy.

If a broker used a store that was wiped, replaced or restored, the broker would use wrong facts. So
each broker stores four values durably, next to its logs:

    cluster_id       the id of the cluster
    cluster_czxid    the zxid at which `/cluster/id` was created
    witness_mzxid    the zxid of the last write to the broker's *witness*: a znode of this broker
                     that no other broker writes
    zxid             the highest zxid that the broker has seen

If a store was wiped, it has no cluster id, or its cluster id was created again. If a store was
restored, it has an older witness, even if many changes were made after the restore.

If a restored store lacks only changes that were made after the last call of `remember`, it still
has the present witness. The broker notices such a loss only if the store's zxid is below the
remembered zxid. So a broker calls `remember` from time to time.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from broker.coordination.errors import (
    BadZnodeError,
    NodeExistsError,
    NoNodeError,
    OtherClusterError,
    StoreRestoredError,
    StoreWipedError,
)
from broker.coordination.paths import ROOT, check_path, parent_of
from broker.coordination.verbs import Session

CLUSTER_ID = "/cluster/id"
WITNESSES = "/logstore/witnesses"
ID_LENGTH_MAX = 249
ZXID_MAX = 2**63 - 1


class Remembered(NamedTuple):
    """The facts that a broker stores durably about its store, as a list of values.

    Attributes:
        cluster_czxid: the zxid at which `/cluster/id` was created.
        witness_mzxid: the zxid of the broker's last write to its witness.
        zxid: the highest zxid of the store that the broker has seen.
    """

    cluster_id: str
    cluster_czxid: int
    witness_mzxid: int
    zxid: int

    @classmethod
    def of(cls, values: object) -> Remembered:
        """Check a stored list, and return its values. Raises ValueError."""
        match values:
            case [str(cluster_id), int(czxid), int(witness), int(zxid)]:
                numbers = (czxid, witness, zxid)
                if _is_id(cluster_id) and all(map(_is_zxid, numbers)):
                    return cls(cluster_id, *numbers)
        raise ValueError(f"{values!r} is not a cluster id and three zxids")


def _is_zxid(value: object) -> bool:
    return type(value) is int and 0 <= value <= ZXID_MAX


def _is_id(value: str) -> bool:
    return 0 < len(value) <= ID_LENGTH_MAX and value.isprintable()


class Cluster(NamedTuple):
    """The id of a cluster, and the zxid at which it was written."""

    cluster_id: str
    czxid: int


def read_cluster(session: Session) -> Cluster | None:
    """Read the id of the cluster that uses a store; None if no cluster uses it.

    Raises:
        BadZnodeError: the data does not have the form that Kafka or this library writes.
    """
    try:
        znode = session.get(CLUSTER_ID)
    except NoNodeError:
        return None
    try:
        document = json.loads(znode.data)
    except (ValueError, RecursionError):
        raise BadZnodeError(CLUSTER_ID, "the data is not JSON") from None
    cluster_id = document.get("id") if isinstance(document, dict) else None
    if not isinstance(cluster_id, str) or not _is_id(cluster_id):
        raise BadZnodeError(CLUSTER_ID, "the field `id` is missing, or is not the id of a cluster")
    return Cluster(cluster_id, znode.czxid)


def found_cluster(session: Session, cluster_id: str) -> Cluster:
    """If the store has no cluster id, write this id. Return the id that the store has."""
    if not _is_id(cluster_id):
        raise ValueError(f"{cluster_id!r} is not the id of a cluster")
    data = json.dumps({"version": "1", "id": cluster_id}).encode()
    try:
        ensure(session, parent_of(CLUSTER_ID))
        return Cluster(cluster_id, session.create(CLUSTER_ID, data).czxid)
    except NodeExistsError:
        known = read_cluster(session)
        if known is None:
            raise BadZnodeError(CLUSTER_ID, "the znode was deleted during the read") from None
        return known


def ensure(session: Session, path: str) -> None:
    """Create a persistent znode and its parents, if they are missing."""
    if check_path(path) != ROOT:
        try:
            session.create(path)
        except NodeExistsError:
            return
        except NoNodeError:
            ensure(session, parent_of(path))
            ensure(session, path)


def remember(session: Session, name: str) -> Remembered:
    """Write the witness znode of a broker; return the values that the broker must store.

    Args:
        name: the name of the broker's witness, such as the id of the broker.

    Raises:
        StoreWipedError: the store has no cluster id.
    """
    cluster = read_cluster(session)
    if cluster is None:
        raise StoreWipedError(None)
    path = f"{WITNESSES}/{name}"
    ensure(session, path)
    witness = session.set(path, b"")
    return Remembered(*cluster, witness.mzxid, max(witness.mzxid, session.zxid()))


def check(session: Session, name: str, remembered: Remembered) -> None:
    """Check that a store is the store that the broker knows, and not an older state of it.

    Raises:
        StoreWipedError: the store has no cluster id any more.
        OtherClusterError: the store belongs to another cluster, or was wiped and used again.
        StoreRestoredError: the store is in an older state than the broker remembers.
    """
    cluster = read_cluster(session)
    if cluster is None:
        raise StoreWipedError(remembered.cluster_id)
    expected = Cluster(remembered.cluster_id, remembered.cluster_czxid)
    if cluster != expected:
        raise OtherClusterError(expected, cluster)
    zxid = session.zxid()
    if zxid < remembered.zxid:
        raise StoreRestoredError(remembered.zxid, zxid)
    try:
        written = session.get(f"{WITNESSES}/{name}").mzxid
    except NoNodeError:
        written = 0
    if written < remembered.witness_mzxid:
        raise StoreRestoredError(remembered.witness_mzxid, written)
