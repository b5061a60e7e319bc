"""Test the documents of ACLs: Kafka's JSON, any name, and unreadable entries."""

from __future__ import annotations

import json
import random

import pytest

from broker.authorization.acl_documents import (
    encode_entries,
    name_of,
    parse_entries,
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
from broker.coordination.shared_documents import encode_name
from support import acl_model

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE = Entry("User:alice", "*", Operation.IDEMPOTENT_WRITE, Permission.ALLOW)


def test_the_layout() -> None:
    """The JSON equals the JSON of Kafka's znodes, byte for byte."""
    pattern = Pattern(ResourceType.TRANSACTIONAL_ID, LITERAL, "pay")
    assert name_of(pattern) == "literal/TransactionalId/pay"
    prefixed = pattern._replace(type=ResourceType.TOPIC, pattern_type=PREFIXED, name="a b*")
    assert name_of(prefixed) == "prefixed/Topic/a b*"
    assert encode_entries(frozenset({ALICE})) == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"IdempotentWrite","host":"*"}]}'
    )


@pytest.mark.parametrize("name", ["a/b", "/", "%", "..", "ä€😀", "\0\n", "*", " ", "//x"])
def test_any_name_has_a_document_of_its_own(name: str) -> None:
    """Names of groups may have any characters; each name becomes one znode."""
    for kind in (LITERAL, PREFIXED):
        pattern = Pattern(ResourceType.GROUP, kind, name)
        assert pattern_of(name_of(pattern)) == pattern
        assert check_path(f"/{encode_name(name_of(pattern))}").count("/") == 1


@pytest.mark.parametrize("name", ["", "literal", "literal/Topic", "literal/Topic/", "x/Topic/t"])
def test_a_name_that_is_not_one_of_acls_is_refused(name: str) -> None:
    """If the name of a document is not valid, parsing raises, and the caller closes everything."""
    with pytest.raises(ValueError, match="not the name"):
        pattern_of(name)


def test_entries_come_back() -> None:
    """All entries can be written and read again."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        entries = frozenset(acl_model.drawn_entry(rng) for _ in range(rng.randrange(1, 5)))
        assert parse_entries("literal/Topic/t", encode_entries(entries)) == (entries, "")


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
    """Unreadable entries close the pattern, because they may deny a right to any client."""
    entries, fault = parse_entries("literal/Topic/t", data)
    assert entries == {CLOSED} and fault.startswith("literal/Topic/t: the ACLs cannot be read")
    assert len(fault) < 500


def test_a_binding_is_checked_before_it_is_stored() -> None:
    """Empty texts, long texts, and values for filters only are refused."""
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
