"""Test `logstore broker-user`: it creates the first users, and shows no password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker import Broker
from logstore.cli.app import app
from support.secured import Certificates, SecureClient, secure_config

SECRET = "a long secret"
CONFIG = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


def run(*args: object, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["broker-user", *map(str, args)], input=given)


def log_in(broker: Broker, mechanism: str, user: str, secret: str) -> int:
    with SecureClient(broker.bootstrap_servers) as client:
        return int(client.log_in(mechanism, user, secret).error_code)


def test_the_first_user_is_made_before_the_broker_starts(tmp_path: Path) -> None:
    """The password comes from a file or the standard input; users are listed without keys."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    file = tmp_path / "server.properties"
    logs = tmp_path / "logs"
    file.write_text(f"log.dirs={logs}\nlisteners=SASL_PLAINTEXT://127.0.0.1:0\nbroker.id=7\n")
    outputs = [
        run("add", "admin", "--config", file, "--password-file", secret),
        run("add", "eve", "--config", file, "--mechanism", "SCRAM-SHA-512", given="other\n"),
        run("add", "bob", "--log-dirs", logs, "--iterations", 5000, given=SECRET),
        run("remove", "bob", "--log-dirs", logs),
    ]
    listed = run("list", "--log-dirs", logs, "--format", "json")
    assert all(not one.exit_code for one in (*outputs, listed)), outputs
    assert json.loads(listed.stdout) == [
        {"user": "admin", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "admin", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        {"user": "eve", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    for one in (*outputs, listed):
        assert SECRET not in one.output and "stored_key" not in one.output
    assert "broker.id=7" in (logs / "meta.properties").read_text()
    with Broker.start([logs], config=CONFIG) as broker:
        assert log_in(broker, "SCRAM-SHA-256", "admin", SECRET) == 0
        assert log_in(broker, "SCRAM-SHA-512", "eve", "other") == 0
        assert log_in(broker, "SCRAM-SHA-256", "eve", "other") == 58
        assert log_in(broker, "SCRAM-SHA-256", "bob", SECRET) == 58
        refused = run("add", "late", "--log-dirs", logs, given=SECRET)
        assert refused.exit_code == 1 and "kafka-configs.sh" in refused.output
    assert not any(SECRET.encode() in one.read_bytes() for one in logs.rglob("*") if one.is_file())


@pytest.mark.parametrize(
    ("args", "given", "code", "text"),
    [
        (("add", "a", "--log-dirs", "L"), "", 2, "the password is empty"),
        (("add", "", "--log-dirs", "L"), "x", 2, "a name has"),
        (("add", "a"), "x", 2, "name the log dirs"),
        (("add", "a", "--log-dirs", "L", "--iterations", "1"), "x", 2, "4096"),
        (
            ("add", "a", "--log-dirs", "L", "--password-file", "open"),
            "",
            2,
            "others than its own",
        ),
        (("add", "a", "--log-dirs", "L", "--password-file", "none"), "", 2, "cannot be read"),
        (("remove", "nobody", "--log-dirs", "L"), "", 1, "there is no user nobody"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    given: str,
    code: int,
    text: str,
) -> None:
    """The exit codes are the same as for all commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGSTORE_LOG_DIRS", raising=False)
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o644)
    result = run(*args, given=given)
    assert (result.exit_code, text in result.output) == (code, True), result.output


def test_a_check_reads_the_files_of_security(tmp_path: Path) -> None:
    """The check reports unusable files, as a start does, and shows no password."""
    config = secure_config(Certificates.make(tmp_path)) | {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener_security_protocol_map": "clients:sasl_ssl",
        "log_dirs": str(tmp_path / "logs"),
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key.replace('_', '.')}={text}\n" for key, text in config.items()))

    def start(*args: str) -> Result:
        return CliRunner().invoke(app, ["broker", "--config", str(file), *args])

    good = start("--check", "--format", "json")
    assert good.exit_code == 0, good.output
    (line,) = (one for one in json.loads(good.stdout) if one["kind"] == "listener")
    assert line["name"].startswith("CLIENTS://") and line["value"].startswith("SASL_SSL; clients")
    Path(config["sasl_users_file"]).chmod(0o644)
    Path(config["ssl_keystore_location"]).write_text("nothing")
    bad = start("--check", "--format", "json")
    problems = [one["name"] for one in json.loads(bad.stdout) if one["kind"] == "problem"]
    assert bad.exit_code == 1
    assert [one.partition(":")[0] for one in problems] == [
        "ssl.keystore.location", "sasl.users.file",
    ]  # fmt: skip
    refused = start()
    assert refused.exit_code == 2 and "ssl.keystore.location" in refused.output
    for one in (good, bad, refused):
        assert "s-secret" not in one.output
