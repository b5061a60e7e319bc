"""Test replicas with real logs: the whole ISR has all acknowledged records."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from cluster.disks.log_spans import spans_of, start_of
from cluster.pure import exchange as x
from cluster.pure.attest import DirFailed
from cluster.pure.replica import Role
from cluster.registration import NO_BROKER
from cluster.requests import AlterPartition, RoleAnswer, StopReplica
from logstore import (
    AppendInfo,
    Log,
    LogDirSuspectError,
    LogStore,
    LogStoreError,
    ProducerFencedError,
)
from logstore.disk import files
from support.inside import abandon
from support.places import fast_directory
from support.replica_group import KAFKA, NAME, NUMBER, TOPIC, Group, Produce


@pytest.fixture
def group() -> Iterator[Group]:
    with fast_directory() as root, Group(root) as made:
        yield made


def values(count: int, letter: bytes = b"v") -> list[bytes]:
    return [letter + b"%d" % number for number in range(count)]


def test_roles_create_the_replicas(group: Group) -> None:
    """Each replica has the topic's id and its creation epoch; its high watermark is 0."""
    group.lead(1)
    assert [group.nodes[one].replica.role for one in (1, 2, 3)] == [
        Role.LEADER, Role.FOLLOWER, Role.FOLLOWER,
    ]  # fmt: skip
    for broker, node in group.nodes.items():
        log = node.replica.log
        assert log is not None and log.high_watermark == 0
        assert node.replica.topic.is_same(TOPIC)
        answer = next(one for who, one in group.heard if who == broker)
        assert isinstance(answer, RoleAnswer) and not answer.is_offline
        assert answer.whole_since == node.host.registration_epoch


def test_a_produce_is_acknowledged_when_all_of_the_isr_have_it(group: Group) -> None:
    """It is not acknowledged earlier, and the followers' high watermarks follow."""
    group.lead(1)
    first = group.produce(*values(5))
    group.replicate(1, among=(1, 2))
    assert first.acknowledged is None
    group.replicate()
    assert first.acknowledged == 5
    for node in group.nodes.values():
        assert node.values() == values(5)
        assert node.replica.log is not None and node.replica.log.high_watermark == 5


def test_other_acks_do_not_wait(group: Group) -> None:
    """A leader acknowledges acks=1 by itself; a follower refuses a produce."""
    group.lead(1)
    assert group.produce(b"a", acks=1).acknowledged == 1
    assert group.produce(b"b", acks=0).acknowledged == 2
    assert group.produce(b"c", at=2).error is x.ProduceError.NOT_LEADER
    state = group.state(1, (1,))
    group.give(state)
    assert group.produce(b"d").error is x.ProduceError.NOT_ENOUGH_REPLICAS


def test_a_new_leader_has_everything_and_the_old_one_drops_the_rest(group: Group) -> None:
    """When the old leader follows the new one, its unacknowledged records are removed."""
    group.lead(1)
    group.produce(*values(30))
    group.replicate()
    lost = group.produce(*values(5, b"lost"))
    assert lost.acknowledged is None
    group.lead(2)
    assert lost.error is x.ProduceError.TIMED_OUT
    kept = group.produce(*values(7, b"new"))
    group.replicate(20)
    assert kept.acknowledged == 37
    for node in group.nodes.values():
        assert node.values() == [*values(30), *values(7, b"new")]
        assert not list(node.paths[0].glob("*.lost"))
    logs = [node.replica.log for node in group.nodes.values()]
    assert len({log.leader_epochs for log in logs if log is not None}) == 1


def test_a_killed_broker_returns_and_follows(group: Group) -> None:
    """Its log is unchanged; it has no role until the controller gives one."""
    group.lead(1)
    group.produce(*values(40))
    group.replicate()
    abandon(group.nodes[3].store)
    group.give(group.state(1, (1, 2)))
    group.produce(*values(20, b"w"))
    group.replicate(among=(1, 2))
    node = group.start(3)
    assert node.replica.role is Role.NONE and node.values() == values(40)
    group.give(group.state(1, (1, 2)))
    group.replicate(20)
    assert node.values() == [*values(40), *values(20, b"w")]
    asked = [one for _, one in group.heard if isinstance(one, AlterPartition)]
    assert asked and set(asked[-1].isr) == {1, 2, 3}


def test_with_flushes_only_flushed_records_count(group: Group) -> None:
    """Unflushed records of the leader or a follower do not count (P24)."""
    group.lead(1, flushes=True)
    produce = group.produce(*values(5))
    group.fetch(2)
    for node in group.nodes.values():
        assert node.replica.log is not None and node.replica.log.high_watermark == 0
    group.replicate()
    assert produce.acknowledged == 5
    for node in group.nodes.values():
        log = node.replica.log
        assert log is not None and log.recovery_point == 5


