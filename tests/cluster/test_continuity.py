"""Test that a wiped, foreign or restored coordination store is recognised and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.coordination import continuity
from broker.coordination.continuity import CLUSTER_ID, Cluster, Remembered
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import (
    BadZnodeError,
    OtherClusterError,
    StoreRestoredError,
    StoreWipedError,
)
from broker.coordination.verbs import Session
from cluster.zookeeper import ZooKeeperStore
from support.zookeeper_process import ZooKeeperProcess


def test_a_cluster_is_founded_once(session: Session, other: Session) -> None:
    """If a later caller names another id, the first id stays."""
    assert continuity.read_cluster(session) is None
    cluster = continuity.found_cluster(session, "abc")
    assert cluster == ("abc", session.get(CLUSTER_ID).czxid)
    assert continuity.found_cluster(other, "xyz") == cluster
    assert continuity.read_cluster(other) == cluster
    with pytest.raises(ValueError, match="not the id of a cluster"):
        continuity.found_cluster(session, "")


def test_a_store_that_continues_is_accepted(session: Session, other: Session) -> None:
    """Any changes are accepted, and each broker is checked by itself."""
    continuity.found_cluster(session, "abc")
    first = continuity.remember(session, "1")
    second = continuity.remember(other, "2")
    for _ in range(3):
        other.create("/n-", sequence=True)
        continuity.check(session, "1", first)
        continuity.check(other, "2", second)
        second = continuity.remember(other, "2")
    assert Remembered.of(list(first)) == first


def test_a_wiped_store_is_refused(session: Session) -> None:
    """The wiped store is empty, or was used again by another cluster, or with the same id."""
    continuity.found_cluster(session, "abc")
    remembered = continuity.remember(session, "1")
    session.delete(CLUSTER_ID)
    with pytest.raises(StoreWipedError, match="cluster abc used it") as wiped:
        continuity.check(session, "1", remembered)
    assert wiped.value.cluster_id == "abc"
    with pytest.raises(StoreWipedError):
        continuity.remember(session, "1")
    for cluster_id in ("xyz", "abc"):
        cluster = continuity.found_cluster(session, cluster_id)
        with pytest.raises(OtherClusterError) as other:
            continuity.check(session, "1", remembered)
        assert (other.value.expected, other.value.found) == (remembered[:2], cluster)
        session.delete(CLUSTER_ID)


def test_a_lower_zxid_is_refused(session: Session) -> None:
    """It is refused even if the broker's own last write is present."""
    continuity.found_cluster(session, "abc")
    remembered = continuity.remember(session, "1")
    later = remembered._replace(zxid=session.zxid() + 1)
    with pytest.raises(StoreRestoredError) as caught:
        continuity.check(session, "1", later)
    assert (caught.value.remembered, caught.value.found) == (later.zxid, later.zxid - 1)


def test_a_missing_witness_is_refused(session: Session) -> None:
    """The store has lost the broker's last write."""
    continuity.found_cluster(session, "abc")
    remembered = continuity.remember(session, "1")
    session.delete(f"{continuity.WITNESSES}/1")
    with pytest.raises(StoreRestoredError) as caught:
        continuity.check(session, "1", remembered)
    assert caught.value.found == 0


def go_on(session: Session) -> None:
    """Make more changes than the restored store lacks, so that its zxid is higher than before."""
    for _ in range(20):
        session.create("/n-", sequence=True)


def test_an_embedded_store_that_was_restored_is_refused(tmp_path: Path) -> None:
    """It is refused, however many changes were made since."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    live.mkdir()
    with EmbeddedStore([str(live)]) as store, store.connect() as session:
        continuity.found_cluster(session, "abc")
        old = continuity.remember(session, "1")
    shutil.copytree(live, copy)
    with EmbeddedStore([str(live)]) as store, store.connect() as session:
        new = continuity.remember(session, "1")
        continuity.check(session, "1", old)
    with EmbeddedStore([str(copy)]) as store, store.connect() as session:
        continuity.check(session, "1", old)
        go_on(session)
        assert session.zxid() > new.zxid
        with pytest.raises(StoreRestoredError) as caught:
            continuity.check(session, "1", new)
        assert caught.value.remembered == new.witness_mzxid


def test_a_zookeeper_that_was_restored_is_refused(
    server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore
) -> None:
    """A copy of its data directory, which was made while it ran, replaces the newest data."""
    live, copy = server.place / "data", server.place / "copy"
    with zookeeper_store.connect() as session:
        continuity.found_cluster(session, "abc")
        old = continuity.remember(session, "1")
        shutil.copytree(live, copy)
        new = continuity.remember(session, "1")
    server.kill()
    shutil.rmtree(live)
    shutil.move(copy, live)
    server.start()
    with zookeeper_store.connect() as session:
        continuity.check(session, "1", old)
        go_on(session)
        assert session.zxid() > new.zxid
        with pytest.raises(StoreRestoredError):
            continuity.check(session, "1", new)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"[]", b"{}", b'{"id":1}', b'{"id":""}', b'{"id":"\\n"}', b"[" * 9000, b"\xff"],
)
def test_a_bad_cluster_id_is_an_error_with_its_path(session: Session, data: bytes) -> None:
    """A bad cluster id is not mistaken for a missing one."""
    continuity.ensure(session, CLUSTER_ID)
    session.set(CLUSTER_ID, data)
    with pytest.raises(BadZnodeError) as caught:
        continuity.check(session, "1", Remembered("abc", 1, 2, 3))
    assert caught.value.path == CLUSTER_ID
    assert caught.value.reason


def test_kafkas_own_id_is_read(session: Session) -> None:
    """The fields that Kafka writes can be read."""
    continuity.ensure(session, "/cluster")
    made = session.create(CLUSTER_ID, b'{"version":"1","id":"M3R5t2J1Q7qz0Zr0Yc0bNg"}')
    assert continuity.read_cluster(session) == Cluster("M3R5t2J1Q7qz0Zr0Yc0bNg", made.czxid)


@pytest.mark.parametrize(
    "values",
    [None, [], ["a", 1, 2], ["a", 1, 2, "3"], ["", 1, 2, 3], [1, 1, 2, 3], ["a", -1, 2, 3],
     ["a", True, 2, 3], {"a": 1}, ["a", 1, 2, 3, 4]],
)  # fmt: skip
def test_what_was_remembered_is_checked(values: object) -> None:
    """The stored values come from a disk, so they are checked."""
    with pytest.raises(ValueError, match="is not a cluster id and three zxids"):
        Remembered.of(values)


def test_paths_are_made_with_their_parents(session: Session) -> None:
    """Existing parents are not created again."""
    for _ in range(2):
        continuity.ensure(session, "/a/b/c")
    assert session.children("/a/b") == ["c"]
    continuity.ensure(session, "/")
