"""Mutated requests on sockets: each connection ends in order, and the broker serves the next one.

`LOGSTORE_FUZZ_FRAMES` sets how many are sent; `make fuzz-broker` sends 1,000,000.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from broker import Broker
from broker.wire import codec
from broker.wire.messages import ProduceRequest
from broker.wire.schemas import api_names, schema_of
from broker.wire.versions import ApiVersions
from support.kafka_client import KafkaClient, batch_of, produce_fields
from support.secured import Certificates, address_of, first_flight, secure_broker
from support.wire_samples import sample

FRAMES = int(os.environ.get("LOGSTORE_FUZZ_FRAMES", "2000"))
FRAMES_PER_CONNECTION = 5  # a damaged frame ends its connection
SECONDS = 60.0
APIS = ApiVersions(["base", "consumer groups"])
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS = [
    b"\0alice\0wrong", b"alice\0alice\0", b"n,,n=alice,r=abcdef", b"y,,n=alice,r=abcdef",
    b"c=biws,r=abcdef,p=" + b"A" * 43 + b"=", b"n,a=bob,n=alice,r=x", b"", bytes(9000),
]  # fmt: skip
EDGES = [0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes of a frame, or none."""
    changed = bytearray(data)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        if not changed:
            break
        at, kind = rng.randrange(len(changed)), rng.random()
        if kind < 0.5:
            changed[at] = rng.choice(EDGES) if kind < 0.4 else rng.randrange(256)
        elif kind < 0.7:
            del changed[at : at + rng.randrange(1, 9)]
        elif kind < 0.9:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            changed += changed[at : at + 40]
    return bytes(changed)


def request(rng: random.Random) -> bytes:
    """Make a random frame: a request of an announced API, or something close to one."""
    key, first, last = rng.choice(APIS.announced)
    version = rng.randint(first, last)
    if key == 0:
        version = max(version, 3)
        batch = mutated(batch_of(b"a", b"b" * 50, producer=(rng.randrange(3), 0, 0)), rng)
        fields = produce_fields({("fuzz", rng.randrange(3)): batch}, rng.choice([-1, 0, 1]))
        message = ProduceRequest(**fields)
    else:
        message = sample(api_names()[key] + "Request", version, rng, 3)
    if key == 19:  # not too many files
        message = message._replace(
            topics=[topic._replace(num_partitions=rng.randint(-2, 3)) for topic in message.topics]
        )
    header = struct.pack(">hhih", key, version, rng.randrange(2**31), 2) + b"ab"
    if _is_flexible(key, version):
        header += b"\0"
    body = mutated(header + bytes(codec.encode(message, version)), rng)
    size = len(body) if rng.random() < 0.98 else rng.choice([-1, 2**31 - 1, len(body) + 5, 0])
    return struct.pack(">i", size) + body


def _is_flexible(key: int, version: int) -> bool:
    return schema_of(api_names()[key] + "Request").is_flexible(version)


def login_request(rng: random.Random) -> bytes:
    """Make a frame of a login, or another frame, which must not be answered before the login."""
    if rng.random() < 0.3:
        return request(rng)
    key, version = rng.choice([(17, 0), (17, 1), (36, 0), (36, 1), (36, 2), (18, 3)])
    message = sample(api_names()[key] + "Request", version, rng, 3)
    if key == 17:
        message = message._replace(mechanism=rng.choice([*MECHANISMS, "PLAIN ", ""]))
    elif key == 36:
        message = message._replace(auth_bytes=mutated(rng.choice(TOKENS), rng))
    header = struct.pack(">hhih", key, version, rng.randrange(2**31), 2) + b"ab"
    if _is_flexible(key, version):
        header += b"\0"
    body = header + bytes(codec.encode(message, version))
    body = body if rng.random() < 0.7 else mutated(body, rng)
    return struct.pack(">i", len(body)) + body


def attack(
    servers: str,
    rng: random.Random,
    count: int,
    make: Callable[[random.Random], bytes] = request,
) -> None:
    """Send frames on a connection, and read until the broker has closed it."""
    host, port = servers.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as client:
        with contextlib.suppress(OSError):  # the broker has closed the connection
            for _ in range(count):
                frame = make(rng)
                client.sendall(frame[: rng.randrange(len(frame))] if rng.random() < 0.01 else frame)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while client.recv(1 << 16):
                pass


def test_mutated_requests_hurt_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """No connection hangs or stays open, and no handler meets an unexpected error."""
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    config = {"max_connections": 50, "fetch_max_bytes": "1MiB", "request_arrival_ms": 2000}
    with Broker.start(config=config) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("fuzz", 2)
        for _ in range(0, FRAMES, FRAMES_PER_CONNECTION):
            attack(broker.bootstrap_servers, rng, FRAMES_PER_CONNECTION)
            assert client.call("ApiVersions", 0).error_code == 0, f"seed {seed}"
        while broker.connection_count > 1:
            assert client.call("ApiVersions", 0).error_code == 0, f"seed {seed}"
        assert broker._server.memory_bytes == 0, f"seed {seed}"
        if ("fuzz", 0) not in broker.store:  # a request deleted it
            client.create("fuzz", 2)
        assert client.produce("fuzz", batch_of(b"the end")).error_code == 0, f"seed {seed}"
        errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert not errors, f"seed {seed}"
        assert broker.store.verify().is_sound, f"seed {seed}"


def test_nobody_gets_in_by_mutated_logins(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Before a login, no request is served, and no connection hangs, even with garbage for TLS."""
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    more = {"connection_failed_authentication_delay_ms": 1, "authentication_timeout_ms": 2000}
    hello = first_flight()
    with (
        secure_broker(Certificates.make(tmp_path), **more) as broker,
        KafkaClient(address_of(broker, "PLAINTEXT")) as client,
    ):
        client.create("fuzz", 2)
        for number in range(0, FRAMES // 4, FRAMES_PER_CONNECTION):
            attack(address_of(broker, "SASL_PLAINTEXT"), rng, FRAMES_PER_CONNECTION, login_request)
            if number % 10 == 0:
                attack(address_of(broker, "SASL_SSL"), rng, 1, lambda rng: mutated(hello, rng))
            assert client.call("ApiVersions", 0).error_code == 0, f"seed {seed}"
        while broker.connection_count > 1:
            assert client.call("ApiVersions", 0).error_code == 0, f"seed {seed}"
        assert {name for name, _ in broker.store} == {"fuzz"}, f"seed {seed}"
        counts = broker.counts()
        assert counts["memory_bytes"] == 0 and counts["login_failure_count"], f"seed {seed}"
        assert client.produce("fuzz", batch_of(b"the end")).base_offset == 0, f"seed {seed}"
        errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert not errors, f"seed {seed}"