def test_a_replica_remembers_that_it_counts_only_flushed_records(group: Group) -> None:
    """The facts of its log have the mark after a restart, until the setting ends (P24)."""
    group.lead(1, flushes=True)
    group.produce(*values(5))
    group.replicate()
    for expected in (True, False):
        log = group.nodes[2].replica.log
        assert log is not None and log.facts["cluster.counts_flushed"] is expected
        abandon(group.nodes[2].store)
        group.start(2)
        group.lead(1)


def test_an_election_that_loses_records_keeps_them(group: Group) -> None:
    """An unclean leader lacks acknowledged records; the others move them to a file."""
    group.lead(1)
    group.produce(*values(10))
    group.replicate()
    group.give(group.state(1, (1, 2)))
    acknowledged = group.produce(*values(6, b"gone"))
    group.replicate(among=(1, 2))
    assert acknowledged.acknowledged == 16
    epoch = group.leader_epoch + 1
    group.lead(3, (3,), unclean_epoch=epoch, min_isr=1)
    group.replicate(20)
    for broker in (1, 2):
        node = group.nodes[broker]
        assert node.values() == values(10)
        (path,) = node.paths[0].glob("*.lost")
        data = path.read_bytes()
        assert all(value in data for value in values(6, b"gone"))
    assert not list(group.nodes[3].paths[0].glob("*.lost"))


def test_a_cut_below_the_high_watermark_stops_the_replica(group: Group) -> None:
    """Without an election that may lose records, such a cut would be a fault of the rules."""
    group.lead(1)
    group.produce(*values(10))
    group.replicate()
    group.give(group.state(1, (1, 2)))
    group.produce(*values(6, b"kept"))
    group.replicate(among=(1, 2))
    group.lead(3, (3,), min_isr=1)
    group.replicate(20)
    for broker in (1, 2):
        assert group.nodes[broker].alarms
        assert group.nodes[broker].values() == [*values(10), *values(6, b"kept")]


def test_a_log_that_refuses_a_produce_keeps_its_role(group: Group) -> None:
    """Only the client of this produce gets the error; the next produce is accepted."""
    group.lead(1)

    def refuse(log: Log, leader_epoch: int) -> AppendInfo:
        raise ProducerFencedError(
            topic=NAME, partition=NUMBER, producer_id=1, epoch=0, current_epoch=1
        )

    produce = Produce(refuse)
    group.nodes[1].replica.tell(x.Produced(produce, -1))
    assert isinstance(produce.error, ProducerFencedError)
    later = group.produce(b"later")
    group.replicate()
    assert later.acknowledged == 1


def test_an_append_that_fails_after_its_write_is_counted(group: Group) -> None:
    """The records are in the log, so they are replicated, but the client gets the error."""
    group.lead(1)

    def interrupted(log: Log, leader_epoch: int) -> AppendInfo:
        log.leader_epoch = leader_epoch
        log.append(b"written")
        raise LogStoreError("interrupted")

    produce = Produce(interrupted)
    group.nodes[1].replica.tell(x.Produced(produce, -1))
    later = group.produce(b"later")
    group.replicate()
    assert later.acknowledged == 2 and produce.acknowledged is None
    assert group.nodes[3].values() == [b"written", b"later"]


def test_a_failed_disk_ends_the_role(group: Group) -> None:
    """The controller learns that the replica is offline; the other brokers continue."""
    group.lead(1)
    group.produce(*values(4))
    group.replicate()
    node = group.nodes[1]
    group.heard.clear()

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk failed")

    with patch.object(files, "pwritev", fail), patch.object(files, "pwrite", fail):
        produce = group.produce(b"x")
    assert isinstance(produce.error, LogStoreError)
    node.host.handle(DirFailed(node.store.log_dirs[0]), 0.0)
    node.replica.open()
    assert node.replica.role is Role.NONE and node.replica.log is None
    assert any(isinstance(one, RoleAnswer) and one.is_offline for _, one in group.heard)
    group.lead(2, (2, 3))
    kept = group.produce(b"y")
    group.replicate(among=(2, 3))
    assert kept.acknowledged == 5


