"""What a log dir remembers, and what a start concludes from it, with real log dirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NodeExistsError
from cluster import znodes
from cluster.control.topic_rules import rules_of
from cluster.host_dirs import DirEntry
from cluster.presence import boots, dir_facts
from cluster.presence.dir_facts import FailureRecords
from cluster.pure.attest import FailureRecord
from cluster.pure.control_exchange import TopicConfig
from logstore import LogDirFullError, LogDirSuspectError, LogStore
from logstore.disk import files
from support.registered_dirs import Broker

ENTRY = DirEntry("boot", "mount", 5, 3, failed=frozenset({"other"}))


@pytest.fixture
def coordination(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as store:
        session = store.connect()
        for path in znodes.PARENTS:
            session.create(path)
        yield store


def test_an_entry_comes_back(tmp_path: Path) -> None:
    """Whatever else is in its place is no entry."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        (path,) = store.log_dirs
        assert dir_facts.read_entry(store, path) is None
        dir_facts.write_entry(store, path, ENTRY)
        assert dir_facts.read_entry(store, path) == ENTRY
        good = ["b", "m", 1, 2, False, []]
        changes: list[tuple[int, object]] = [(3, -2), (2, "1"), (5, [1]), (5, {}), (4, 0)]
        for bad in (5, [], good[:4], *({**dict(enumerate(good)), n: v} for n, v in changes)):
            store.facts(path)[dir_facts.ENTRY] = [*bad.values()] if isinstance(bad, dict) else bad
            assert dir_facts.read_entry(store, path) is None


def test_records_of_failures(tmp_path: Path) -> None:
    """A record that cannot be read or written is missing, which counts as a failure."""
    records = FailureRecords(str(tmp_path / "records"))
    assert records.read("a") is FailureRecord.MISSING
    records.clear("a")
    assert records.read("a") is FailureRecord.NONE
    records.record("a")
    assert FailureRecords(str(tmp_path / "records")).read("a") is FailureRecord.RECORDED
    (tmp_path / "records/a").write_bytes(b"something else")
    assert records.read("a") is FailureRecord.MISSING
    records.clear("a")
    with patch.object(files, "write_atomically", side_effect=OSError("full")):
        records.record("a")
    assert records.read("a") is FailureRecord.MISSING


