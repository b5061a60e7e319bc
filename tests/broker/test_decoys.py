"""Test that a user without a credential looks like a user with one, at each broker and for ever."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scramp import ScramClient

from broker import Broker
from broker.catalog.admin.login_decoys import KIND, NAME, LoginDecoys
from broker.coordination.embedded import EmbeddedStore
from broker.security import mechanisms, user_settings
from broker.security.decoys import (
    SHAPES_MAX,
    TEXT,
    BadDecoysError,
    Decoys,
    Shape,
    parse_decoys,
    shape_of,
)
from broker.security.mechanisms import Directory, ScramConversation
from broker.security.passwords import Passwords
from broker.security.scram_credential import (
    credential_of_password,
    encode_credential,
    parse_credential,
)
from cluster.admin.documents import documents_of
from support.secured import SecureClient, address_of

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
KAFKAS = Shape(26, 8192, is_text=True)


class Seen(NamedTuple):
    """What a client sees of a user at the first step of a login."""

    salt: bytes
    iterations: int


def seen(broker: Broker, user: str, mechanism: str = "SCRAM-SHA-256") -> Seen:
    """Begin a login as a user."""
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        client.handshake(mechanism)
        first = ScramClient([mechanism], user, "x").get_client_first().encode()
        answer = client.token(first)
    assert answer.error_code == 0
    fields = dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(","))
    return Seen(b64decode(fields["s"]), int(fields["i"]))


def add(broker: Broker, user: str, shape: Shape) -> None:
    salt = (b"0123456789abcdefghijklmnopqrstuvwxyz" if shape.is_text else bytes(range(256)))[
        : shape.salt_bytes
    ]
    broker._services.users.change(
        {
            user: {
                one: credential_of_password(one, "x", salt, shape.iterations) for one in MECHANISMS
            }
        }
    )


def wait_for(broker: Broker, shape: Shape) -> None:
    known, turns = broker._services.decoys, threading.Event()
    while shape not in known.decoys.shapes:
        turns.wait(0.005)


def test_regression_an_unknown_user_keeps_its_salt_after_a_restart(tmp_path: Path) -> None:
    """A real user keeps its salt, so another salt after the restart would show that eve is none."""
    found = []
    for _ in range(2):
        with Broker.start(tmp_path, config=LISTENERS) as broker:
            found.append([seen(broker, "eve", one) for one in MECHANISMS])
            assert seen(broker, "eve") == found[-1][0] != seen(broker, "adam")
    assert found[0] == found[1]


def test_regression_unknown_users_look_like_the_known_users(tmp_path: Path) -> None:
    """The salts of `logstore broker-user` have 32 bytes; later, the real users are the model."""
    with Broker.start(tmp_path, config=LISTENERS) as broker:
        eve = seen(broker, "eve")
        assert (len(eve.salt), eve.iterations) == (32, 4096)
        add(broker, "alice", KAFKAS)
        seen(broker, "alice")
        wait_for(broker, KAFKAS)
        eve = seen(broker, "eve")
        assert (len(eve.salt), eve.iterations) == (26, 8192) and set(eve.salt) <= set(TEXT)
    with Broker.start(tmp_path, config=LISTENERS) as broker:
        assert seen(broker, "eve") == eve  # before any real user has logged in
        add(broker, "bob", Shape(16, 4096))
        seen(broker, "bob")
        wait_for(broker, Shape(16, 4096))
        shapes = {
            (len(one.salt), one.iterations) for one in (seen(broker, f"{n}") for n in range(30))
        }
        assert shapes == {(26, 8192), (16, 4096)}


def test_brokers_of_a_cluster_share_the_key(tmp_path: Path) -> None:
    """Also if they start at the same moment; each learns what another broker has learned."""
    with EmbeddedStore([str(tmp_path)]) as store:
        brokers = [LoginDecoys(documents_of(store.connect())) for _ in range(3)]
        threads = [threading.Thread(target=one.start) for one in brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        turns = threading.Event()
        while len({one.decoys.credential("eve", MECHANISMS[0]) for one in brokers}) > 1:
            turns.wait(0.005)
        before = brokers[0].decoys.credential("eve", MECHANISMS[0])
        brokers[0].learn(KAFKAS)
        while any(one.decoys.shapes != (KAFKAS,) for one in brokers):
            turns.wait(0.005)
        after = {one.decoys.credential("eve", MECHANISMS[0]) for one in brokers}
        assert len(after) == 1 and after.pop().stored_key == before.stored_key
        for one in brokers:
            one.close()


def test_a_damaged_document_is_replaced(tmp_path: Path) -> None:
    """Logins go on meanwhile."""
    with Broker.start(tmp_path, config=LISTENERS) as broker:
        documents = broker._services.documents
        documents.change(KIND, lambda now: {NAME: b"nonsense"})
        turns = threading.Event()
        while documents.documents(KIND)[NAME] == b"nonsense":
            turns.wait(0.005)
        assert seen(broker, "eve") == seen(broker, "eve")


def test_a_document_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    """During an upgrade, brokers of both versions run; the older one must not replace the key."""
    later = json.dumps({**GOOD, "version": 2, "key": "something else"}).encode()
    with Broker.start(tmp_path, config=LISTENERS) as broker:
        documents = broker._services.documents
        documents.change(KIND, lambda now: {NAME: later})
        add(broker, "alice", KAFKAS)
        assert seen(broker, "alice") and seen(broker, "eve") == seen(broker, "eve")
        broker._services.decoys.start()
        assert documents.documents(KIND)[NAME] == later


def test_a_broker_without_scram_makes_no_key(tmp_path: Path) -> None:
    """A broker that no client can log in at has no use for it."""
    with Broker.start(tmp_path) as broker:
        assert not broker._services.documents.documents(KIND)


def test_both_kinds_of_users_need_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential is made up and a credential is read for each of them, so times show nothing."""
    steps: list[str] = []

    def parse(mechanism: str, text: str) -> Any:
        steps.append("parse")
        return parse_credential(mechanism, text)

    class Counted(Decoys):
        def text(self, user: str, mechanism: str) -> str:
            steps.append("text")
            return super().text(user, mechanism)

    monkeypatch.setattr(mechanisms, "parse_credential", parse)
    monkeypatch.setattr(user_settings, "parse_credential", parse)
    text = encode_credential(credential_of_password(MECHANISMS[0], "x", b"s" * 16))
    known, decoys = {"alice": {MECHANISMS[0]: text}}, Counted()
    directory = Directory(
        Passwords([]),
        lambda user, one: user_settings.credential_in(known.get(user, {}), one, user),
        lambda: decoys,
    )
    for user in ("alice", "eve"):
        steps.clear()
        ScramConversation(MECHANISMS[0], directory)._keys_of(user)
        assert sorted(steps) == ["parse", "text"]


