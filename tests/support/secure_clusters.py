"""Clusters in this process whose brokers log in at each other with SCRAM over TLS."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.protocols import Protocol
from broker.security.user_settings import Changes
from cluster.admin.cluster_users import ClusterUsers
from cluster.local import cluster as local
from cluster.local.cluster import Cluster
from support.kafka_client import batch_of
from support.secured import Certificates, SecureClient, client_context, scram_users, secure_config

OWN, OWN_SECRET = "broker", "the secret of brokers"
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"


def peer_config(certificates: Certificates, **more: Any) -> dict[str, Any]:
    """Give the settings of brokers that log in at each other with SCRAM over TLS."""
    own = certificates.directory / "own"
    own.write_text(f"{OWN}:{OWN_SECRET}\n")
    own.chmod(0o600)
    return secure_config(certificates) | {
        "listeners": LISTENERS,
        "default_replication_factor": 3,
        "security_inter_broker_protocol": "SASL_SSL",
        "sasl_inter_broker_credentials_file": str(own),
        **more,
    }


def with_users(monkeypatch: pytest.MonkeyPatch, more: Changes = MappingProxyType({})) -> None:
    """Let the next cluster have users before its brokers start: alice, the brokers, and more."""

    def prepared(paths: list[str]) -> EmbeddedStore:
        made = EmbeddedStore(paths)
        with made.connect() as session:
            users = ClusterUsers(session)
            users.change({**scram_users(), **scram_users(OWN, OWN_SECRET), **more})
            assert {*users.listed()} == {"alice", OWN, *more}
        return made

    monkeypatch.setattr(local, "EmbeddedStore", prepared)


def servers_at(cluster: Cluster, protocol: str) -> str:
    """Give the addresses of one listener of all brokers that run."""
    running = [cluster._node(one).serving for one in cluster.broker_ids]
    return ",".join(
        f"{endpoint.host}:{endpoint.port}"
        for serving in running
        if serving is not None
        for endpoint in serving.broker.endpoints
        if endpoint.name == protocol
    )


def client_of(cluster: Cluster, broker: int, protocol: str, trusted: Certificates) -> SecureClient:
    """Connect to a broker as alice."""
    serving = cluster._node(broker).serving
    assert serving is not None
    (found,) = (one for one in serving.broker.endpoints if one.name == protocol)
    context = client_context(trusted) if Protocol(protocol).is_tls else None
    client = SecureClient(f"{found.host}:{found.port}", context)
    if Protocol(protocol).is_sasl:
        assert not client.log_in("SCRAM-SHA-256").error_code
    return client


def produce(cluster: Cluster, value: bytes, trusted: Certificates) -> None:
    """Append a record with acks=all at the leader."""
    leader = cluster.wait_for_leader("secret")
    with client_of(cluster, leader, "SASL_SSL", trusted) as client:
        deadline = time.monotonic() + 20.0
        while client.produce("secret", batch_of(value), acks=-1).error_code:
            assert time.monotonic() < deadline