def test_a_killed_broker_loses_nothing(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """Its log dirs are whole since their first registration, as long as the machine runs."""
    first = Broker(tmp_path, coordination.connect()).start()
    since = first.since
    assert since == [first.host.broker_epoch] * 2
    first.kill()
    second = Broker(tmp_path, coordination.connect()).start()
    assert second.since == since and second.host.broker_epoch > since[0]
    second.kill()
    with patch.object(boots, "boot_id", lambda: "another boot"):
        third = Broker(tmp_path, coordination.connect()).start()
    assert third.since == [third.host.broker_epoch] * 2
    third.kill()


def test_a_clean_stop_outlives_a_boot(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """Everything was flushed; and the registration is gone at once."""
    first = Broker(tmp_path, coordination.connect()).start()
    since = first.since
    first.registering.withdraw()
    assert coordination.connect().children(znodes.BROKERS) == []
    first.kill()
    with patch.object(boots, "boot_id", lambda: "another boot"):
        second = Broker(tmp_path, coordination.connect()).start()
    assert second.since == since
    second.kill()


def test_a_failed_log_dir_is_not_whole_after_a_kill(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """The record is on tmpfs before anything else; the other log dir is not concerned."""
    first = Broker(tmp_path, coordination.connect()).start()
    path = first.store.log_dirs[0]
    first.registering.failed(path)
    first.registering.failed(path)
    assert first.ended == [path]
    first.kill()
    second = Broker(tmp_path, coordination.connect()).start()
    assert second.since == [second.host.broker_epoch, first.host.broker_epoch]
    second.kill()


def test_regression_a_start_with_an_offline_log_dir(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """The broker registers, and attests the log dirs that work."""
    first = Broker(tmp_path, coordination.connect()).start()
    since = first.since
    first.kill()
    second = Broker(tmp_path, coordination.connect())
    bad, good = second.store.log_dirs
    second.store.take_offline(bad)
    second.start()
    assert [second.host.dirs[path].is_good for path in (bad, good)] == [False, True]
    assert second.since[1] == since[1]
    second.kill()


def test_a_log_dir_that_returns_is_entered_again(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """With a new registration epoch, and the same broker epoch (P3)."""
    one = Broker(tmp_path, coordination.connect(), has_own_ids=False).start()
    (path, other), broker_epoch = one.store.log_dirs, one.host.broker_epoch
    one.registering.failed(path)
    one.registering.returned(path)
    assert one.ended == [path, path]
    znode = coordination.connect().get(znodes.broker_path(1))
    node = znodes.parse_registration(znode.data, znode.path, znode.czxid, znode.mzxid)
    assert node.registration.broker_epoch == broker_epoch == one.host.broker_epoch
    assert node.registration.registration_epoch == one.host.registration_epoch > broker_epoch
    assert node.registration.dir_epochs == {
        one.ids[path]: one.host.registration_epoch,
        one.ids[other]: broker_epoch,
    }
    assert one.since == [one.host.registration_epoch, broker_epoch]
    one.registering.returned(path)  # it works already
    assert coordination.connect().get(znodes.broker_path(1)).mzxid == znode.mzxid
    one.kill()


def test_an_id_is_registered_once(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """By the session that came first."""
    one = Broker(tmp_path, coordination.connect()).start()
    other = Broker(tmp_path / "other", coordination.connect())
    with pytest.raises(NodeExistsError):
        other.start()
    one.kill()
    other.kill()


@pytest.mark.parametrize("is_known", [False, True])
def test_regression_a_broker_starts_with_a_bad_log_dir(
    tmp_path: Path, coordination: EmbeddedStore, is_known: bool
) -> None:
    """The log dir is offline at the start, or fails when its entry is written (KIP-112)."""
    one = Broker(tmp_path, coordination.connect())
    bad, good = one.store.log_dirs
    if is_known:
        one.store.take_offline(bad)
        one.start()
        assert one.records.read("id-a") is FailureRecord.MISSING
    else:
        with patch.object(dir_facts, "write_entry", failing_for(bad, one.store)):
            one.start()
        assert one.records.read("id-a") is FailureRecord.RECORDED
        noted = dir_facts.read_entry(one.store, good)
        assert noted is not None and noted.failed == {"id-a"}
        assert one.ended == [bad]
    assert [one.host.dirs[path].is_good for path in (bad, good)] == [False, True]
    one.kill()


def failing_for(bad: str, store: LogStore) -> Callable[[LogStore, str, DirEntry], None]:
    """Make the write of an entry that takes its log dir offline."""
    write = dir_facts.write_entry

    def call(_: LogStore, log_dir: str, entry: DirEntry) -> None:
        if log_dir == bad:
            store.take_offline(bad)
        write(store, log_dir, entry)

    return call


def test_regression_a_log_dir_fails_at_a_clean_stop(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """It gets no mark, its failure is recorded, and the registration ends."""
    one = Broker(tmp_path, coordination.connect()).start()
    with patch.object(dir_facts, "write_entry", failing_for(one.store.log_dirs[0], one.store)):
        one.registering.withdraw()
    assert one.records.read("id-a") is FailureRecord.RECORDED
    entry = dir_facts.read_entry(one.store, one.store.log_dirs[1])
    assert entry is not None and entry.is_stopped_cleanly and entry.failed == {"id-a"}
    assert coordination.connect().children(znodes.BROKERS) == []
    one.kill()


def refusing_for(
    bad: str, error: type[LogDirFullError] | type[LogDirSuspectError]
) -> Callable[[LogStore, str, DirEntry], None]:
    """Make a log dir that works, but takes no entry."""
    write = dir_facts.write_entry

    def call(store: LogStore, log_dir: str, entry: DirEntry) -> None:
        if log_dir == bad:
            raise error(path=bad)
        write(store, log_dir, entry)

    return call


@pytest.mark.parametrize("error", [LogDirFullError, LogDirSuspectError])
def test_regression_a_failure_ends_roles_although_no_other_log_dir_can_note_it(
    tmp_path: Path,
    coordination: EmbeddedStore,
    error: type[LogDirFullError] | type[LogDirSuspectError],
) -> None:
    """The record on tmpfs is enough until a reboot, and the note is written later (P4)."""
    one = Broker(tmp_path, coordination.connect()).start()
    bad, full = one.store.log_dirs
    with patch.object(dir_facts, "write_entry", refusing_for(full, error)):
        one.registering.failed(bad)
        assert one.records.read("id-a") is FailureRecord.RECORDED and one.ended == [bad]
        one.registering.repeat()
        assert one.registering.is_late
    assert one.host.dirs[full].is_good
    one.registering.repeat()
    noted = dir_facts.read_entry(one.store, full)
    assert noted is not None and noted.failed == {"id-a"} and not one.registering.is_late
    assert one.ended == [bad] and one.records.read("id-b") is FailureRecord.NONE
    one.kill()


def test_regression_a_log_dir_without_its_entry_keeps_its_failure(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """It serves, but record and note stay until its entry is durable (P4)."""
    one = Broker(tmp_path, coordination.connect(), has_own_ids=False).start()
    full, other = one.store.log_dirs
    one.registering.failed(full)
    with patch.object(dir_facts, "write_entry", refusing_for(full, LogDirFullError)):
        one.registering.returned(full)
        assert one.host.dirs[full].is_good and one.ended == [full, full]
        one.registering.withdraw()
    assert one.records.read(one.ids[full]) is FailureRecord.RECORDED
    stopped = dir_facts.read_entry(one.store, other)
    assert stopped is not None and stopped.is_stopped_cleanly and stopped.failed == {one.ids[full]}
    one.registering.repeat()
    noted = dir_facts.read_entry(one.store, other)
    assert noted is not None and not noted.failed
    assert one.records.read(one.ids[full]) is FailureRecord.NONE
    assert one.since[0] == one.host.registration_epoch
    one.kill()


def test_a_late_entry_of_a_log_dir_that_failed_meanwhile_is_not_written(
    tmp_path: Path, coordination: EmbeddedStore
) -> None:
    """Its failure stays recorded."""
    one = Broker(tmp_path, coordination.connect()).start()
    bad, full = one.store.log_dirs
    with patch.object(dir_facts, "write_entry", refusing_for(full, LogDirFullError)):
        one.registering.failed(bad)
    one.registering.failed(full)
    one.registering.repeat()
    assert one.records.read("id-b") is FailureRecord.RECORDED and not one.registering.is_late
    one.kill()


@pytest.mark.parametrize(
    ("settings", "replicas", "rules"),
    [
        ({}, 1, TopicConfig(1)),
        ({}, 3, TopicConfig(2)),
        ({}, 4, TopicConfig(3)),
        ({"min.insync.replicas": "1"}, 3, TopicConfig(1)),
        ({"min.insync.replicas": "two"}, 3, TopicConfig(2)),
        ({"unclean.leader.election.enable": "TRUE"}, 3, TopicConfig(2, is_unclean_allowed=True)),
        ({"unclean.leader.election.enable": "yes"}, 3, TopicConfig(2)),
        ({"flush.before.ack": "true"}, 3, TopicConfig(2, flushes=True)),
        ({"flush.messages": "1"}, 3, TopicConfig(2, flushes=True)),
        ({"flush.messages": "10"}, 3, TopicConfig(2)),
    ],
    ids=str,
)
def test_settings_of_a_topic(settings: dict[str, str], replicas: int, rules: TopicConfig) -> None:
    """Without a setting, a majority of the replicas has to be in sync."""
    assert rules_of(settings, replicas) == rules
