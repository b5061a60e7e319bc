"""The id of a broker with real log dirs and a real ZooKeeper, whatever the log dirs have lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from cluster.errors import BrokerIdError
from cluster.process.joining import join
from cluster.zookeeper import ZooKeeperStore
from logstore import LogDirIdentityError, LogStore
from support.places import fast_directory
from support.zookeeper_process import ZooKeeperProcess

FIRST = 1001  # the first number of the sequence


class Host:
    """A host on which a broker has run, with the id of the sequence and a partition."""

    def __init__(self, base: Path, hosts: str) -> None:
        self.base, self.hosts = base, hosts
        assert self.start("ab") == FIRST
        with LogStore.open([base / "a", base / "b"]) as store:
            store.create("orders", 0, log_dir=base / "a").append(b"kept")

    def start(self, names: str, configured: int | None = None) -> int:
        """Start and stop a broker; give its id, which is then in all its log dirs that work."""
        paths = [str(self.base / name) for name in names]
        config = BrokerConfig(zookeeper_connect=self.hosts, zookeeper_session_timeout_ms=2_000)
        wished = config.store_config.replace(broker_id=configured)
        config = BrokerConfig(
            zookeeper_connect=self.hosts, zookeeper_session_timeout_ms=2_000, store_config=wished
        )

        def pause(seconds: float) -> None:
            threading.Event().wait(seconds)

        with join(paths, config, str(self.base / "records"), pause) as joined:
            found = wished.replace(broker_id=joined.broker)
            with LogStore.open(paths, config=found) as store, joined.start(store):
                for one in store.describe_dirs().log_dirs:
                    meta = Path(one.path, "meta.properties")
                    assert not one.is_live or f"broker.id={joined.broker}\n" in meta.read_text()
        return joined.broker

    def kept(self) -> list[bytes | None]:
        """Read the partition."""
        with LogStore.open([self.base / "a", self.base / "b"]) as store:
            return [record.value for record in store["orders", 0]]


@pytest.fixture
def host(server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore) -> Iterator[Host]:
    with fast_directory() as base:
        yield Host(base, server.hosts + zookeeper_store.chroot)


def forget(*names: str) -> Callable[[Path], None]:
    """Lose the meta.properties of log dirs."""

    def harm(base: Path) -> None:
        for name in names:
            (base / name / "meta.properties").unlink()

    return harm


def empty(*names: str) -> Callable[[Path], None]:
    """Lose everything in log dirs."""

    def harm(base: Path) -> None:
        for name in names:
            shutil.rmtree(base / name)
            (base / name).mkdir()

    return harm


@pytest.mark.parametrize(
    ("harm", "is_kept"),
    [(forget("a"), True), (forget("b"), True), (forget("a", "b"), True), (empty("b"), True),
     (empty("a", "b"), False)],
    ids=["one id is lost", "the other id is lost", "both ids are lost", "a disk is empty", "all"],
)  # fmt: skip
def test_a_broker_keeps_its_id(host: Host, harm: Callable[[Path], None], is_kept: bool) -> None:
    """From the log dirs that still have it, else from /brokers/hosts.

    Regression: if both ids were lost, the broker took the id 0, and refused to start.
    """
    harm(host.base)
    assert host.start("ab") == FIRST
    assert host.start("ab", FIRST) == FIRST
    if is_kept:
        assert host.kept() == [b"kept"]


def test_log_dirs_of_two_brokers_are_refused(host: Host) -> None:
    """Also if the configuration agrees with one of them; and so is a configured id of another."""
    assert host.start("c", 7) == 7
    for configured in (None, FIRST, 7):
        with pytest.raises(LogDirIdentityError, match="leave out one of these two log dirs"):
            host.start("ac", configured)
    with pytest.raises(BrokerIdError, match=f"is 5, but .*/a belongs to broker {FIRST}"):
        host.start("ab", 5)
    assert host.start("d") == 7  # the last id of this host, whose broker does not run
    assert host.start("ab") == FIRST
    assert host.kept() == [b"kept"]
