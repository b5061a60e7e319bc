"""Test the records of groups of the new protocol: Kafka's bytes, and damaged bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.consumer_groups import records, restoring
from broker.consumer_groups.exchange import ConsumerSettings
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import Member, MemberState
from broker.groups.exchange import Now
from broker.wire.byte_cursor import WireError

NOW = Now(5.0, 1_700_000_000_000)
T = bytes(range(16))
SETTINGS = ConsumerSettings()


def made() -> ConsumerGroup:
    """Make a group with two members, a pattern, and a partition that a member is giving up."""
    group = ConsumerGroup("g", SETTINGS, NOW)
    for name in ("a", "b"):
        member = Member(name)
        member.client_id, member.client_host, member.rebalance_timeout_ms = "c", "/h", 5000
        group.add(member)
        group.unsaved_facts[name] = None
    one, two = group.members["a"], group.members["b"]
    one.topics, one.instance_id, one.assignor = frozenset({"t"}), "i", "range"
    group.instances["i"] = "a"
    two.pattern, two.rack_id = "t.*", "r"
    group.resolved["t.*"] = frozenset({"t"})
    group.unsaved_patterns["t.*"] = None
    group.epoch, group.assignment_epoch, group.metadata_hash = 7, 6, -3
    group.is_epoch_unsaved = group.is_assignment_epoch_unsaved = True
    group.targets = {"a": frozenset({(T, 0)}), "b": frozenset({(T, 1), (T, 2)})}
    group.unsaved_targets = {"a": None, "b": None}
    group.place(one, [(T, 0)], [(T, 1)])
    group.enter(one, MemberState.UNREVOKED, 5)
    group.place(two, [(T, 2)], [])
    group.enter(two, MemberState.UNRELEASED, 6)
    return group


def read(rows: list[records.Record]) -> list[records.ConsumerRecord]:
    found = [records.parse(key, value) for key, value in rows]
    return [one for one in found if one is not None]


def test_the_bytes_are_those_of_kafka() -> None:
    """Keys are not flexible, but values are; `kafka-dump-log` prints the same bytes."""
    rows = records.changes_of(made(), NOW)
    assert [key[:2].hex() for key, _ in rows] == [
        "0010", "0005", "0005", "0003", "0007", "0007", "0006", "0008", "0008",
    ]  # fmt: skip
    assert rows[0][0] == b"\0\x10\0\1g\0\3t.*"
    assert rows[3] == (b"\0\3\0\1g", bytes.fromhex("0000 00000007 01 00 08 fffffffffffffffd"))
    assert rows[4] == (
        b"\0\7\0\1g\0\1a", bytes.fromhex("0000 02") + T + bytes.fromhex("02 00000000 00 00")
    )  # fmt: skip
    assert rows[6] == (b"\0\6\0\1g", bytes.fromhex("0000 00000006 00"))
    assert rows[7][1] == bytes.fromhex("0000 00000005 00000000 01 02") + T + bytes.fromhex(
        "02 00000000 00 02"
    ) + T + bytes.fromhex("02 00000001 00 00")


def test_a_group_comes_back_as_it_was() -> None:
    """A group can be restored; its sessions, and the time to give up partitions, begin again."""
    result = restoring.restored("g", read(records.changes_of(made(), NOW)), SETTINGS, NOW)
    assert result is not None
    group, faults = result
    assert faults == [] and not group.is_unsaved
    assert records.changes_of(made(), NOW) == records.changes_of(_all_unsaved(group), NOW)
    assert group.members["a"].deadline == 50.0
    assert group.members["a"].revocation_deadline == 10.0


def _all_unsaved(group: ConsumerGroup) -> ConsumerGroup:
    group.is_epoch_unsaved = group.is_assignment_epoch_unsaved = True
    group.unsaved_facts = dict.fromkeys(group.members)
    group.unsaved_targets, group.unsaved_places = dict(group.unsaved_facts), dict.fromkeys("ab")
    group.unsaved_patterns = {"t.*": None}
    return group


def test_a_deleted_group_does_not_come_back() -> None:
    """Each record gets a tombstone, even the one that only older versions of Kafka wrote."""
    rows = dict(records.changes_of(made(), NOW))
    deleted = records.deletion_of(made())
    assert [value for _, value in deleted] == [None] * len(deleted)
    assert rows.keys() <= {key for key, _ in deleted}
    assert restoring.restored("g", read(deleted), SETTINGS, NOW) is None


def test_records_of_other_kinds_are_left_alone() -> None:
    """Records of offsets, classic groups and share groups are ignored."""
    for kind in (0, 1, 2, 9, 10, 15, 17, 99):
        assert records.parse(bytes([0, kind]) + b"\0\1g", b"") is None


@pytest.mark.parametrize(("key", "value"), [
    (None, b""), (b"", b""), (b"\0", b""), (b"\0\3", b""), (b"\0\3\0\5g", b"\0\0"),
    (b"\0\3\0\1g", b""), (b"\0\3\0\1g", b"\0\1\0\0\0\1\0"), (b"\0\3\0\1g", b"\0\0\0"),
    (b"\0\7\0\1g\0\1a", b"\0\0\xff\xff\xff\x7f"),
])  # fmt: skip
def test_bytes_that_are_no_record_are_refused(key: bytes | None, value: bytes) -> None:
    """Invalid bytes raise an error; no memory is allocated by a size that the bytes claim."""
    with pytest.raises(WireError):
        records.parse(key, value)


def test_a_partition_of_two_members_goes_to_the_later_epoch() -> None:
    """The member of the earlier epoch is left out, and the log records this."""
    group = made()
    group.members["a"].assigned = frozenset({(T, 2)})  # as if a record was damaged
    result = restoring.restored("g", read(records.changes_of(group, NOW)), SETTINGS, NOW)
    assert result is not None
    found, faults = result
    assert set(found.members) == {"b"} and found.owners == {(T, 2): "b"}
    assert len(faults) == 1 and "'a'" in faults[0]
    assert found.epoch == 8 and found.is_unsaved
    tombstones = {key for key, value in records.changes_of(found, NOW) if value is None}
    assert records.key_of(records.CURRENT, "g", "a") in tombstones


def test_damaged_values_never_break_the_loading() -> None:
    """Each flipped byte gives a consistent group or a WireError."""
    draw = random.Random(3)
    rows = records.changes_of(made(), NOW)
    for _ in range(3000):
        key, value = draw.choice(rows)
        data = bytearray(value or b"")
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            found = read([*[row for row in rows if row[0] != key], (key, bytes(data))])
        except WireError:
            continue
        result = restoring.restored("g", found, SETTINGS, NOW)
        assert result is not None
        _check(result[0])


def _check(group: ConsumerGroup) -> None:
    owners: dict[Any, str] = {}
    for member in group.members.values():
        assert member.epoch <= group.assignment_epoch <= group.epoch
        for place in [*member.assigned, *member.revoking]:
            assert place not in owners
            owners[place] = member.id
    assert owners == group.owners
