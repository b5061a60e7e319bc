"""Test the SCRAM users of a broker, whose keys alone are stored."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.security.errors import BadCredentialError
from broker.security.scram_credential import (
    credential_of_password,
    encode_credential,
    parse_credential,
)
from broker.security.user_settings import (
    encode_settings,
    merged,
    parse_settings,
    user_of,
    user_path,
)
from broker.wire.messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from support.kafka_client import KafkaClient
from support.secured import SecureClient, address_of

SALT = b"0123456789abcdef"
NAMES = {1: "sha256", 2: "sha512"}
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


def upsertion(user: str, mechanism: int, secret: str = "secret", **other: Any) -> Any:
    name = NAMES.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(name, secret.encode(), SALT, 4096)
    return Upsertion(user, mechanism, 4096, SALT, salted)._replace(**other)


def alter(client: KafkaClient, *changes: Any) -> dict[str, int]:
    """Change credentials; return the error of each user."""
    upsertions = [one for one in changes if hasattr(one, "salt")]
    deletions = [one for one in changes if not hasattr(one, "salt")]
    answer = client.call("AlterUserScramCredentials", upsertions=upsertions, deletions=deletions)
    return {row.user: row.error_code for row in answer.results}


def described(client: KafkaClient, *users: str) -> dict[str, Any]:
    """List credentials; return by user the error, or the mechanisms with their iterations."""
    names = [DescribeUserScramCredentialsRequest.UserName(one) for one in users]
    answer = client.call("DescribeUserScramCredentials", users=names or None)
    assert not answer.error_code
    return {
        row.user: row.error_code or {one.mechanism: one.iterations for one in row.credential_infos}
        for row in answer.results
    }


def test_a_user_lives_as_long_as_its_credentials(tmp_path: Path) -> None:
    """Users survive a restart; a changed password, or a deletion, counts at once."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with (
        Broker.start(dirs, config={"listeners": LISTENERS}) as broker,
        KafkaClient(address_of(broker, "PLAINTEXT")) as client,
    ):
        assert described(client) == {}
        assert alter(client, upsertion("a b/c", 1), upsertion("a b/c", 2)) == {"a b/c": 0}
        assert alter(client, upsertion("..", 2, "x"), Deletion("bob", 1)) == {
            "..": 0,
            "bob": 91,
        }
    with (
        Broker.start(dirs, config={"listeners": LISTENERS}) as broker,
        KafkaClient(address_of(broker, "PLAINTEXT")) as client,
    ):
        assert described(client) == {"a b/c": {1: 4096, 2: 4096}, "..": {2: 4096}}
        assert described(client, "eve", "..") == {"eve": 91, "..": {2: 4096}}
        assert described(client, "..", "..") == {"..": 92}
        assert log_in(broker, "SCRAM-SHA-256", "a b/c", "secret") == 0
        assert log_in(broker, "SCRAM-SHA-512", "..", "x") == 0
        assert log_in(broker, "SCRAM-SHA-256", "..", "x") == 58
        assert alter(client, upsertion("a b/c", 1, "other")) == {"a b/c": 0}
        assert log_in(broker, "SCRAM-SHA-256", "a b/c", "secret") == 58
        assert log_in(broker, "SCRAM-SHA-256", "a b/c", "other") == 0
        assert alter(client, Deletion("a b/c", 1), Deletion("..", 2)) == {"a b/c": 0, "..": 0}
        assert log_in(broker, "SCRAM-SHA-256", "a b/c", "other") == 58
        assert described(client) == {"a b/c": {2: 4096}}
    salted = [
        upsertion("", one, secret).salted_password for one, secret in ((1, "other"), (2, "x"))
    ]
    for file in tmp_path.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        assert not any(one in data or one.hex().encode() in data for one in salted)


def log_in(broker: Broker, mechanism: str, user: str, secret: str) -> int:
    with SecureClient(address_of(broker, "SASL_PLAINTEXT")) as client:
        return int(client.log_in(mechanism, user, secret).error_code)


def test_users_survive_a_log_dir(tmp_path: Path) -> None:
    """A log dir that returns gets all users again."""
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    with (
        Broker.start(dirs, config={"listeners": LISTENERS}) as broker,
        KafkaClient(address_of(broker, "PLAINTEXT")) as client,
    ):
        assert alter(client, upsertion("alice", 1)) == {"alice": 0}
        broker.store.take_offline(dirs[0])
        assert alter(client, upsertion("bob", 1), Deletion("alice", 1)) == {
            "alice": 0,
            "bob": 0,
        }
        broker.store.reopen_dir(dirs[0])
        client.create("topic")  # a change opens the store with all log dirs
        assert described(client) == {"bob": {1: 4096}}
    with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert described(client) == {"bob": {1: 4096}}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("", 1), 93), (upsertion("x" * 300, 1), 93), (upsertion("u", 0), 33),
        (upsertion("u", 3), 33), (upsertion("u", 1, iterations=4095), 93),
        (upsertion("u", 1, iterations=16385), 93), (upsertion("u", 1, salt=b""), 93),
        (upsertion("u", 1, salt=bytes(2000)), 93), (upsertion("u", 1, salted_password=b"x"), 93),
        (upsertion("u", 2, salted_password=bytes(32)), 93),
    ],
)  # fmt: skip
def test_a_bad_credential_is_refused(client: KafkaClient, change: Any, code: int) -> None:
    """No credential of the same user is changed."""
    assert alter(client, change, upsertion("good", 1)) == {change.name: code, "good": 0}
    assert described(client, "good") == {"good": {1: 4096}}
    assert alter(client, upsertion("twice", 1), Deletion("twice", 1)) == {"twice": 92}
    assert described(client, "twice") == {"twice": 91}


def test_the_text_of_a_credential_is_that_of_kafka() -> None:
    """Kafka's text can be read again; other text is refused, and not shown."""
    for name, size in (("SCRAM-SHA-256", 44), ("SCRAM-SHA-512", 88)):
        made = credential_of_password(name, "secret", SALT)
        text = encode_credential(made)
        assert parse_credential(name, text) == made
        fields = dict(part.split("=", 1) for part in text.split(","))
        assert [*fields] == ["salt", "stored_key", "server_key", "iterations"]
        assert len(fields["stored_key"]) == len(fields["server_key"]) == size
        for bad in (
            text[1:],
            text + ",x=y",
            "",
            text.replace("=4096", "=1"),
            text.replace("s", "!"),
        ):
            with pytest.raises(BadCredentialError) as caught:
                parse_credential(name, bad)
            assert fields["server_key"] not in str(caught.value)
    with pytest.raises(BadCredentialError):
        parse_credential("SCRAM-SHA-256", text)


def test_other_settings_of_a_user_are_kept() -> None:
    """Other settings, such as quotas, are kept; the path is Kafka's."""
    settings = {"producer_byte_rate": "5", "SCRAM-SHA-256": "x"}
    assert parse_settings(encode_settings(settings), "/p") == settings
    assert merged(settings, {"SCRAM-SHA-256": None}) == {"producer_byte_rate": "5"}
    for name in ("alice", "a b/c", "CN=x,O=y", ".", "..", "ü*~", "%2E"):
        path = user_path(name)
        assert user_of(path.removeprefix("/config/users/")) == name
        assert path.count("/") == 3
    assert user_path("CN=a b,O=c") == "/config/users/CN%3Da%20b%2CO%3Dc"
