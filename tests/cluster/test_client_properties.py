"""The tools of a cluster connect with TLS and a login, and no error shows a password."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.authorization.bindings import Operation, ResourceType
from broker.wire import messages as m
from cluster.errors import PeerError
from cluster.local.cluster import Cluster
from cluster.tools.asking import Asked, parse_servers
from cluster.tools.client_properties import client_security, parse_jaas, security_of
from logstore.cli.app import app
from support.places import environment
from support.replica_nodes import wait_until
from support.secure_clusters import client_of, peer_config, produce, servers_at, with_users
from support.secured import (
    SECRET,
    USER,
    Certificates,
    address_of,
    certificate,
    scram_users,
    secure_broker,
)

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{MODULE} required username="{USER}" password="{SECRET}";'
VIEWER = "viewer"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(certificates: Certificates) -> Iterator[Cluster]:
    """Run three brokers with the topic `secret`, which alice, a super user, has created."""
    with pytest.MonkeyPatch.context() as patch:
        with_users(patch, scram_users(VIEWER))
        config = peer_config(
            certificates, authorizer_class_name="AclAuthorizer", super_users=f"User:{USER}"
        )
        with Cluster.start(brokers=3, config=config) as made:
            with client_of(made, 1, "SASL_SSL", certificates) as client:
                client.create("secret")
            made.wait_in_sync("secret")
            yield made


def written(path: Path, settings: dict[str, str], mode: int = 0o600) -> str:
    """Write a properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    path.chmod(mode)
    return str(path)


def settings_of(certificates: Certificates, **more: str) -> dict[str, str]:
    """Give the properties of alice."""
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.location": certificates.authority,
        "ssl.truststore.type": "PEM",
        "client.id": "a tool",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def run(servers: str, file: str | None, command: str, *arguments: object) -> Result:
    words = ["cluster", command, "--bootstrap-servers", servers, *map(str, arguments)]
    done = CliRunner().invoke(app, [*words, *([] if file is None else ["--command-config", file])])
    assert SECRET not in done.output and SECRET not in repr(done.exception)
    return done


def test_every_tool_works_over_tls_and_scram(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    """Status, elect, reassign, drain and verify log in at each broker that they ask."""
    servers = servers_at(cluster, "SASL_SSL")
    file = written(tmp_path / "client.properties", settings_of(certificates))
    produce(cluster, b"one", certificates)
    done = run(servers, file, "status", "--all", "--format", "json")
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row["state"] for row in json.loads(done.stdout)}
    assert rows["secret-0"] == "good" and {"1", "2", "3"} <= set(rows)
    assert run(servers, file, "elect", "secret-0").exit_code == 0
    done = run(servers, file, "drain", "--dry-run", 3)
    assert "nothing was begun" in done.output, done.output  # three replicas need three brokers
    plan = tmp_path / "plan.json"
    wanted = {"topic": "secret", "partition": 0, "replicas": [3, 1, 2]}
    plan.write_text(json.dumps({"partitions": [wanted]}))
    done = run(servers, file, "reassign", "--file", plan, "--execute")
    assert done.exit_code == 0, done.output
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": "secret"}]}))
    done = run(servers, file, "reassign", "--file", topics, "--generate", "--brokers", "1,2,3")
    assert done.exit_code == 0, done.output
    done = run(servers, file, "verify", "--all", "--format", "json", "secret")
    assert [row["state"] for row in json.loads(done.stdout)] == ["same"], done.output


