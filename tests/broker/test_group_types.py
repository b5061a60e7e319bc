"""Test that an empty group changes its type when a member of the other protocol joins."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from support.kafka_client import KafkaClient

RANGE = messages.JoinGroupRequest.JoinGroupRequestProtocol("range", b"needs")


def join(client: KafkaClient, **fields: Any) -> ErrorCode:
    """Send JoinGroup, as a member of the classic protocol does."""
    asked: dict[str, Any] = {
        "group_id": "new", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer", "protocols": [RANGE],
    } | fields  # fmt: skip
    return ErrorCode(client.call("JoinGroup", 9, **asked).error_code)


def described(client: KafkaClient) -> tuple[int, str, int]:
    (group,) = client.call("ConsumerGroupDescribe", group_ids=["new"]).groups
    return group.error_code, group.group_state, group.group_epoch


def leave_empty(client: KafkaClient) -> tuple[int, str, int]:
    """Make a group of the new protocol whose only member left; describe it."""

    def beat(epoch: int, **fields: Any) -> None:
        answer = client.call(
            "ConsumerGroupHeartbeat", group_id="new", member_id="m", member_epoch=epoch, **fields
        )
        assert not answer.error_code, answer.error_message

    beat(0, subscribed_topic_names=["t"], topic_partitions=[], rebalance_timeout_ms=5000)
    beat(-1)
    found = described(client)
    assert found[:2] == (0, "Empty") and found[2] > 1
    return found


REFUSED = [
    ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
]


@pytest.mark.parametrize(("fields", "code"), REFUSED)
def test_regression_a_refused_join_changes_no_type(fields: dict[str, Any], code: ErrorCode) -> None:
    """Before, a refused join left an empty classic group, and the group's epoch was lost."""
    with Broker.start() as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        before = leave_empty(client)
        assert join(client, **fields) is code
        assert described(client) == before


def test_a_classic_member_joins_an_empty_group_of_the_new_protocol() -> None:
    """The first request only returns an id, which the second request uses."""
    with Broker.start() as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        leave_empty(client)
        named = client.call("JoinGroup", 9, group_id="new", session_timeout_ms=10_000,
                            rebalance_timeout_ms=10_000, protocol_type="consumer",
                            protocols=[RANGE])  # fmt: skip
        assert named.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert join(client, member_id=named.member_id) is ErrorCode.NONE
        assert described(client)[0] == ErrorCode.GROUP_ID_NOT_FOUND
