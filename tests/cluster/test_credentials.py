"""Test that a broker authenticates at ZooKeeper with a file that only its owner can read."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.coordination.errors import AccessDeniedError
from cluster import znodes
from cluster.errors import ClusterStartError
from cluster.process.credentials import read_credentials
from cluster.process.joining import join
from cluster.zookeeper import Credentials, ZooKeeperStore
from logstore import LogStore
from support.places import fast_directory
from support.zookeeper_process import ZooKeeperProcess


def pause(seconds: float) -> None:
    """Wait."""
    threading.Event().wait(seconds)


def file_of(directory: Path, text: str, mode: int = 0o600) -> str:
    """Write a file of credentials."""
    path = directory / "zookeeper.secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("text", ["ann:a b:c", "ann:a b:c\n", "ann:a b:c\r\n"])
def test_a_file_has_one_line(tmp_path: Path, text: str) -> None:
    """The password may have colons and spaces."""
    assert read_credentials(file_of(tmp_path, text)) == Credentials("ann", "a b:c")


@pytest.mark.parametrize(
    "text", ["", "ann", "ann:", ":secret", "ann:1\nbob:2\n", "a:" + "x" * 5000]
)
def test_another_content_is_refused(tmp_path: Path, text: str) -> None:
    """The error shows the right form, but not the content of the file."""
    with pytest.raises(ClusterStartError, match="user:password") as error:
        read_credentials(file_of(tmp_path, text))
    assert "secret'" not in str(error.value) and "bob" not in str(error.value)


def test_regression_other_bytes_than_utf_8_are_refused(tmp_path: Path) -> None:
    """Before, these bytes were replaced, so the broker sent another password."""
    path = Path(file_of(tmp_path, ""))
    path.write_bytes("ann:pä".encode("latin-1"))
    with pytest.raises(ClusterStartError, match="user:password") as error:
        read_credentials(str(path))
    assert error.value.__cause__ is None and error.value.__context__ is None
    path.write_bytes("ann:pä".encode())
    assert read_credentials(str(path)) == Credentials("ann", "pä")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The same holds if other users can change the file."""
    with pytest.raises(ClusterStartError, match=r"users other than its owner.*chmod 600"):
        read_credentials(file_of(tmp_path, "ann:1", mode))


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """A directory is refused, too."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ClusterStartError, match="cannot be read"):
            read_credentials(str(path))


def test_others_can_neither_read_nor_write(
    server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore, tmp_path: Path
) -> None:
    """With `zookeeper.set.acl`, only its user may access the znodes of a broker."""
    zookeeper_store.connect().close()  # makes the parents for everybody
    hosts = server.hosts + zookeeper_store.chroot
    config = BrokerConfig(
        zookeeper_connect=f"{hosts}/secret",
        zookeeper_session_timeout_ms=2_000,
        zookeeper_set_acl=True,
    )
    with (
        pytest.raises(ClusterStartError, match=r"needs zookeeper\.credentials\.file"),
        join([str(tmp_path / "a")], config, "/dev/shm/none", pause),
    ):
        pass
    config = replace(config, zookeeper_credentials_file=file_of(tmp_path, "ann:1\n"))
    with (
        fast_directory() as base,
        join([str(base / "a")], config, str(base / "records"), pause) as joined,
        LogStore.open([str(base / "a")], config=config.store_config.replace(broker_id=1)) as store,
        joined.start(store),
    ):
        assert joined.broker == 1001
        with (
            ZooKeeperStore(f"{hosts}/secret").connect() as stranger,
            pytest.raises(AccessDeniedError),
        ):
            stranger.get(znodes.CONTROLLER)
        friend = ZooKeeperStore(f"{hosts}/secret", credentials=Credentials("ann", "1"))
        with friend.connect() as session:
            assert session.children(znodes.BROKERS) == ["1001"]