def test_what_is_made_up_is_a_credential() -> None:
    """For any name; the shape of a name rarely changes when one more shape becomes known."""
    decoys = Decoys(bytes(32), [Shape(12, 16384), KAFKAS, Shape(1024, 4096)])
    more = decoys.with_shapes([Shape(20, 5000)])
    changed = 0
    for number in range(400):
        user = f"\u00e4,= {number}"
        one = decoys.credential(user, MECHANISMS[number % 2])
        assert shape_of(one) in decoys.shapes
        assert len(one.stored_key) == len(one.server_key) == (32 if number % 2 == 0 else 64)
        changed += more.credential(user, MECHANISMS[number % 2]) != one
    assert 40 < changed < 160
    assert decoys.credential("a", MECHANISMS[0]) != decoys.credential("a", MECHANISMS[1])
    assert (
        Decoys().credential("a", MECHANISMS[0]).salt != decoys.credential("a", MECHANISMS[0]).salt
    )


def test_the_document_is_read_as_it_was_written() -> None:
    """At most 16 shapes are kept; the key is not shown."""
    decoys = Decoys(bytes(range(32)), [KAFKAS])
    assert parse_decoys(decoys.encode()).credential("a", "SCRAM-SHA-256") == decoys.credential(
        "a", "SCRAM-SHA-256"
    )
    many = decoys.with_shapes(Shape(12 + number) for number in range(50))
    assert len(many.shapes) == SHAPES_MAX and many.knows(Shape(1000)) and not decoys.knows(Shape())
    assert parse_decoys(many.encode()).shapes == many.shapes
    assert bytes(range(32)).hex() not in repr(decoys)


GOOD: dict[str, Any] = {"version": 1, "key": "00" * 32, "shapes": [[32, 4096, False]]}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0}, {"version": "2"},
        {"key": "00"}, {"key": 5}, {"key": "x" * 64}, {"shapes": None},
        {"shapes": [[32, 4096]] * 17}, {"shapes": [[11, 4096, False]]},
        {"shapes": [[32, 4095, False]]}, {"shapes": [[32, 16385, False]]},
        {"shapes": [[1025, 4096, False]]}, {"shapes": [[32, 4096, 1]]},
        {"shapes": [["32", 4096, False]]}, {"shapes": [[32, 4096, False, 1]]}, {"shapes": [7]},
        {"shapes": [[True, 4096, False]]},
    ],
)  # fmt: skip
def test_a_bad_document_is_refused(change: dict[str, Any]) -> None:
    """The error does not show the document, which has a key."""
    parse_decoys(json.dumps(GOOD).encode())
    with pytest.raises(BadDecoysError) as caught:
        parse_decoys(json.dumps({**GOOD, **change}).encode())
    assert "4096" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_bad_json_is_refused(data: bytes) -> None:
    """Whatever the bytes are."""
    with pytest.raises(BadDecoysError):
        parse_decoys(data)
