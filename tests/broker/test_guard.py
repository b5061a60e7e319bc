"""Test that the guard answers or closes for any request, and reveals and changes nothing."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from broker.authorization.authorizer import EVERYTHING
from broker.authorization.bindings import Operation, ResourceType
from broker.catalog.admin.acls import KIND
from broker.machines.exchange import Client
from broker.requests.access.record_checks import code_for_read, code_for_write
from broker.requests.services import MILESTONES, Call
from broker.security.peers import PeerRule
from broker.wire.frames import Request, encode_request
from broker.wire.messages import ProduceRequest
from broker.wire.schemas import api_names
from broker.wire.versions import ACCEPTED_FROM, ApiVersions
from support.acl_model import drawn_bindings
from support.guarded_broker import GuardedBroker, allowing
from support.kafka_client import KafkaClient, batch_of, produce_fields
from support.wire_samples import sample

SAMPLES = 4  # of each version of each API
JOIN, SYNC = 11, 14  # their answers wait for other members


def test_any_request_is_answered_or_ends_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No request causes an unexpected error in the guard."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with GuardedBroker(tmp_path / "a") as broker, KafkaClient(broker.address("ADMIN")) as admin:
        admin.create("kept")
        assert admin.produce("kept", batch_of(b"value")).error_code == 0
        for row in ApiVersions(MILESTONES).announced:
            for version in range(max(row.first, ACCEPTED_FROM.get(row.key, 0)), row.last + 1):
                for _ in range(SAMPLES):
                    broker.decide_by()
                    send(broker, row.key, version, rng)
        assert [one.name for one in admin.call("Metadata", topics=None).topics] == ["kept"]
        assert admin.fetch("kept", 0).high_watermark == 1
        assert admin.call("ListGroups").groups == ()
        for row in ApiVersions(MILESTONES).announced:
            if row.key not in (JOIN, SYNC):
                broker.decide_by(*drawn_bindings(rng))
                send(broker, row.key, row.last, rng)
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert not errors, f"seed {seed}"


def send(broker: GuardedBroker, key: int, version: int, rng: random.Random) -> None:
    """Send a request of any content as alice, and wait for an answer or the end."""
    if key == 0:
        message = ProduceRequest(**produce_fields({("kept", 0): batch_of(b"no")}))
    else:
        message = sample(api_names()[key] + "Request", version, rng, 3)
    with KafkaClient(broker.address("ALICE")) as alice:
        alice.socket.sendall(encode_request(key, version, 1, "alice", message))
        try:
            alice.read_frame()
        except (EOFError, ConnectionResetError):
            return


def test_without_an_authorizer_everything_is_allowed() -> None:
    """Without an authorizer, everything is allowed, and every operation of Kafka is shown."""
    assert not code_for_read(EVERYTHING, "t")
    assert not code_for_write(EVERYTHING, "x", "t")
    assert EVERYTHING.sees_any(Operation.WRITE, ResourceType.TOPIC)
    assert EVERYTHING.operations(ResourceType.TOPIC, "t") == 0b1101_1111_1000
    assert EVERYTHING.operations(ResourceType.CLUSTER, "kafka-cluster") == 0b1_1111_1010_0000


def test_before_the_acls_are_read_only_super_users_may_do_anything(tmp_path: Path) -> None:
    """If its disks do not answer at the start, a broker must not be open to everyone."""
    with GuardedBroker(tmp_path / "a", allow_everyone_if_no_acl_found=True) as broker:
        authorizer = broker.acls.authorizer
        authorizer._state = authorizer._state._replace(snapshot=None, decisions={})
        with KafkaClient(broker.address("ALICE")) as alice:
            assert alice.call("Metadata", topics=None).topics == ()
            assert alice.call("CreateTopics", topics=[]).topics == ()
            assert alice.call("ListConfigResources", resource_types=[]).error_code == 31
            stranger = Client(broker.server.listeners[0].endpoint, "10.0.0.9")
            assert not is_broker(broker, stranger)
        broker.acls._heard(broker.services.documents.documents(KIND))
        with KafkaClient(broker.address("ALICE")) as alice:
            assert alice.call("ListConfigResources", resource_types=[]).error_code == 0
            alice.create("mine")
            assert len(alice.call("Metadata", topics=None).topics) == 1


def is_broker(broker: GuardedBroker, client: Client) -> bool:
    """Report whether a client may send the requests of brokers."""
    rights = broker.services.rights_of(client, 4)
    return Call(
        broker.services, Request(4, 5, 1, "", memoryview(b"")), client, rights
    ).is_from_broker()


def test_a_broker_logs_in_as_one_or_needs_cluster_action(tmp_path: Path) -> None:
    """If brokers log in, no ACL is needed; if no one logs in, the ACL decides."""
    with GuardedBroker(tmp_path / "a") as broker:
        client = Client(broker.server.listeners[0].endpoint, "10.0.0.9")
        client.principal = "User:alice"
        assert broker.services.peers.is_open and not is_broker(broker, client)
        broker.services.peers = PeerRule(["User:alice"])
        assert is_broker(broker, client)
        client.principal = "User:bob"
        assert not is_broker(broker, client)
        broker.decide_by(allowing(Operation.CLUSTER_ACTION, principal="User:bob"))
        assert is_broker(broker, client)
