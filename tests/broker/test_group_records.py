"""Test that groups and offsets have Kafka's records, and that invalid bytes do no harm."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups import records
from broker.groups.group import GroupSettings, State
from broker.groups.offsets import Committed
from broker.groups.records import GroupRecord, OffsetRecord
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.messages import GroupMetadataValue, OffsetCommitValue
from support.group_scene import Scene

TEXT = st.text(max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
VERSIONS = range(5)


def group_value(version: int) -> bytes:
    """Write a group of one member, as a broker of that version wrote it."""
    Row = GroupMetadataValue.MemberMetadata  # noqa: N806 - a class
    row = Row("m", "i", "client", "/host", 60_000, 10_000, b"meta", b"given")
    value = GroupMetadataValue("consumer", 7, "range", "m", 123, [row])
    return struct.pack(">h", version) + codec.encode(value, version)


def restored(value: bytes) -> Any:
    found = records.parse(records.group_key("g"), value)
    assert isinstance(found, GroupRecord) and found.group == "g" and found.value is not None
    scene = Scene()
    return records.restored("g", found.value, GroupSettings(), scene.draw, scene.now)


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_of_all_versions_are_read(version: int) -> None:
    """A field that an old version lacks gets a sensible value."""
    group = restored(group_value(version))
    (member,) = group.members.values()
    assert (group.generation, group.protocol, group.leader_id) == (7, "range", "m")
    assert (member.assignment, member.metadata_for("range")) == (b"given", b"meta")
    assert (member.client_id, member.client_host, member.session_timeout) == ("client", "/host", 10)
    assert member.rebalance_timeout == (60 if version >= 1 else 10)
    assert group.instances == ({"i": "m"} if version >= 3 else {})
    assert (group.since_ms == 123) is (version >= 2) and group.state is State.STABLE


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key_version", [0, 1])
def test_offsets_of_all_versions_are_read(version: int, key_version: int) -> None:
    """A field that an old version lacks gets a sensible value."""
    value = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="x", commit_timestamp=9, expire_timestamp=99
    )
    key = struct.pack(">h", key_version) + records.offset_key("g", "t", 1)[2:]
    found = records.parse(key, struct.pack(">h", version) + codec.encode(value, version))
    expected = Committed(5, 3 if version >= 3 else -1, "x", 9, 99 if version == 1 else -1)
    assert found == OffsetRecord("g", "t", 1, expected)


@given(
    TEXT, TEXT, st.integers(0, 2**31 - 1), NUMBERS, TEXT, NUMBERS, st.sampled_from([-1, 7]),
    st.binary(min_size=16, max_size=16),
)  # fmt: skip
def test_offsets_round_trip(
    group: str, topic: str, number: int, offset: int, text: str, at: int, ends: int, topic_id: bytes
) -> None:
    """An offset can be read again; one with an expiry time has no epoch and id, as in Kafka."""
    committed = Committed(offset, -1, text, at, ends)
    if ends < 0:
        committed = committed._replace(leader_epoch=4, topic_id=topic_id)
    found = records.parse(
        records.offset_key(group, topic, number), records.offset_value(committed)
    )  # fmt: skip
    assert found == OffsetRecord(group, topic, number, committed)


def test_deletions_are_read() -> None:
    """A record without a value is read as a deletion."""
    gone = records.parse(records.offset_key("g", "t", 1), None)
    assert gone == OffsetRecord("g", "t", 1, None)
    assert records.parse(records.group_key("g"), None) == GroupRecord("g", None)


def test_an_empty_group_round_trips() -> None:
    """It has no protocol and no leader, but a generation and a time."""
    scene = Scene()
    scene.join("1")
    scene.leave("c-1")
    group = restored(bytes(records.group_value(scene.group)))
    assert (group.state, group.generation, group.protocol) == (State.EMPTY, 2, None)
    assert group.leader_id is None and group.protocol_type == "consumer"
    assert group.since_ms == scene.group.since_ms


@pytest.mark.parametrize("kind", [3, 4, 5, 8, 15, 16, -1])
def test_records_of_other_kinds_are_left_alone(kind: int) -> None:
    """Records of other kinds, such as Kafka's new group protocol, are ignored."""
    assert records.parse(struct.pack(">h", kind) + b"anything", b"whatever") is None
    assert records.parse(struct.pack(">h", kind) + b"anything", None) is None


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_value_of_an_unknown_version_is_refused(version: int) -> None:
    """A value of an unknown version is refused, not guessed."""
    for key in (records.group_key("g"), records.offset_key("g", "t", 0)):
        with pytest.raises(WireError, match=f"version {version}"):
            records.parse(key, struct.pack(">h", version) + group_value(3)[2:])


def test_a_key_needs_a_version_and_a_partition() -> None:
    """A record without a key, or with a negative partition, is no offset."""
    for key in (None, b"", b"\0", records.offset_key("g", "t", 0)[:-4] + b"\xff\xff\xff\xff"):
        with pytest.raises(WireError):
            records.parse(key, None)
    with pytest.raises(WireError):
        records.parse(records.group_key("g"), b"\0")


KEYS = [records.group_key("g"), records.offset_key("g", "t", 1)]


@given(st.sampled_from(KEYS), st.integers(0, 4), st.binary(max_size=80))
def test_any_value_is_read_or_refused(key: bytes, version: int, body: bytes) -> None:
    """Any value is read, or raises WireError; a read value can become a group."""
    value = struct.pack(">h", version) + body
    try:
        found = records.parse(key, value)
    except WireError:
        return
    if isinstance(found, GroupRecord):
        records.group_value(restored(value))


@given(st.data())
def test_any_damage_to_a_group_is_read_or_refused(data: st.DataObject) -> None:
    """A flipped bit or a missing end raises WireError, or gives some group."""
    value = bytearray(group_value(data.draw(st.integers(0, 4))))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = bytes(value[: data.draw(st.integers(at, len(value)))])
    try:
        found = records.parse(records.group_key("g"), damaged)
    except WireError:
        return
    assert isinstance(found, GroupRecord) and found.value is not None
    group = restored(damaged)
    assert group.generation >= 0 and all(
        member.session_timeout >= 0 and member.rebalance_timeout >= 0
        for member in group.members.values()
    )


def test_a_record_that_names_an_instance_twice_gives_it_one_member() -> None:
    """The later member keeps the instance id; the other member has none."""
    Row = GroupMetadataValue.MemberMetadata  # noqa: N806 - a class
    rows = [Row(name, "i", "c", "/h", 60_000, 10_000, b"", b"") for name in ("a", "b")]
    value = GroupMetadataValue("consumer", 7, "range", "nobody", 123, rows)
    group = restored(struct.pack(">h", 3) + codec.encode(value, 3))
    assert group.instances == {"i": "b"} and group.leader_id in group.members
