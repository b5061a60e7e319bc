"""confluent-kafka's admin client changes ACLs, and its producers and consumers obey them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from support.guarded_broker import GuardedBroker

SECONDS = 30.0
ANYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("clients")) as running:
        yield running


def admin_of(broker: GuardedBroker, name: str = "ADMIN") -> AdminClient:
    """Connect an admin client."""
    return AdminClient({"bootstrap.servers": broker.address(name)})


def right(
    kind: ResourceType, name: str, operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:  # fmt: skip
    """Make an ACL for alice."""
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


def grant(admin: AdminClient, *rights: AclBinding) -> None:
    """Create ACLs."""
    for future in admin.create_acls(list(rights)).values():
        future.result(SECONDS)


def code_of(future: Any) -> int:
    """Return the error code of a result; 0 if there is none."""
    try:
        future.result(SECONDS)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def test_acls_are_created_listed_and_deleted(broker: GuardedBroker) -> None:
    """The client creates, lists and deletes ACLs with literal and prefixed patterns.

    Alice may not.
    """
    admin = admin_of(broker)
    rights = [
        right(ResourceType.TOPIC, "orders", AclOperation.READ),
        right(ResourceType.TOPIC, "pay-", AclOperation.WRITE, ResourcePatternType.PREFIXED),
        right(ResourceType.GROUP, "*", AclOperation.READ),
        right(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
    ]
    grant(admin, *rights)
    assert set(admin.describe_acls(ANYTHING).result(SECONDS)) == set(rights)
    matching = AclBindingFilter(
        ResourceType.TOPIC, "pay-7", ResourcePatternType.MATCH, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    assert admin.describe_acls(matching).result(SECONDS) == rights[1:2]
    (deleted,) = admin.delete_acls([matching]).values()
    assert deleted.result(SECONDS) == rights[1:2]
    assert len(admin.describe_acls(ANYTHING).result(SECONDS)) == 3
    alice = admin_of(broker, "ALICE")
    assert alice.describe_acls(ANYTHING).result(SECONDS) == []  # librdkafka drops the error
    for future in alice.create_acls(rights).values():
        assert code_of(future) == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_a_producer_and_a_consumer_need_rights(broker: GuardedBroker) -> None:
    """Each gets an error that names what is missing, and works as soon as it has the right."""
    admin = admin_of(broker)
    admin.create_topics([NewTopic("orders", 1), NewTopic("other", 1)])["orders"].result(SECONDS)
    address = {"bootstrap.servers": broker.address("ALICE")}
    assert produced(address) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(admin, right(ResourceType.TOPIC, "orders", AclOperation.WRITE))
    assert produced(address) == 0
    assert produced(address | {"enable.idempotence": True}) == 0
    alice = admin_of(broker, "ALICE")
    assert set(alice.list_topics(timeout=SECONDS).topics) == {"orders"}
    assert consumed(address) == KafkaError.GROUP_AUTHORIZATION_FAILED
    grant(admin, right(ResourceType.GROUP, "readers", AclOperation.READ))
    assert consumed(address) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    grant(admin, right(ResourceType.TOPIC, "ord", AclOperation.READ, ResourcePatternType.PREFIXED))
    assert consumed(address) == 0
    refused = alice.create_topics([NewTopic("mine", 1)])["mine"]
    assert code_of(refused) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert code_of(alice.delete_topics(["orders"])["orders"]) == (
        KafkaError.TOPIC_AUTHORIZATION_FAILED
    )
    assert "mine" not in admin.list_topics(timeout=SECONDS).topics


def produced(config: dict[str, Any]) -> int:
    """Send a record; return the error of its delivery."""
    codes: list[int] = []
    producer = Producer(config | {"message.timeout.ms": 20_000})
    producer.produce(
        "orders", b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    assert producer.flush(SECONDS) == 0
    return codes[0]


def consumed(config: dict[str, Any]) -> int:
    """Read one record as a group; return the first error."""
    consumer = Consumer(config | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                return int(message.error().code()) if message.error() else 0
    except KafkaException as error:
        return int(error.args[0].code())
    finally:
        consumer.close()
    raise AssertionError("neither a record nor an error came")
