"""Test that groups with members change from one protocol to the other, and back."""

from __future__ import annotations

import pytest

from broker.consumer_groups import leaving, records, restoring
from broker.consumer_groups.exchange import ConsumerSettings, Migration, Refused
from broker.groups import assignment, joining, sessions
from broker.groups import records as classic_records
from broker.groups.exchange import JoinAnswer, Syncing
from broker.groups.group import Group, GroupSettings, State
from broker.mixed_groups import consumer_bytes, conversion
from broker.wire.error_codes import ErrorCode as Code
from support.consumer_group_world import Topic
from support.mixed_group_bench import Bench, T, assigned, metadata, numbers_in, places


def test_a_classic_group_is_converted_with_the_partitions_of_its_members() -> None:
    """The generation becomes the epoch. The members are in it, so they may commit."""
    bench = Bench()
    ids = bench.upgraded(a=assigned(0, 1), b=assigned(2, 3))
    group = bench.group
    assert group.epoch == group.assignment_epoch == 2
    assert group.state is State.STABLE
    members = {one.instance_id: one for one in group.members.values()}
    assert members["a"].assigned == places(0, 1) == group.targets[ids["a"]]
    assert members["b"].assigned == places(2, 3)
    assert members["a"].topics == {"t"} and members["a"].rebalance_timeout_ms == 5000
    assert group.fault_of_commit(ids["a"], "a", 2) is Code.NONE
    assert group.fault_of_commit(ids["a"], "a", 1) is Code.ILLEGAL_GENERATION
    assert bench.classic_beat(ids["a"], 2, "a") is Code.NONE


def test_partitions_that_were_claimed_stay_with_their_reader() -> None:
    """A rebalance clears assignments, but a cooperative member still reads what it owns."""
    bench = Bench()
    bench.classic(a=assigned(0, 1), b=assigned(2))
    ids, group = dict(bench.group.instances), bench.group
    for name, owned in (("a", (0, 1)), ("b", (1, 2))):
        generation = 2 if name == "a" else 1
        joining.join(group, bench.asking(ids[name], name, owned=owned, generation=generation),
                     name, bench.now)  # fmt: skip
    assert bench.state == "CompletingRebalance"
    joining.join(group, bench.asking("", "c"), "c", bench.now)
    assert bench.state == "PreparingRebalance" and group.members[ids["a"]].assignment == b""
    bench.upgrade()
    assert bench.group.members[ids["a"]].assigned == places(0, 1)
    assert bench.group.members[ids["b"]].assigned == places(2)
    conversion.give_up_waits(group, bench.now)
    waited = [(waiter, answer.error) for waiter, answer in group.take_replies()]
    assert ("c", Code.REBALANCE_IN_PROGRESS) in waited


def test_classic_groups_that_are_not_converted() -> None:
    """The policy, the type, the size, and assignments that the new protocol cannot continue."""

    def fault(bench: Bench) -> str:
        with pytest.raises(Refused) as caught:
            bench.upgrade()
        assert caught.value.code is Code.GROUP_ID_NOT_FOUND
        assert isinstance(bench.group, Group) and len(bench.group.members) > 0
        return caught.value.message

    for policy in (Migration.DISABLED, Migration.DOWNGRADE):
        bench = Bench(migration=policy)
        bench.classic(a=assigned(0))
        assert "policy" in fault(bench)
    for shares, limits, word in (
        ({"a": b"\0\1x"}, {}, "not valid"),
        ({"a": assigned(-1)}, {}, "not valid"),
        ({"a": assigned(0), "b": assigned(0)}, {}, "two members"),
        ({"a": assigned(0), "b": assigned(1)}, {"size_max": 1}, "more than 1"),
        ({"a": assigned(0)}, {"member_bytes_max": 80}, "too large"),
        ({"a": assigned(0)}, {"bytes_max": 80}, "too large"),
    ):
        bench = Bench(**limits)
        bench.classic(**shares)
        assert word in fault(bench)
    bench = Bench()
    bench.classic(a=assigned(0))
    bench.group.protocol = "stream"
    (member,) = bench.group.members.values()
    member.assignment = assigned(0, user_data=b"tasks")
    assert "assignor" in fault(bench)
    bench.group.protocol_type = "connect"
    assert "connect" in fault(bench)
    bench.group.protocol_type, bench.group.generation = "consumer", 2**31 - 1
    assert "too large" in fault(bench)