def test_a_topic_that_the_user_may_not_see_is_not_forgotten(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    """A drain that cannot see all topics begins nothing, and does not say that it is done."""
    kind, name = ResourceType.CLUSTER, "kafka-cluster"
    acls = [
        m.CreateAclsRequest.AclCreation(kind, name, 3, f"User:{VIEWER}", "*", operation, 3)
        for operation in (Operation.DESCRIBE, Operation.ALTER)
    ]
    with client_of(cluster, 1, "SASL_SSL", certificates) as client:
        answer = client.call("CreateAcls", creations=acls)
        assert not [one for one in answer.results if one.error_code], answer
    servers = servers_at(cluster, "SASL_SSL")
    jaas = f'{MODULE} required username="{VIEWER}" password="{SECRET}";'
    settings = settings_of(certificates) | {"sasl.jaas.config": jaas}
    file = written(tmp_path / "client.properties", settings)

    def is_refused() -> bool:  # when the ACLs have reached the controller
        done = run(servers, file, "drain", 3)
        assert done.exit_code == 1, done.output
        return "may not describe 1 topics, among them secret" in done.output

    wait_until(is_refused, 20.0)


def test_a_process_shows_no_password(
    cluster: Cluster, certificates: Certificates, tmp_path: Path
) -> None:
    """The real program reads the password from a file of its own."""
    own = tmp_path / "own"
    own.write_text(f"{USER}:{SECRET}\n")
    own.chmod(0o600)
    settings = settings_of(certificates) | {"sasl.credentials.file": str(own)}
    del settings["sasl.jaas.config"]
    file = written(tmp_path / "client.properties", settings, 0o644)
    command = [sys.executable, "-m", "logstore.cli", "cluster", "status"]
    words = ["--bootstrap-servers", servers_at(cluster, "SASL_SSL"), "--command-config", file]
    done = subprocess.run(
        [*command, *words], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "controller" in done.stdout, done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "listener", "reason"),
    [
        ({"sasl.jaas.config": JAAS.replace(SECRET, "not-it")}, "SASL_SSL", "error 58"),
        ({"sasl.jaas.config": JAAS.replace(USER, "nobody")}, "SASL_SSL", "error 58"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "SASL_SSL", "has no effect"),
        ({}, "SASL_PLAINTEXT", "perhaps this port has no TLS"),
        ({"ssl.truststore.location": ""}, "SASL_SSL", "certificate verify failed"),
        ({"ssl.truststore.location": "/missing"}, "SASL_SSL", "ssl.truststore.location: /missing"),
    ],
)
def test_what_does_not_fit_is_refused(
    cluster: Cluster,
    certificates: Certificates,
    tmp_path: Path,
    changes: dict[str, str],
    listener: str,
    reason: str,
) -> None:
    """The error says what happened, and shows no password."""
    file = written(tmp_path / "client.properties", settings_of(certificates) | changes)
    done = run(servers_at(cluster, listener), file, "status")
    assert done.exit_code in (1, 2) and reason in done.output, done.output
    assert "not-it" not in done.output


def test_a_client_without_a_login_is_nobody(cluster: Cluster) -> None:
    """Without the file, the tools see only what anybody sees."""
    done = run(servers_at(cluster, "PLAINTEXT"), None, "status", "--all", "--format", "json")
    assert all(row["kind"] == "broker" for row in json.loads(done.stdout))
    done = run(servers_at(cluster, "SASL_SSL"), None, "status")
    assert done.exit_code == 1 and "perhaps this listener needs TLS or a login" in done.output


def test_a_certificate_is_the_login(certificates: Certificates, tmp_path: Path) -> None:
    """A broker that demands certificates accepts the one of the file, also with a password."""
    with secure_broker(certificates, ssl_client_auth="required") as broker:
        servers = parse_servers(address_of(broker, "SSL"))
        trusted = {"security.protocol": "SSL", "ssl.truststore.location": certificates.authority}
        own = {**trusted, "ssl.keystore.location": certificates.client}
        for settings, is_good in ((own, True), (trusted, False)):
            security = client_security(written(tmp_path / "file", settings, 0o644))
            with Asked(servers, security=security) as asked:
                if is_good:
                    assert len(asked.metadata().brokers) == 1
                else:
                    with pytest.raises(PeerError):
                        asked.metadata()


