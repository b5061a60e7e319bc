"""The rules of all APIs, applied to messages: each right that is missing gives its error.

An API that this broker does not answer yet has no other test. What a rule answers can be encoded in
every version that the rule is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from broker.authorization.acl_snapshot import AclSnapshot
from broker.authorization.authorizer import Authorizer, AuthorizerSettings, Rights
from broker.authorization.bindings import CLUSTER_NAME
from broker.requests.access.access_rules import RULES
from broker.requests.access.checks import Asking, Checked, Refused
from broker.requests.dispatcher import HANDLERS
from broker.wire import codec
from broker.wire import messages as m
from broker.wire.versions import MILESTONES
from support.access_probes import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from support.guarded_broker import allowing
from support.kafka_client import API_KEYS

RANGES = {row.key: row for rows in MILESTONES.values() for row in rows}
X, G, T, U = (TRANSACTIONAL_ID, "x"), (GROUP, "g"), (TOPIC, "t"), (TOPIC, "u")
C = (CLUSTER, CLUSTER_NAME)


class Case(NamedTuple):
    """A request, the rights that it needs, and the error if each of them is the missing one.

    Attributes:
        answer: what the handler answers if everything is allowed.
        is_enough: whether one of the rights is enough.
    """

    api: str
    request: dict[str, Any]
    needs: list[tuple[Any, tuple[Any, str], int]]
    answer: Mapping[str, Any] = {}
    versions: range | None = None
    is_enough: bool = False


def rows(api: str, struct: str, *given: Any) -> list[Any]:
    """Make structs of a message."""
    return [getattr(getattr(m, api), struct)(*one) for one in given]


TXN = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
ADDED = rows("AddPartitionsToTxnRequest", "AddPartitionsToTxnTopic", ("t", [0, 1]), ("u", [0]))
PARTITION = rows("TxnOffsetCommitRequest", "TxnOffsetCommitRequestPartition", (0, 5, -1, ""))
OFFSETS = rows("TxnOffsetCommitRequest", "TxnOffsetCommitRequestTopic", *(
    (name, PARTITION) for name in "tu"))  # fmt: skip
MARKED = rows("WriteTxnMarkersRequest", "WritableTxnMarkerTopic", ("t", [0]))
STATE = m.DescribeTransactionsResponse.TransactionState(
    0, "x", "Ongoing", topics=rows("DescribeTransactionsResponse", "TopicData", ("t", [0]))
)
LISTED = m.ListTransactionsResponse.TransactionState("x", 1, "Ongoing")
ASSIGNED = m.ConsumerGroupDescribeResponse.Assignment(
    rows("ConsumerGroupDescribeResponse", "TopicPartitions", (bytes(16), "t", [0]))
)
MEMBER = m.ConsumerGroupDescribeResponse.Member(
    member_id="m", subscribed_topic_names=["u"], assignment=ASSIGNED
)
DESCRIBED = m.ConsumerGroupDescribeResponse.DescribedGroup(0, None, "g", members=[MEMBER])
ENTITY = rows("AlterClientQuotasRequest", "EntityData", ("user", "alice"))
DELETION = rows("AlterUserScramCredentialsRequest", "ScramCredentialDeletion", ("alice", 1))
SHOWN = 0  # nothing is refused, but something is left out

CASES = (
    Case("AddPartitionsToTxn",
         {"v3_and_below_transactional_id": "x", "v3_and_below_topics": ADDED},
         [(WRITE, X, 53), (WRITE, T, 29), (WRITE, U, 29)], versions=range(4)),
    Case("AddPartitionsToTxn", {}, [(CLUSTER_ACTION, C, 31)], versions=range(4, 6)),
    Case("AddOffsetsToTxn", TXN | {"group_id": "g"}, [(WRITE, X, 53), (READ, G, 30)]),
    Case("EndTxn", TXN, [(WRITE, X, 53)]),
    Case("WriteTxnMarkers", {"markers": rows(
        "WriteTxnMarkersRequest", "WritableTxnMarker", (1, 0, True, MARKED))},
         [(CLUSTER_ACTION, C, 31), (ALTER, C, 31)], is_enough=True),
    Case("TxnOffsetCommit", TXN | {"group_id": "g", "topics": OFFSETS},
         [(WRITE, X, 53), (READ, G, 30), (READ, T, 29), (READ, U, 29)]),
    Case("DescribeClientQuotas", {}, [(DESCRIBE_CONFIGS, C, 31)]),
    Case("AlterClientQuotas",
         {"entries": rows("AlterClientQuotasRequest", "EntryData", (ENTITY, []))},
         [(ALTER_CONFIGS, C, 31)]),
    Case("DescribeUserScramCredentials", {}, [(DESCRIBE, C, 31)]),
    Case("AlterUserScramCredentials", {"deletions": DELETION}, [(ALTER, C, 31)]),
    Case("DescribeProducers",
         {"topics": rows("DescribeProducersRequest", "TopicRequest", ("t", [0]), ("u", [1]))},
         [(READ, T, 29), (READ, U, 29)]),
    Case("DescribeTransactions", {"transactional_ids": ["x"]},
         [(DESCRIBE, X, 53), (DESCRIBE, T, SHOWN)], {"transaction_states": [STATE]}),
    Case("ListTransactions", {}, [(DESCRIBE, X, SHOWN)], {"transaction_states": [LISTED]}),
    Case("ConsumerGroupHeartbeat", {"group_id": "g", "subscribed_topic_names": ["t", "u"]},
         [(READ, G, 30), (DESCRIBE, T, 29), (DESCRIBE, U, 29)]),
    Case("ConsumerGroupDescribe", {"group_ids": ["g"]},
         [(DESCRIBE, G, 30), (DESCRIBE, T, 29), (DESCRIBE, U, 29)], {"groups": [DESCRIBED]}),
)  # fmt: skip


def codes_of(message: Any) -> set[int]:
    """List the errors in a message."""
    found: set[int] = set()
    for field in getattr(message, "_fields", ()):
        value = getattr(message, field)
        if field.endswith("error_code") and value:
            found.add(value)
        for one in value if isinstance(value, list | tuple) else ():
            found |= codes_of(one)
    return found


def answered(case: Case, version: int, granted: list[tuple[Any, tuple[Any, str]]]) -> Any:
    """Apply the rule of a case; return the answer to the client."""
    authorizer = Authorizer(AuthorizerSettings())
    authorizer.replace(AclSnapshot.of(allowing(one, *resource) for one, resource in granted))
    rights = Rights(authorizer, "User:alice", "h", case.api, lambda kind, text: None)
    rule = RULES[API_KEYS[case.api]]
    assert rule.check is not None
    request = getattr(m, case.api + "Request")(**case.request)
    found = rule.check(request, Asking(rights, version, lambda _: None))
    if isinstance(found, Refused):
        return found.answer
    assert isinstance(found, Checked)
    answer = getattr(m, case.api + "Response")(**case.answer)
    return answer if found.finish is None else found.finish(answer)


def versions_of(case: Case) -> range:
    """List the versions of a case."""
    row = RANGES[API_KEYS[case.api]]
    return case.versions or range(row.first, row.last + 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
def test_each_missing_right_gives_its_error(case: Case) -> None:
    """With all rights, no part of the request is refused or left out."""
    rights = [(operation, resource) for operation, resource, _ in case.needs]
    for version in versions_of(case):
        full = answered(case, version, rights)
        assert not codes_of(full)
        for missing, (operation, resource, code) in enumerate(case.needs):
            left = [one for number, one in enumerate(rights) if number != missing]
            answer = answered(case, version, [] if case.is_enough else left)
            if case.is_enough:
                assert not codes_of(answered(case, version, left))
            named = f"{case.api} {version} without {operation} on {resource}"
            if code is SHOWN:
                assert not codes_of(answer) and answer != full, named
                assert repr(resource[1]) not in repr(answer), named
            else:
                assert code in codes_of(answer), named
                assert codes_of(answer) <= {code, 55}, named
            codec.encode(answer, version)


def test_every_rule_is_probed() -> None:
    """Each rule is probed here, or by requests to a broker."""
    cases: dict[int, set[Any]] = {}
    for case in CASES:
        found = cases.setdefault(API_KEYS[case.api], set())
        found.update((operation, resource[0]) for operation, resource, _ in case.needs)
    for key, rule in RULES.items():
        if key not in HANDLERS and rule.rights:
            assert cases[key] == {(one.operation, one.type) for one in rule.rights}, key
