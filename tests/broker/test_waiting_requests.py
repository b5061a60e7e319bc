"""Test that a request that waits keeps only what its answer needs.

The memory budget counts a large request only until it begins to wait. So if a waiting request kept
its bytes, clients could fill the memory of the broker.
"""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.machines.exchange import Client, Pending
from broker.requests.dispatcher import Dispatcher
from broker.wire import messages
from support.guarded_broker import GuardedBroker
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields

LONG_MS = 2**31 - 1
PAD_BYTES = 300


class Frame(bytearray):
    """A frame to which a weak reference can be made."""


@pytest.fixture(params=["StandardAuthorizer", ""])
def guarded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GuardedBroker]:
    """A broker with an authorizer, and one without; both have the topic `t`."""
    with GuardedBroker(tmp_path / "a", authorizer_class_name=request.param) as broker:
        with KafkaClient(broker.address("ADMIN")) as admin:
            admin.create("t")
        yield broker


@pytest.fixture
def admin(guarded: GuardedBroker) -> Iterator[KafkaClient]:
    with KafkaClient(guarded.address("ADMIN")) as connected:
        yield connected


def padded(frame: bytes) -> Frame:
    """Add an unknown tagged field to the end of a flexible request; return it without its size."""
    assert frame[-1] == 0, "the request has no tags yet"
    pad = b"\1\x7f" + struct.pack("BB", PAD_BYTES & 0x7F | 0x80, PAD_BYTES >> 7) + bytes(PAD_BYTES)
    return Frame(frame[4:-1] + pad)


def fetching(_: GuardedBroker, admin: KafkaClient) -> bytes:
    return admin.frame("Fetch", 12, **fetch_fields({("t", 0): 0}, max_wait_ms=LONG_MS))[1]


def producing(broker: GuardedBroker, admin: KafkaClient) -> bytes:
    broker.store["t", 0].advance_high_watermark(0)
    fields = produce_fields({("t", 0): batch_of(b"value")}, timeout_ms=LONG_MS)
    return admin.frame("Produce", 12, **fields)[1]


def joining(_: GuardedBroker, admin: KafkaClient) -> bytes:
    """Join a group whose other member does not join again yet."""
    row = messages.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    asked: dict[str, Any] = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1_000_000,
        "protocol_type": "consumer", "protocols": [row],
    }  # fmt: skip
    first = admin.call("JoinGroup", **asked).member_id
    assert admin.call("JoinGroup", **asked, member_id=first).error_code == 0
    second = admin.call("JoinGroup", **asked).member_id
    return admin.frame("JoinGroup", **asked, member_id=second)[1]


@pytest.mark.parametrize("request_of", [fetching, producing, joining])
def test_regression_a_waiting_request_keeps_no_bytes(
    guarded: GuardedBroker,
    admin: KafkaClient,
    request_of: Callable[[GuardedBroker, KafkaClient], bytes],
) -> None:
    """The frame is released when the wait begins, also if it has tags that nobody knows."""
    frame = padded(request_of(guarded, admin))
    reference = weakref.ref(frame)
    pending = asked(guarded, memoryview(frame))
    del frame
    gc.collect()
    assert reference() is None
    assert pending.look(is_last=False) is None
    assert pending.look(is_last=True)
    pending.close()


def test_regression_a_waiting_fetch_keeps_each_partition_once(
    guarded: GuardedBroker, admin: KafkaClient
) -> None:
    """A client may name a partition a million times in one request."""
    kind = messages.FetchRequest
    row = kind.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    topics = [kind.FetchTopic(topic="t", partitions=[row] * 500) for _ in range(2)]
    _, frame = admin.frame("Fetch", 12, max_wait_ms=LONG_MS, min_bytes=1, topics=topics)
    del topics, row

    def count() -> int:
        gc.collect()
        return sum(type(one) is kind.FetchPartition for one in gc.get_objects())

    before = count()
    pending = asked(guarded, memoryview(frame)[4:])
    assert count() <= before + 1
    assert pending.look(is_last=True)
    pending.close()


def asked(broker: GuardedBroker, frame: memoryview) -> Any:
    """Send a request of the administrator to the handlers, which do not answer it yet."""
    client = Client(broker.server.listeners[0].endpoint, "127.0.0.1")
    client.principal = "User:admin"
    pending = Dispatcher(broker.services)(frame, client)
    assert isinstance(pending, Pending)
    return pending