def test_a_key_with_a_password(certificates: Certificates, tmp_path: Path) -> None:
    """The password is in the file, or in a file of its own."""
    plain = certificate(certificates.made, tmp_path / "plain.pem", "a@example.com", name="a")
    locked = tmp_path / "locked.pem"
    words = ["-in", plain, "-aes256", "-passout", f"pass:{SECRET}", "-out", str(locked)]
    subprocess.run(["openssl", "pkey", *words], check=True, capture_output=True)
    chain = Path(plain).read_text().partition("-----BEGIN CERTIFICATE")
    locked.write_text(locked.read_text() + chain[1] + chain[2])
    locked.chmod(0o600)
    own = {"security.protocol": "SSL", "ssl.keystore.location": str(locked)}
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    security_of(own | {"ssl.key.password": SECRET})
    security_of(own | {"ssl.key.password.file": str(file)})
    for given in ({}, {"ssl.key.password": "another"}):
        with pytest.raises(ValueError, match=r"ssl.keystore.location") as caught:
            security_of(own | given)
        assert "another" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sasl.mechansim": "PLAIN"}, "sasl.mechansim is unknown; did you mean sasl.mechanism?"),
        ({"group.id": "a"}, "group.id is unknown; the settings are security.protocol, "),
        ({SECRET: ""}, "a line has no setting of a client"),
        ({"security.protocol": "TLS"}, "security.protocol: 'TLS' is not one of PLAINTEXT"),
        ({"sasl.jaas.config": JAAS}, "sasl.jaas.config has no effect with"),
        ({"ssl.keystore.location": "a"}, "ssl.keystore.location has no effect with"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of PLAIN, SCRAM"),
        (LOGIN, "a login needs either sasl.jaas.config or sasl.credentials.file"),
        ({**LOGIN, "sasl.jaas.config": f"{SECRET}"}, "has another form"),
        ({**LOGIN, "sasl.jaas.config": JAAS.rstrip(";")}, "has another form"),
        ({**LOGIN, "sasl.jaas.config": JAAS, "sasl.mechanism": "PLAIN"}, "a PlainLoginModule"),
        ({**LOGIN, "sasl.credentials.file": "/missing"}, "sasl.credentials.file: /missing cannot"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "ssl.truststore.type=JKS is"),
        ({"security.protocol": "SSL", "ssl.keystore.password": SECRET}, "remove it"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "nor empty"),
    ],
)
def test_settings_that_cannot_be_used(given: dict[str, str], reason: str) -> None:
    """The error names the setting, and shows no password."""
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        security_of(given)
    assert SECRET not in str(caught.value)


def test_a_file_with_a_password_is_for_its_owner_only(tmp_path: Path) -> None:
    """Others may read a file without one; a file that is missing is named."""
    settings = {**LOGIN, "sasl.jaas.config": JAAS}
    client_security(written(tmp_path / "file", settings))
    with pytest.raises(ValueError, match="chmod 600") as caught:
        client_security(written(tmp_path / "file", settings, 0o640))
    assert SECRET not in str(caught.value) and str(tmp_path / "file") in str(caught.value)
    client_security(written(tmp_path / "file", {"security.protocol": "PLAINTEXT"}, 0o644))
    for path, reason in ((tmp_path, "cannot be read"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(ValueError, match=reason):
            client_security(str(path))
    (tmp_path / "file").write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="more than"):
        client_security(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("options", "user", "secret"),
    [
        ('username="a" password="b";', "a", "b"),
        ("username=a password=b ;", "a", "b"),
        ("password='it\\'s' username = 'a b';", "a b", "it's"),
        (r'username="a" password="\"q\" \\ ;=" ;', "a", '"q" \\ ;='),
        (r'username="a" password="x" tokenauth="true";', "a", "x"),
    ],
)
def test_the_syntax_of_a_login_module(options: str, user: str, secret: str) -> None:
    """Values are quoted or not; a backslash takes the next letter as it is."""
    found = parse_jaas(f"{MODULE} REQUIRED {options}", "SCRAM-SHA-256")
    assert (found.user, found.secret) == (user, secret)
    broken: Any = options.replace(";", "", 1) if options.endswith(";") else options
    with pytest.raises(ValueError, match="another form"):
        parse_jaas(f"{MODULE} {broken}", "SCRAM-SHA-256")
