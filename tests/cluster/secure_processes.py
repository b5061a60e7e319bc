"""Brokers as processes over a real ZooKeeper, with no listener but SASL_SSL, or certificates.

`make secure-cluster` runs it. The first users are made by `logstore broker-user`, before a broker
has started.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.zookeeper import ZooKeeperStore
from logstore import LogStore
from support.cluster_processes import BrokerProcesses, Client, broker_processes
from support.places import environment, fast_directory
from support.secured import Certificates, certificate
from support.zookeeper_process import ZooKeeperProcess

BROKERS = (1, 2, 3)
SESSION_MS = 6_000
PARTITIONS = 3
SASL = """
listeners=SASL_SSL://127.0.0.1:{port}
security.inter.broker.protocol=SASL_SSL
sasl.inter.broker.credentials.file={base}/own
connections.max.reauth.ms=5000
ssl.keystore.location={own}
ssl.truststore.location={authority}
"""
SSL = """
listeners=SSL://127.0.0.1:{port}
security.inter.broker.protocol=SSL
ssl.client.auth=required
ssl.keystore.location={own}
ssl.truststore.location={authority}
ssl.principal.mapping.rules=RULE:CN=([a-z]+),.*/$1/,DEFAULT
super.users=User:broker
"""


def add_user(base: Path, hosts: str, name: str, secret: str) -> None:
    """Create a user in ZooKeeper."""
    command = [sys.executable, "-m", "logstore.cli", "broker-user", "add", name]
    subprocess.run(
        [*command, "--zookeeper", hosts], input=secret, env=environment(), cwd=base, text=True,
        check=True,
    )  # fmt: skip


def secret_file(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["SASL_SSL", "SSL"])
def test_a_secure_cluster_of_processes(
    zookeeper_store: ZooKeeperStore, server: ZooKeeperProcess, kind: str
) -> None:
    """Brokers are killed and stopped while a client produces; all replicas have all records."""
    hosts = server.hosts + zookeeper_store.chroot
    with fast_directory() as base:
        trusted = Certificates.make(base)
        own = certificate(trusted.made, base / "broker.pem", "127.0.0.1", name="broker")
        given = {"ssl.ca.location": trusted.authority, "security.protocol": kind}
        if kind == "SASL_SSL":
            for name in ("broker", "alice"):
                add_user(base, hosts, name, f"secret of {name}")
            secret_file(base / "own", "broker:secret of broker\n")
            given |= {
                "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice",
                "sasl.password": "secret of alice",
            }  # fmt: skip
        else:
            key = trusted.client
            given |= {"ssl.certificate.location": key, "ssl.key.location": key}
        extra = (SASL if kind == "SASL_SSL" else SSL).replace("{base}", str(base))
        extra = extra.replace("{own}", own).replace("{authority}", trusted.authority)
        with broker_processes(base, hosts, BROKERS, SESSION_MS, extra) as brokers:
            counts = produce_and_kill(brokers, given)
            said = "".join(brokers.stop(broker) for broker in BROKERS)
            assert "secret" not in said
            for broker in BROKERS:
                with LogStore.open(brokers.dirs(broker)) as store:
                    for partition, count in enumerate(counts):
                        found = [int(one.value or b"-1") for one in store["orders", partition]]
                        assert found == list(range(count))
    assert min(counts) > 100


def produce_and_kill(brokers: BrokerProcesses, given: dict[str, Any]) -> list[int]:
    """Let a client produce while brokers end; return the number of records by partition."""
    client = Client(brokers.servers, "orders", PARTITIONS, given)
    client.create("orders", PARTITIONS)
    client.wait_in_sync(len(BROKERS))
    client.start()
    client.wait_for_progress()
    for broker in (1, 2):
        brokers.kill(broker)
        client.wait_for_progress()
        brokers.start(broker)
        client.wait_in_sync(len(BROKERS))
    brokers.stop(3)
    client.wait_for_progress()
    brokers.start(3)
    client.wait_in_sync(len(BROKERS))
    counts = client.finish()
    client.wait_in_sync(len(BROKERS))
    return counts
