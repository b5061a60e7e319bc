"""Test the login of a client, step by step, without sockets."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from scramp import ScramClient

from broker.security.authentication import Authentication, State
from broker.security.decoys import Decoys
from broker.security.mechanisms import Directory
from broker.security.passwords import Password, Passwords
from broker.security.scram_credential import ScramCredential, credential_of_password
from broker.wire.error_codes import ErrorCode

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KEYS = {("alice", one): credential_of_password(one, "secret", b"s" * 16) for one in MECHANISMS[1:]}
PRODUCE, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 17, 18, 36


def find(user: str, mechanism: str) -> ScramCredential | None:
    return KEYS.get((user, mechanism))


DECOYS = Decoys()
PASSWORDS = Passwords([Password("alice", "secret"), Password("bob", "b")])
DIRECTORY = Directory(PASSWORDS, find, lambda: DECOYS)


def login(reauth_ms: int = 0) -> Authentication:
    return Authentication(MECHANISMS, DIRECTORY, reauth_ms)


def plain(user: str = "alice", secret: str = "secret", other: str = "") -> bytes:
    return f"{other}\0{user}\0{secret}".encode()


def scram(one: Authentication, mechanism: str, user: str, secret: str, now: float = 0.0) -> int:
    """Log in with SCRAM; return the last error code."""
    client = ScramClient([mechanism], user, secret)
    reply = one.authenticate(client.get_client_first().encode(), now)
    if not reply.code:
        client.set_server_first(reply.token.decode())
        reply = one.authenticate(client.get_client_final().encode(), now)
    if not reply.code:
        client.set_server_final(reply.token.decode())  # raises if the server does not know
    return reply.code


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_scram_knows_the_right_password_only(mechanism: str) -> None:
    """An unknown user is refused at the same step as a wrong password, so names stay secret."""
    for user, secret, code in (("alice", "secret", 0), ("alice", "x", 58), ("eve", "secret", 58)):
        one = login()
        assert one.handshake(1, mechanism, 0.0).code == 0 and not one.permits(PRODUCE, 0.0)
        assert scram(one, mechanism, user, secret) == code
        assert one.principal == ("" if code else "User:alice")
        assert one.permits(PRODUCE, 1e9) is (code == 0)


def test_an_unknown_user_gets_the_same_salt_again() -> None:
    """An unknown user gets the same salt at each try, because another salt would reveal it."""
    salts = set()
    for _ in range(2):
        one = login()
        one.handshake(1, "SCRAM-SHA-256", 0.0)
        client = ScramClient(["SCRAM-SHA-256"], "eve", "x")
        answer = one.authenticate(client.get_client_first().encode(), 0.0).token.decode()
        salts.add(answer.split(",")[1])
    assert len(salts) == 1


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (plain(), 0), (plain("bob", "b"), 0), (plain(other="alice"), 0), (plain(secret="b"), 58),
        (plain("eve"), 58), (plain(other="bob"), 58), (plain(secret=""), 58), (b"", 58),
        (b"\0\xff\0x", 58), (b"\0alice\0secret\0", 58), (b"alice\0secret", 58),
        (b"\0alice\0" + b"x" * 10_000, 58),
    ],
)  # fmt: skip
def test_plain_takes_one_token(token: bytes, code: int) -> None:
    """The text of the error shows neither the name nor the password."""
    one = login()
    one.handshake(1, "PLAIN", 0.0)
    reply = one.authenticate(token, 0.0)
    assert reply.code == code and one.state is (State.ENDED if code else State.DONE)
    if code:
        assert reply.text is not None and "alice" not in reply.text and "secret" not in reply.text
        assert not one.permits(HANDSHAKE, 0.0)


def test_only_three_requests_come_before_the_login() -> None:
    """Before the login, only ApiVersions, SaslHandshake and SaslAuthenticate are allowed."""
    one = login()
    permitted = [key for key in range(100) if one.permits(key, 0.0)]
    assert permitted == [HANDSHAKE, API_VERSIONS, AUTHENTICATE]
    one.handshake(1, "PLAIN", 0.0)
    assert permitted == [key for key in range(100) if one.permits(key, 0.0)]


def test_a_wrong_choice_ends_the_login() -> None:
    """The answer to a wrong mechanism lists the enabled ones.

    Version 0 of the handshake is refused.
    """
    for version, mechanism, code in (
        (1, "GSSAPI", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (0, "PLAIN", ErrorCode.UNSUPPORTED_VERSION),
    ):
        one = login()
        assert one.handshake(version, mechanism, 0.0) == (code, MECHANISMS)
        assert one.state is State.ENDED and not one.permits(API_VERSIONS, 0.0)
    one = login()
    assert one.authenticate(plain(), 0.0).code == ErrorCode.ILLEGAL_SASL_STATE
    assert one.state is State.ENDED
    one = login()
    one.handshake(1, "PLAIN", 0.0)
    assert one.handshake(1, "PLAIN", 0.0).code == ErrorCode.ILLEGAL_SASL_STATE
    assert one.state is State.ENDED


def test_a_session_ends_unless_the_client_logs_in_again() -> None:
    """As the same user, with the same mechanism, and not at once (KIP-368)."""
    one = login(reauth_ms=10_000)
    one.handshake(1, "PLAIN", 0.0)
    assert one.authenticate(plain(), 0.0).session_lifetime_ms == 10_000
    assert one.handshake(1, "PLAIN", 0.5).code == ErrorCode.ILLEGAL_SASL_STATE
    assert one.permits(PRODUCE, 9.9) and not one.permits(PRODUCE, 10.0)
    assert one.permits(HANDSHAKE, 10.0)  # a client that is a little late
    assert one.handshake(1, "PLAIN", 9.0).code == 0 and not one.permits(PRODUCE, 9.0)
    assert one.authenticate(plain(), 9.0).code == 0
    assert one.permits(PRODUCE, 18.9) and not one.permits(PRODUCE, 19.0)
    assert one.handshake(1, "PLAIN", 15.0).code == 0
    assert one.authenticate(plain("bob", "b"), 15.0).code == 58 and one.state is State.ENDED
    one = login()
    one.handshake(1, "PLAIN", 0.0)
    one.authenticate(plain(), 0.0)
    assert one.expires_at == math.inf
    assert one.handshake(1, "SCRAM-SHA-256", 5.0).code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_no_sequence_of_steps_gets_in_without_a_password() -> None:
    """No short sequence of steps and no random token logs in; none raises an unexpected error."""
    rng = random.Random(7)
    first = ScramClient(["SCRAM-SHA-256"], "alice", "wrong")
    tokens = [
        b"", b"n,,n=alice,r=abc", b"n,,n=,r=", b"c=biws,r=abc,p=AAAA", b"y,,n=a,r=b", b"\xff\xfe",
        first.get_client_first().encode(), plain(secret="wrong"), rng.randbytes(40),
        b"n,,n=alice,r=abc,tokenauth=true", b"n,a=bob,n=alice,r=abc", b"p=tls-unique,,n=a,r=b",
    ]  # fmt: skip
    steps = [*[("h", one) for one in (*MECHANISMS, "X")], *[("t", one) for one in tokens]]
    for sequence in itertools.product(steps, repeat=3):
        one = login()
        for kind, value in sequence:
            if kind == "h":
                assert isinstance(value, str)
                one.handshake(1, value, 0.0)
            else:
                assert isinstance(value, bytes)
                one.authenticate(value, 0.0)
            assert not one.principal and not one.permits(PRODUCE, 0.0), sequence


def test_nothing_shows_a_password() -> None:
    """Neither repr nor str shows a password."""
    one = login()
    one.handshake(1, "PLAIN", 0.0)
    one.authenticate(plain(), 0.0)
    shown = [one, DIRECTORY, Password("alice", "secret"), KEYS["alice", "SCRAM-SHA-256"]]
    for thing in shown:
        for text in (repr(thing), str(thing), f"{thing}"):
            assert "secret" not in text and "b'" not in text, text
