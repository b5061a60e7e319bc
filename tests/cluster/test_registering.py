"""A running broker's registration, when log dirs are added, fail at once, and are removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NotConnectedError
from cluster import znodes
from cluster.host_dirs import DirEntry
from cluster.presence import boots, dir_facts
from cluster.pure.attest import FailureRecord
from support.registered_dirs import Broker


@pytest.fixture
def coordination(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as store:
        session = store.connect()
        for path in znodes.PARENTS:
            session.create(path)
        yield store


def registered(one: Broker) -> set[str]:
    """Name the log dirs of a broker's registration."""
    path = znodes.broker_path(1)
    znode = one.session.get(path)
    node = znodes.parse_registration(znode.data, path, znode.czxid, znode.mzxid)
    assert node.registration.registration_epoch == one.host.registration_epoch
    return set(node.registration.dir_epochs)


def test_log_dirs_are_added_and_removed(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """Each change writes the registration again, and no other log dir gets a new epoch."""
    one = Broker(tmp_path, coordination.connect()).start()
    first, other = one.store.log_dirs
    epochs = [one.host.dirs[path].epoch for path in (first, other)]
    one.store.add_dir(tmp_path / "c")
    added = str(tmp_path / "c")
    one.registering.added(added)
    new = dir_facts.directory_ids(one.store)[added]
    assert registered(one) == {"id-a", "id-b", new} and one.host.are_all_good
    assert one.host.dirs[added].whole_since == one.host.registration_epoch > one.host.broker_epoch
    assert one.records.read(new) is FailureRecord.NONE
    entry = dir_facts.read_entry(one.store, added)
    assert entry is not None and entry.whole_since == one.host.registration_epoch
    one.registering.removed(other)  # an event about an earlier log dir of this path
    assert registered(one) == {"id-a", "id-b", new}
    one.store.remove_dir(other)
    one.registering.removed(other)
    one.registering.removed(other)
    one.registering.failed(other)
    one.registering.returned(other)
    one.registering.added(other)
    assert registered(one) == {"id-a", new} and one.host.are_all_good
    assert [one.host.dirs[path].epoch for path in (first, other)] == [epochs[0], 0]
    one.session.delete(znodes.broker_path(1))
    one.registering.register_again()
    assert registered(one) == {"id-a", new}
    one.registering.withdraw()
    stopped = dir_facts.read_entry(one.store, added)
    assert stopped is not None and stopped.is_stopped_cleanly
    one.kill()


def test_regression_a_replaced_disk_is_known_by_its_new_id(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """The next start found no record of the new id, so the log dir counted as lossy."""
    one = Broker(tmp_path, coordination.connect()).start()
    other = one.store.log_dirs[1]
    one.store.take_offline(other)
    one.registering.failed(other)
    shutil.rmtree(other)
    Path(other).mkdir()
    one.store.reopen_dir(other, format_new=True)
    one.registering.returned(other)
    new = dir_facts.directory_ids(one.store)[other]
    assert registered(one) == {"id-a", new} and one.host.are_all_good
    assert one.records.read("id-b") is FailureRecord.RECORDED  # the old disk lacks records
    assert one.records.read(new) is FailureRecord.NONE
    one.kill()


def test_a_kill_right_after_a_log_dir_was_added(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """Its entry of an earlier time says nothing: what it had may be lost (P4)."""
    one = Broker(tmp_path, coordination.connect()).start()
    first, added = one.store.log_dirs
    one.store.remove_dir(added)
    one.registering.removed(added)
    one.store.add_dir(added)
    new = dir_facts.directory_ids(one.store)[added]
    entry = DirEntry(boots.boot_id(), boots.mount_id(added), 1, 1)
    dir_facts.write_entry(one.store, added, entry)
    one.records.clear(new)
    with patch.object(one.session, "set", side_effect=NotConnectedError(1)):
        with pytest.raises(NotConnectedError):
            one.registering.added(added)
        with pytest.raises(NotConnectedError):
            one.registering.repeat()
    assert one.records.read(new) is FailureRecord.RECORDED and not one.host.are_all_good
    noted = dir_facts.read_entry(one.store, first)
    assert noted is not None and noted.failed == {new}
    one.registering.repeat()
    assert one.host.are_all_good and one.records.read(new) is FailureRecord.NONE
    one.kill()


def test_a_log_dir_that_fails_before_the_broker_hears_of_it(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """It counts as bad, so that no replica is created in place of one that it may have (P17)."""
    one = Broker(tmp_path, coordination.connect()).start()
    one.store.add_dir(tmp_path / "c")
    added = str(tmp_path / "c")
    one.registering.failed(added)
    assert not one.host.are_all_good and one.ended == [added]
    one.registering.returned(added)
    assert one.host.are_all_good
    one.kill()