@pytest.mark.parametrize("broker", [1, 3])
def test_regression_a_log_dir_that_hung_for_a_moment_serves_again(
    group: Group, broker: int
) -> None:
    """The replica reads its log again before its next role: it failed while nothing could be read.

    A hang is no failure of the log dir, so no return of the log dir is announced.
    """
    group.lead(1)
    group.produce(*values(4))
    group.replicate()
    node = group.nodes[broker]

    def hang(*_: object) -> Log:
        raise LogDirSuspectError(path=node.store.log_dirs[0], reason="a call has not returned")

    with patch.object(LogStore, "log", hang), patch.object(Log, "append_as_follower", hang):
        with patch.object(Log, "extend", hang):
            group.produce(b"x")
        group.replicate()
        node.replica.open()
    assert node.replica.role is Role.NONE and node.replica.log is None
    group.lead(broker)
    assert node.replica.log is not None
    kept = group.produce(b"y")
    group.replicate(20)
    assert kept.acknowledged is not None
    found = [group.nodes[one].values() for one in (1, 2, 3)]
    assert found[0] == found[1] == found[2] and found[0][-1] == b"y"
    group.lead(2)
    with patch.object(LogStore, "log", hang):
        node.replica.open()
    assert node.replica.log is None
    group.lead(2)  # a role that needs no change of the log
    assert node.replica.role is Role.FOLLOWER and node.replica.log is not None
    group.produce(b"z")
    group.replicate(20)
    assert node.values()[-1] == b"z"


def test_bad_records_of_a_leader_are_not_taken(group: Group) -> None:
    """The records are fetched again, and the follower's log does not change."""
    group.lead(1)
    group.produce(*values(4))
    follower = group.nodes[2].replica
    group.fetch(2)
    broker, fetch = group.requests.pop()
    group.deliver(broker, fetch)
    to, answer = group.requests.pop()
    assert to == 2
    damaged = bytearray(answer.records)
    damaged[-1] ^= 1
    follower.tell(answer._replace(records=bytes(damaged)))
    assert group.nodes[2].values() == []
    group.replicate()
    assert group.nodes[2].values() == values(4)


def test_a_stopped_replica_is_deleted(group: Group) -> None:
    """An older request for the replica creates nothing."""
    group.lead(1)
    group.produce(*values(4))
    group.replicate()
    node = group.nodes[3]
    node.replica.tell(StopReplica(TOPIC, NUMBER, node.host.broker_epoch, group.version + 1))
    assert node.replica.log is None and len(node.store) == 0
    group.version -= 1
    group.give(group.state(1, (1, 2, 3)))
    assert node.replica.log is None and len(node.store) == 0


@pytest.mark.parametrize("is_failed", [False, True], ids=["hangs", "fails"])
def test_regression_a_deletion_that_a_bad_disk_refused_is_done_later(
    group: Group, is_failed: bool
) -> None:
    """The broker answered the next request that it had no such replica, but the disk had it.

    A log dir that fails is announced, and read again after its return; one that hangs is not.
    """
    group.lead(1)
    group.produce(*values(4))
    group.replicate()
    node = group.nodes[3]
    request = StopReplica(TOPIC, NUMBER, node.host.broker_epoch, group.version + 1)

    def refuse(*_: object) -> Log:
        raise LogDirSuspectError(path=node.store.log_dirs[0], reason="a call has not returned")

    with patch.object(LogStore, "log", refuse), patch.object(LogStore, "delete", refuse):
        assert node.replica.stop(request) is None
    if is_failed:
        node.replica.open()
    assert len(node.store) == 1
    assert node.replica.stop(request) is not None
    assert node.replica.log is None and len(node.store) == 0
    assert node.replica.stop(request) is not None


def test_nobody_leads_means_no_role(group: Group) -> None:
    """All replicas wait for the next election."""
    group.lead(1)
    group.give(group.state(1, ())._replace(leader=NO_BROKER))
    assert {node.replica.role for node in group.nodes.values()} == {Role.NONE}


def test_spans_of_a_log(tmp_path: Path) -> None:
    """Epochs without records are left out; records without an epoch have their own span."""
    with Group(tmp_path, brokers=(1,)) as group:
        log = group.nodes[1].store.create("t", 0, config=KAFKA)
        assert spans_of(log) == ()
        for epoch, count in ((3, 2), (4, 0), (7, 3)):
            log.leader_epoch = epoch
            log.extend(values(count))
        assert spans_of(log) == ((3, 2), (7, 5))
        assert spans_of(log, 2) == ((7, 5),)
        log.flush()
        log.delete_records_before(4)
        assert spans_of(log) == ((7, 5),)
        assert (start_of(log), log.log_start_offset) == (2, 4)  # three records are one batch
        log.delete_records_before(5)
        assert (spans_of(log), start_of(log)) == ((), 5)
