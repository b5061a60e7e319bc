"""Test brokers with TLS and logins, and clients that are no brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NotConnectedError
from broker.security.client_login import ClientLogin
from broker.security.errors import LoginFailedError
from broker.security.passwords import Password
from broker.wire.messages import FetchRequest, LeaderAndIsrRequest, WriteTxnMarkersRequest
from cluster.admin.cluster_users import ClusterUsers
from cluster.errors import PeerError
from cluster.local.cluster import Cluster
from cluster.peers.peer_security import PeerSecurity
from cluster.run.peer_connection import PeerConnection
from logstore import LogStoreError
from support.kafka_client import values_in
from support.secure_clusters import (
    OWN,
    OWN_SECRET,
    client_of,
    peer_config,
    produce,
    with_users,
)
from support.secured import (
    SECRET,
    USER,
    Certificates,
    client_context,
    scram_users,
)

# The requests that only brokers send: name and version.
PEER_REQUESTS = [
    ("LeaderAndIsr", 7), ("StopReplica", 4), ("UpdateMetadata", 8), ("ControlledShutdown", 3),
    ("AlterPartition", 3),
]  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def test_brokers_replicate_over_tls_and_logins(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    """This holds after a leader has died, and after the end of a session."""
    with_users(monkeypatch)
    config = peer_config(certificates, connections_max_reauth_ms=2000)
    with Cluster.start(brokers=3, config=config) as cluster:
        with client_of(cluster, 1, "SASL_SSL", certificates) as client:
            client.create("secret")
        produce(cluster, b"one", certificates)
        cluster.wait_in_sync("secret")
        ended = time.monotonic() + 2.5
        number = 0
        while time.monotonic() < ended:
            produce(cluster, b"%d" % (number := number + 1), certificates)
        leader = cluster.wait_for_leader("secret")
        cluster.kill(leader)
        cluster.wait_for_leader("secret", other_than=leader)
        produce(cluster, b"two", certificates)
        cluster.restart(leader)
        cluster.wait_in_sync("secret")
        with client_of(cluster, cluster.wait_for_leader("secret"), "SASL_SSL", certificates) as one:
            values = values_in(one.fetch("secret", 0).records)
        assert values == [b"one", *[b"%d" % n for n in range(1, number + 1)], b"two"]
        _check_strangers(cluster, certificates)


def test_with_an_authorizer_brokers_need_no_acl_of_their_own(
    monkeypatch: pytest.MonkeyPatch, certificates: Certificates
) -> None:
    """They have logged in as brokers, so they replicate without ACLs."""
    with_users(monkeypatch)
    config = peer_config(
        certificates, authorizer_class_name="AclAuthorizer", super_users=f"User:{USER}"
    )
    with Cluster.start(brokers=3, config=config) as cluster:
        with client_of(cluster, 1, "SASL_SSL", certificates) as client:
            client.create("secret")
        produce(cluster, b"one", certificates)
        cluster.wait_in_sync("secret")
        with client_of(cluster, 1, "PLAINTEXT", certificates) as stranger:
            assert stranger.call("Metadata", topics=None).topics == ()
            for name, version in PEER_REQUESTS:
                assert stranger.call(name, version).error_code == 31, name


def _check_strangers(cluster: Cluster, certificates: Certificates) -> None:
    """No other client may send the requests of brokers, at any listener."""
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"):
        with client_of(cluster, 1, protocol, certificates) as client:
            for name, version in PEER_REQUESTS:
                assert client.call(name, version).error_code == 31, name
            topic = FetchRequest.FetchTopic("secret", partitions=[FetchRequest.FetchPartition(0)])
            answer = client.call("Fetch", 12, replica_id=2, topics=[topic], max_wait_ms=0)
            assert answer.error_code == 31 and not answer.responses
            assert client.call("AddPartitionsToTxn", 4).error_code == 31
            topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic("secret", [0])]
            marker = WriteTxnMarkersRequest.WritableTxnMarker(1, 0, True, topics, 0)
            (one,) = client.call("WriteTxnMarkers", 1, markers=[marker]).markers
            assert one.topics[0].partitions[0].error_code == 31
    address = cluster.bootstrap_servers.split(",")[1].split(":")
    for mechanism, user, secret, reason in (
        ("SCRAM-SHA-512", OWN, OWN_SECRET, ""), ("SCRAM-SHA-512", OWN, "wrong", "error 58"),
        ("", "", None, "closed"), ("PLAIN", USER, SECRET, ""), ("PLAIN", USER, "wrong", "error 58"),
        ("GSSAPI", USER, SECRET, "does not accept GSSAPI; it accepts PLAIN"),
    ):  # fmt: skip
        own = None if secret is None else Password(user, secret)
        security = PeerSecurity("", lambda: client_context(certificates), mechanism, own)
        peer = PeerConnection(lambda: (address[0], int(address[1])), "x", security=security)
        try:
            if reason:
                with pytest.raises(PeerError, match=reason) as caught:
                    peer.ask(4, 7, LeaderAndIsrRequest(), 5.0)
                assert "secret" not in str(caught.value)
            else:
                # A broker gets "stale broker epoch", and alice learns that she is no broker.
                code = peer.ask(4, 7, LeaderAndIsrRequest(), 5.0).error_code
                assert code == (77 if user == OWN else 31)
                peer.check()
        finally:
            peer.close()


class AwaySession:
    """A session of a store that does not answer."""

    def get(self, path: str) -> Any:
        raise NotConnectedError(0)

    children = multi = get


def test_known_users_log_in_while_the_store_is_away(tmp_path: Path) -> None:
    """A change of users needs the store; an unknown user stays unknown."""
    with EmbeddedStore([str(tmp_path)]) as store, store.connect() as session:
        users = ClusterUsers(session)
        assert users.listed() == {} and users.find("alice", "SCRAM-SHA-256") is None
        users.change(scram_users())
        known = users.find("alice", "SCRAM-SHA-256")
        assert known is not None
        users._session = AwaySession()  # type: ignore[assignment]
        assert users.find("alice", "SCRAM-SHA-256") == known
        assert users.find("bob", "SCRAM-SHA-256") is None
        for work in (users.listed, lambda: users.change(scram_users("bob"))):
            with pytest.raises(LogStoreError, match="try again"):
                work()
        users._session = session
        users.change(
            {"alice": dict.fromkeys(scram_users()["alice"]), "eve": {"SCRAM-SHA-256": None}}
        )
        assert users.listed() == {} and users.find("alice", "SCRAM-SHA-256") is None


def test_a_false_server_is_noticed() -> None:
    """A server that does not know the user's keys cannot complete a SCRAM login."""
    login = ClientLogin("SCRAM-SHA-256", Password("alice", "secret"))
    assert login.first().startswith(b"n,,n=alice,r=")
    with pytest.raises(LoginFailedError):
        login.next(b"r=other,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096")
    for answer in (b"", b"\xff", b"e=other-error", b"r=x,s=!,i=1"):
        login = ClientLogin("SCRAM-SHA-512", Password("alice", "secret"))
        login.first()
        with pytest.raises(LoginFailedError):
            login.next(answer)
