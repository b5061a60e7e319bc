"""Test that registrations, topics and settings can be read again, and bad data is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.listener_config import Endpoint
from cluster import znodes
from cluster.errors import BadZnodeError
from cluster.registration import Registration, TopicIdentity
from cluster.wire.topic_ids import text_of

HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,9}(\.[a-z0-9-]{1,9}){0,2}", fullmatch=True) | st.just(
    "::1"
)
ENDPOINTS = st.lists(
    st.builds(Endpoint, st.sampled_from(["PLAINTEXT", "INSIDE"]), HOSTS, st.integers(1, 65535)),
    min_size=1, max_size=2, unique_by=lambda one: one.name,
)  # fmt: skip
TOPIC_ID = text_of(b"a topic's number")


@given(ENDPOINTS, st.sampled_from(["", "r1"]), st.dictionaries(st.text("ab", min_size=1), st.none()
       | st.integers(0, 2**62)))  # fmt: skip
def test_a_registration_comes_back(
    endpoints: list[Endpoint], rack: str, dirs: dict[str, int | None]
) -> None:
    """A log dir that is entered by this write gets its number."""
    data = znodes.encode_registration(endpoints, rack, dirs, 1_795_780_900_243)
    found = znodes.parse_registration(data, "/brokers/ids/1", 7, 9)
    epochs = {one: 9 if epoch is None else epoch for one, epoch in dirs.items()}
    assert found == znodes.BrokerNode(Registration(7, 9, epochs), tuple(endpoints), rack)


@given(
    st.dictionaries(
        st.integers(0, 30), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
    )
)
def test_a_topic_comes_back(partitions: dict[int, list[int]]) -> None:
    """The partitions are in order."""
    found = znodes.parse_topic(znodes.encode_topic(TOPIC_ID, partitions), "/brokers/topics/t", 5)
    assert found.identity == TopicIdentity(TOPIC_ID, 5)
    assert list(found.partitions.items()) == [
        (number, tuple(partitions[number])) for number in sorted(partitions)
    ]


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
def test_settings_come_back(settings: dict[str, str]) -> None:
    """Settings may have any texts."""
    assert znodes.parse_config(znodes.encode_config(settings), "/config/topics/t") == settings


GOOD: dict[str, Any] = {
    "registration": json.loads(
        znodes.encode_registration([Endpoint("PLAINTEXT", "b2", 9092)], "", {"d": 1}, 1)
    ),
    "topic": json.loads(znodes.encode_topic(TOPIC_ID, {0: [1, 2]})),
    "config": {"version": 1, "config": {"a": "b"}},
}


def parse(kind: str, data: bytes | None) -> object:
    if kind == "registration":
        return znodes.parse_registration(data, "/brokers/ids/1", 7, 9)
    if kind == "topic":
        return znodes.parse_topic(data, "/brokers/topics/t", 5)
    return znodes.parse_config(data, "/config/topics/t")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("registration", {"version": 4}),
        ("registration", {"endpoints": []}),
        ("registration", {"endpoints": "PLAINTEXT://b2:9092"}),
        ("registration", {"endpoints": ["b2:9092"]}),
        ("registration", {"endpoints": ["PLAINTEXT://b1..example.com:9092"]}),
        ("registration", {"endpoints": ["PLAINTEXT://b2:99999"]}),
        ("registration", {"endpoints": [1]}),
        ("registration", {"log_dirs": {"d": -1}}),
        ("registration", {"log_dirs": {"d": True}}),
        ("registration", {"log_dirs": [1]}),
        ("registration", {"rack": 5}),
        ("topic", {"version": 1}),
        ("topic", {"topic_id": "short"}),
        ("topic", {"topic_id": 3}),
        ("topic", {"partitions": {"0": []}}),
        ("topic", {"partitions": {"0": [1, 1]}}),
        ("topic", {"partitions": {"0": [-1]}}),
        ("topic", {"partitions": {"x": [1]}}),
        ("topic", {"partitions": {"-1": [1]}}),
        ("topic", {"partitions": {"9999999999": [1]}}),
        ("topic", {"partitions": {"9" * 5000: [1]}}),
        ("topic", {"partitions": [[1]]}),
        ("config", {"config": {"a": 1}}),
        ("config", {"config": []}),
        ("config", {"version": "1"}),
    ],
    ids=lambda one: str(one)[:60],
)
def test_a_wrong_value_is_refused(kind: str, changes: dict[str, Any]) -> None:
    """The error names the znode."""
    assert parse(kind, json.dumps(GOOD[kind]).encode())
    with pytest.raises(BadZnodeError, match=r"^/"):
        parse(kind, json.dumps({**GOOD[kind], **changes}).encode())


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_no_object_is_refused(kind: str) -> None:
    """Nothing, a text, a list, a missing key, and too deep nesting are refused."""
    bad: list[bytes | None] = [None, b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000]
    bad += [
        json.dumps({key: value for key, value in GOOD[kind].items() if key != gone}).encode()
        for gone in ("version", "endpoints", "partitions", "config")
        if gone in GOOD[kind]
    ]
    for data in bad:
        with pytest.raises(BadZnodeError):
            parse(kind, data)


def test_paths_are_kafkas() -> None:
    """Kafka's tools use these paths."""
    assert znodes.broker_path(2) == "/brokers/ids/2"
    assert znodes.topic_path("t") == "/brokers/topics/t"
    assert znodes.config_path("t") == "/config/topics/t"
    assert znodes.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"


@given(st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True))
def test_a_notice_of_changed_settings_comes_back(name: str) -> None:
    """The notice has Kafka's form."""
    data = znodes.encode_setting_notice(name)
    assert json.loads(data) == {"version": 2, "entity_path": f"topics/{name}"}
    assert znodes.parse_setting_notice(data) == name


@pytest.mark.parametrize(
    "entity", [None, 1, "", "topics/", "orders", "users/u", "brokers/1", "topics/a/b", ["topics/a"]]
)
def test_a_notice_of_something_else_names_no_topic(entity: object) -> None:
    """Kafka writes such notices about users and brokers."""
    data = json.dumps({"version": 2, "entity_path": entity}).encode()
    assert znodes.parse_setting_notice(data) is None


def test_a_notice_that_cannot_be_read_names_no_topic() -> None:
    """A bad notice stops no broker."""
    for data in (b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"version":2}'):
        assert znodes.parse_setting_notice(data) is None


def test_partitions_are_added_to_what_is_there() -> None:
    """Keys of other programs stay; data that is not a topic is refused."""
    data = json.dumps({**GOOD["topic"], "theirs": [1]}).encode()
    before = znodes.parse_topic(data, "/brokers/topics/t", 5).partitions
    found = znodes.with_partitions(data, "/brokers/topics/t", {90: (2, 1), 91: (1, 2)})
    after = znodes.parse_topic(found, "/brokers/topics/t", 5).partitions
    assert after == {**before, 90: (2, 1), 91: (1, 2)} and json.loads(found)["theirs"] == [1]
    for bad in (b"", b"[]", b"{}", b'{"partitions":[1]}'):
        with pytest.raises(BadZnodeError):
            znodes.with_partitions(bad, "/brokers/topics/t", {1: (1,)})
