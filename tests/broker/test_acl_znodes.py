"""Znodes of ACLs: Kafka's paths and JSON, any name, and what cannot be read."""

from __future__ import annotations

import json
import random

import pytest

from broker.authorization.acl_znodes import (
    encode_entries,
    is_usual,
    parents_of,
    parse_entries,
    path_of,
    pattern_of,
)
from broker.authorization.bindings import (
    CLOSED,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    checked,
)
from broker.coordination.paths import check_path
from support import acl_model

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE = Entry("User:alice", "*", Operation.IDEMPOTENT_WRITE, Permission.ALLOW)


def test_the_layout_is_that_of_kafka() -> None:
    """Byte for byte."""
    pattern = Pattern(ResourceType.TRANSACTIONAL_ID, LITERAL, "pay")
    assert path_of(pattern) == "/kafka-acl/TransactionalId/pay"
    prefixed = pattern._replace(type=ResourceType.TOPIC, pattern_type=PREFIXED, name="a b*")
    assert path_of(prefixed) == "/kafka-acl-extended/prefixed/Topic/a b*"
    assert parents_of(prefixed) == [
        "/kafka-acl-extended", "/kafka-acl-extended/prefixed", "/kafka-acl-extended/prefixed/Topic"
    ]  # fmt: skip
    assert encode_entries(frozenset({ALICE})) == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"IdempotentWrite","host":"*"}]}'
    )


NAMES = (
    "a/b",
    "/",
    "%",
    "a%2Fb",
    "..",
    ".",
    "...",
    "ä€😀",
    "\0\n",
    "\x7f",
    "*",
    "\ue000",
    " ",
    "//x",
)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_has_a_path_of_its_own(name: str) -> None:
    """Names of groups may have characters that a path must not have."""
    for kind in (LITERAL, PREFIXED):
        pattern = Pattern(ResourceType.GROUP, kind, name)
        path = check_path(path_of(pattern))
        assert pattern_of(path) == pattern and is_usual(path)
        assert path.count("/") == path_of(pattern._replace(name="x")).count("/")
    assert len({path_of(Pattern(ResourceType.GROUP, LITERAL, one)) for one in NAMES}) == len(NAMES)


def test_a_name_that_kafka_wrote_is_taken_as_it_is() -> None:
    """A percent sign that begins no escape belongs to the name."""
    path = "/kafka-acl/Group/100%"
    assert pattern_of(path) == Pattern(ResourceType.GROUP, LITERAL, "100%")
    assert not is_usual(path)
    with pytest.raises(ValueError, match="not the path of ACLs"):
        pattern_of("/kafka-acl/Nothing/x")


@pytest.mark.parametrize("seed", [random.randrange(1 << 32)])
def test_entries_come_back(seed: int) -> None:
    """Whatever they say."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        entries = frozenset(acl_model.drawn_entry(rng) for _ in range(rng.randrange(1, 5)))
        assert parse_entries("/kafka-acl/Topic/t", encode_entries(entries)) == (entries, "")


ROW = {"principal": "User:a", "permissionType": "Deny", "operation": "All", "host": "*"}
BAD = {
    "nothing": b"",
    "no JSON": b"{",
    "another version": json.dumps({"version": 2, "acls": []}).encode(),
    "no version": json.dumps({"acls": []}).encode(),
    "a list": b"[]",
    "deep": b"[" * 100_000,
    **{
        f"{key} is {value!r}": json.dumps({"version": 1, "acls": [ROW | {key: value}]}).encode()
        for key in ROW
        for value in (None, 3, "", "Nothing", ["Read"])
        if (key, value) != ("host", "Nothing")
    },
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_entries_that_cannot_be_read_close_the_pattern(data: bytes) -> None:
    """It is not known whom they deny what."""
    entries, fault = parse_entries("/kafka-acl/Topic/t", data)
    assert entries == {CLOSED} and fault.startswith("/kafka-acl/Topic/t: the ACLs cannot be read")
    assert len(fault) < 500


def test_a_binding_is_checked_before_it_is_stored() -> None:
    """Empty and long texts, and what only filters may have, are refused."""
    good = Binding(Pattern(ResourceType.TOPIC, LITERAL, "t"), ALICE)
    assert checked(good) == good
    pattern, entry = good
    bad = (
        good._replace(pattern=pattern._replace(name="")),
        good._replace(pattern=pattern._replace(name="x" * 4097)),
        good._replace(pattern=pattern._replace(type=ResourceType.ANY)),
        good._replace(pattern=pattern._replace(pattern_type=PatternType.MATCH)),
        good._replace(pattern=pattern._replace(type=ResourceType.CLUSTER)),
        good._replace(entry=entry._replace(principal="alice")),
        good._replace(entry=entry._replace(principal="User:")),
        good._replace(entry=entry._replace(principal="User:" + "ä" * 600)),
        good._replace(entry=entry._replace(host="")),
        good._replace(entry=entry._replace(operation=Operation.ANY)),
        good._replace(entry=entry._replace(permission=Permission.ANY)),
    )
    for one in bad:
        with pytest.raises(ValueError, match=r"a binding|the only|bytes|is not a"):
            checked(one)
