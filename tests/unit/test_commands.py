"""A store's commands do the same as its methods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogStore, PartitionExistsError, UnknownPartitionError
from logstore.store.admin.client import AdminClient, find_owner

# Python 3.12 and later warn of a fork among threads, which is just what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        yield store


@pytest.fixture
def owner(store: LogStore) -> AdminClient:
    owner = find_owner(store.log_dirs)
    assert owner is not None
    return owner


def test_partitions_are_made_mended_and_deleted(store: LogStore, owner: AdminClient) -> None:
    """Commands from outside and inside do the same, with the same errors."""
    place = store.log_dirs[1]
    arguments = {"topic": "orders", "partition": 0, "log_dir": place}
    made = owner.call("create", {**arguments, "config": {"segment_bytes": "1MiB"}})
    assert made == arguments
    assert store["orders", 0].config.segment_bytes == 1 << 20
    with pytest.raises(PartitionExistsError) as raised:
        owner.call("create", arguments)
    assert raised.value.partition == 0
    name = {"topic": "orders", "partition": 0}
    assert owner.call("repair", name) == {**name, "quarantined": [], "lost": [], "mended": []}
    assert owner.call("delete", name) == name
    with pytest.raises(UnknownPartitionError):
        owner.call("delete", name)
    with pytest.raises(ValueError, match="segment_bytes"):
        owner.call("create", {**arguments, "config": {"segment_bytes": "lots"}})
    with pytest.raises(TypeError, match="colour"):
        owner.call("create", {**arguments, "colour": "red"})


def test_the_document_is_the_one_of_kip_113(store: LogStore, owner: AdminClient) -> None:
    """The description through the socket is the same as in the process."""
    store.create("orders", 0).append(b"x")
    assert owner.call("describe_dirs") == store.describe_dirs().to_dict()
    chosen = owner.call("describe_dirs", {"log_dirs": [store.log_dirs[0]], "topics": ["none"]})
    assert [entry["path"] for entry in chosen["log_dirs"]] == [store.log_dirs[0]]


def test_a_forked_child_does_not_keep_the_socket(store: LogStore, owner: AdminClient) -> None:
    """The child has no descriptor of the socket: a dead owner does not answer, a parent does."""
    server = store.admin._server
    assert server is not None
    fds = [server._listener.fileno(), server._wakes.fileno(), server._waker.fileno()]
    child = os.fork()
    if child == 0:
        held = [fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")]
        os._exit(len(held))
    assert os.waitpid(child, 0)[1] == 0
    assert owner.call("ping")["pid"] == os.getpid()
