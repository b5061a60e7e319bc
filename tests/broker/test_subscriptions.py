"""Test that the topics of a group are those in the metadata of its members."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.subscriptions import parse, topics_of
from broker.wire import codec
from broker.wire.messages import ConsumerProtocolSubscription
from support.group_scene import Scene


def subscription(*topics: str, version: int = 0) -> bytes:
    """Write a consumer's metadata."""
    message = ConsumerProtocolSubscription(topics=list(topics))
    return struct.pack(">h", version) + codec.encode(message, version)


@pytest.mark.parametrize("version", range(4))
def test_all_versions_are_read(version: int) -> None:
    """Each version has the topics."""
    assert parse(subscription("a", "b", version=version)) == ["a", "b"]


def test_a_later_version_is_read_as_the_last_known() -> None:
    """A later version only adds fields at the end."""
    later = struct.pack(">h", 9) + subscription("a", version=3)[2:] + b"more"
    assert parse(later) == ["a"]


def test_a_group_has_the_topics_of_all_members() -> None:
    """The metadata of the chosen protocol is used."""
    scene = Scene()
    scene.form(
        {"protocols": (("range", subscription("a", "b")), ("own", b"x"))},
        {"protocols": (("range", subscription("b", "c")),)},
    )
    assert topics_of(scene.group) == {"a", "b", "c"}


def test_other_groups_have_no_known_topics() -> None:
    """Groups of another type, without members, or with other metadata have no known topics."""
    assert topics_of(Scene().group) is None
    for changed in (
        {"protocol_type": "connect", "protocols": (("range", subscription("a")),)},
        {"protocols": (("range", b"strange"),)},
    ):
        scene = Scene()
        scene.form(changed)
        assert topics_of(scene.group) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_give_nothing(data: bytes) -> None:
    """Clients may send any bytes as metadata."""
    found = parse(data)
    assert found is None or all(isinstance(topic, str) for topic in found)
    assert parse(b"\xff\xff" + data) is None and parse(data[:1]) is None