def test_a_group_becomes_classic_when_its_last_new_member_has_left() -> None:
    """A rebalance begins; members in the last epoch may commit, and hear of the rebalance."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    bench.join(a, "a")
    kept = numbers_in(bench.sync(a, 3, "a").assignment)
    leaving.leave(bench.group, "n", -1, None, bench.topics, bench.now)
    bench.downgrade()
    group = bench.group
    assert isinstance(group, Group) and group.state is State.PREPARING and group.is_unsaved
    assert (group.generation, group.protocol_type, group.protocol) == (3, "consumer", "range")
    assert numbers_in(group.members[a].assignment) == kept
    assert sessions.heartbeat(group, a, "a", 3, bench.now) is Code.REBALANCE_IN_PROGRESS
    assert group.fault_of_commit(a, "a", 3) is Code.NONE
    joining.join(group, bench.asking(a, "a"), "a", bench.now)
    ((_, answer),) = group.take_replies()
    assert isinstance(answer, JoinAnswer)
    assert (answer.generation, answer.leader_id, len(answer.members)) == (4, a, 1)


def test_a_group_that_became_classic_continues_its_rebalance_after_a_restart() -> None:
    """Its record names no leader, so that a rebalance begins when it is read."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1))["a"]
    bench.downgrade()
    data = classic_records.group_value(bench.group)
    found = classic_records.parse(classic_records.group_key("g"), data)
    assert isinstance(found, classic_records.GroupRecord) and found.value is not None
    assert found.value.leader is None
    again = classic_records.restored("g", found.value, GroupSettings(), bench.draw, bench.now)
    assert again.state is State.PREPARING and again.leader_id == a
    assert classic_records.group_value(again) == data
    joining.join(again, bench.asking(a, "a"), "a", bench.now)
    asked = Syncing(a, "a", again.generation, None, None, {a: assigned(0)})
    assignment.sync(again, asked, "a", bench.now)
    found = classic_records.parse(b"\0\2\0\1g", classic_records.group_value(again))
    assert isinstance(found, classic_records.GroupRecord) and found.value is not None
    assert found.value.leader == a


def test_groups_that_stay_groups_of_the_new_protocol() -> None:
    """A member of the new protocol, the policy, and the limits of classic groups prevent it."""

    def stays(bench: Bench, settings: GroupSettings | None = None) -> bool:
        settings = settings or GroupSettings()
        made = conversion.downgraded(bench.group, settings, bench.draw, bench.topics, bench.now)
        return made is None

    for policy in (Migration.DISABLED, Migration.UPGRADE):
        bench = Bench(migration=Migration.UPGRADE)
        bench.upgraded(a=assigned(0), b=assigned(1))
        bench.group.settings = ConsumerSettings(migration=policy)
        assert stays(bench)
    bench = Bench()
    bench.upgraded(a=assigned(0), b=assigned(1))
    assert stays(bench, GroupSettings(size_max=1)) and stays(bench, GroupSettings(bytes_max=10))
    bench.beat("n")
    assert stays(bench) and not conversion.is_only_classic(bench.group)
    leaving.leave(bench.group, "n", -1, None, bench.topics, bench.now)
    assert conversion.is_only_classic(bench.group) and not stays(bench)


def test_classic_members_are_kept_in_the_log() -> None:
    """Kafka's records have a field for them; a restart gives the same group."""
    bench = Bench()
    ids = bench.upgraded(a=assigned(0, 1), b=assigned(2, 3))
    bench.beat("n")
    rows = records.changes_of(bench.group, bench.now)
    found = [record for row in rows if (record := records.parse(*row)) is not None]
    made = restoring.restored("g", found, bench.settings, bench.now)
    assert made is not None and made[1] == []
    for name, member_id in ids.items():
        old, new = bench.group.members[member_id], made[0].members[member_id]
        assert new.instance_id == name and new.facts() == old.facts()
        assert (new.epoch, new.assigned, new.classic) == (old.epoch, old.assigned, old.classic)
        assert new.deadline == bench.now.seconds + 10.0
    assert made[0].members["n"].classic is None


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_assignment_has_the_version_of_the_member(version: int) -> None:
    """A member of an old version reads its own version; topics that are gone are left out."""
    data = consumer_bytes.assignment_bytes(
        places(1, 0) | {(b"x" * 16, 0)}, metadata(version=version), {"t": Topic(T, (0, 1))}
    )
    assert data == assigned(0, 1, version=version)
    assert consumer_bytes.assignment_of(b"") == (frozenset(), False)
    assert (
        consumer_bytes.assignment_bytes(frozenset(), b"", {})
        == assigned()[:2] * 0 + bytes(2 + 4) + b"\xff" * 4
    )


def test_regression_a_partition_without_a_reader_begins_an_epoch() -> None:
    """A static member that changes its protocol alone changes no subscription."""
    bench = Bench()
    bench.upgraded(a=assigned(0, 1))
    assert bench.beat("n", instance_id="a").assignment == places(0, 1, 2, 3)
    assert bench.group.epoch == 3


def test_regression_the_data_of_known_assignors_does_not_matter() -> None:
    """The cooperative assignor of librdkafka returns to each member what the member has sent."""
    bench = Bench()
    ids = bench.upgraded(a=assigned(0, 1, user_data=b"what it sent"))
    assert bench.group.members[ids["a"]].assigned == places(0, 1)
