"""Give all tests here one ZooKeeper, and both kinds of coordination store."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.verbs import Session, SessionKey, Store
from cluster.zookeeper import ZooKeeperStore
from support.cut_session import Cut
from support.heard import Connect
from support.lanes import scope_of
from support.tcp_link import TcpLink
from support.zookeeper_process import ZooKeeperProcess, zookeeper

SESSION_MS, REQUEST_MS = 600_000, 60_000  # a busy machine is no failure
numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that the tests that use the ZooKeeper are in its lane: each worker would start one."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        params = getattr(getattr(item, "callspec", None), "params", {})
        uses_zookeeper = "server" in names or params.get("store") == "zookeeper"
        is_elsewhere = scope_of(item.nodeid) != "zookeeper" and "/test_" in item.nodeid
        if uses_zookeeper and is_elsewhere:
            raise pytest.UsageError(f"{item.nodeid} belongs into the lane of ZooKeeper")


@pytest.fixture
def leaky_clients() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open after a broker refused a connection.

    The test ignores the warnings about them, so they must not wait for a later test.
    """
    yield
    gc.collect()


@pytest.fixture(scope="session")
def server() -> Iterator[ZooKeeperProcess]:
    """Run a ZooKeeper for the whole session of a worker."""
    with zookeeper() as process:
        yield process


@pytest.fixture
def zookeeper_store(server: ZooKeeperProcess) -> ZooKeeperStore:
    """Return a path of the ZooKeeper that no other test uses."""
    return ZooKeeperStore(
        f"{server.hosts}/tests/{next(numbers)}",
        session_timeout_ms=SESSION_MS,
        request_timeout_ms=REQUEST_MS,
    )


@pytest.fixture(params=["embedded", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return an empty store of either kind."""
    if request.param == "zookeeper":
        yield request.getfixturevalue("zookeeper_store")
        return
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with EmbeddedStore([str(tmp_path / "a"), str(tmp_path / "b")]) as embedded:
        yield embedded


@pytest.fixture
def connect(store: Store) -> Iterator[Connect]:
    """Return a function that connects to the store; close its sessions after the test."""
    sessions: list[Session] = []

    def connect(key: SessionKey | None = None) -> Session:
        sessions.append(store.connect(key))
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()


@pytest.fixture
def session(connect: Connect) -> Session:
    """Return a session of the store."""
    return connect()


@pytest.fixture
def other(connect: Connect) -> Session:
    """Return a second session of the store."""
    return connect()


@pytest.fixture
def make_cut(
    server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore
) -> Iterator[Callable[..., Cut]]:
    """Return a function that makes a session whose connection can be cut."""
    made: list[Session] = []
    with TcpLink(server.port) as link:

        def make(session_ms: int = 600_000) -> Cut:
            store = ZooKeeperStore(
                f"127.0.0.1:{link.port},127.0.0.1:{link.port}{zookeeper_store.chroot}",
                session_timeout_ms=session_ms,
                request_timeout_ms=REQUEST_MS,
            )
            other = zookeeper_store.connect()
            made.append(other)
            cut = Cut(link, store, other)
            made.append(cut.session)
            return cut

        yield make
        link.cut()  # no answer is waited for that was swallowed
        link.heal()
        for session in made:
            session.close()


@pytest.fixture
def cut(make_cut: Callable[..., Cut]) -> Cut:
    """Return a session whose connection can be cut."""
    return make_cut()
