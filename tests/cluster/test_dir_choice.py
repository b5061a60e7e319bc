"""Test the choice of a new replica's log dir: the requested one, or the least used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.pure.attest import DirFailed, Host
from cluster.run.dir_choice import DirChoice, dir_choice, fewest_replicas
from logstore import LogStore


class Broker:
    """A store with three working log dirs."""

    def __init__(self, root: Path) -> None:
        self.store = LogStore.open([root / name for name in "abc"], admin_socket=False)
        self.paths = self.store.log_dirs
        self.host = Host(1, self.paths)
        for path in self.paths:
            self.host.dirs[path].is_good = True
        self.choose: DirChoice = dir_choice(self.host, self.store)

    def chosen(self, *counts: int) -> int:
        """Return the number of the log dir for a new replica."""
        by_path = dict(zip(self.paths, counts, strict=True))
        return self.paths.index(self.choose("orders", 0, by_path))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.store.close()


def test_the_log_dir_with_the_fewest_replicas(broker: Broker) -> None:
    """Of several such log dirs, the first one is chosen."""
    assert broker.chosen(0, 0, 0) == 0
    assert broker.chosen(2, 1, 1) == 1
    assert broker.chosen(2, 1, 0) == 2


def test_the_log_dir_that_was_asked_for(broker: Broker) -> None:
    """The last request counts, whatever the log dir has, and only for its own partition."""
    broker.store.prefer_dir("orders", 0, broker.paths[1])
    broker.store.prefer_dir("orders", 1, broker.paths[0])
    assert broker.chosen(0, 9, 0) == 1
    broker.store.prefer_dir("orders", 0, broker.paths[2])
    assert broker.chosen(0, 0, 9) == 2


@pytest.mark.parametrize("is_wished", [False, True])
def test_log_dirs_that_take_no_replica(broker: Broker, is_wished: bool) -> None:
    """Log dirs that are cordoned, OFFLINE, or failed for the cluster are not chosen."""
    if is_wished:
        broker.store.prefer_dir("orders", 0, broker.paths[0])
    broker.store.cordon(broker.paths[0])
    assert broker.chosen(0, 5, 7) == 1
    broker.store.take_offline(broker.paths[1])
    assert broker.chosen(0, 5, 7) == 2
    broker.store.reopen_dir(broker.paths[1])
    broker.host.handle(DirFailed(broker.paths[1]), 0.0)
    assert broker.chosen(0, 5, 7) == 2
    broker.store.cordon(broker.paths[2])
    assert broker.chosen(0, 5, 7) == 0  # it works; the creation says that it is cordoned
    assert fewest_replicas(broker.host)("orders", 0, {}) == broker.paths[0]
