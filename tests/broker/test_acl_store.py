"""ACLs in the coordination store of a broker alone: kept, limited, and closed in doubt."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.acls.acl_store import AclRefusedError
from broker.acls.sole_acls import SoleAcls
from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import Operation, PatternType, Permission, ResourceType
from broker.coordination.embedded import EmbeddedStore
from logstore import LogStore
from support.guarded_broker import GuardedBroker, allowing
from support.kafka_client import KafkaClient

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ = Operation.READ
EVERYTHING = BindingFilter()
ALICE = ("User:alice", "127.0.0.1", READ, TOPIC)
BINDINGS = [
    allowing(READ, TOPIC, "t"),
    allowing(READ, TOPIC, "t", principal="User:bob"),
    allowing(READ, TOPIC, "orders-", pattern=PatternType.PREFIXED),
    allowing(Operation.ALL, GROUP, "a/b", permission=Permission.DENY),
]


def opened(store: LogStore, acls_max: int = 100) -> SoleAcls:
    """Read the ACLs of a store."""
    return SoleAcls(store, AuthorizerSettings(frozenset({"User:root"})), acls_max)


def test_acls_are_kept(tmp_path: Path) -> None:
    """Also after a restart, and without the log dir where they were written first."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store:
        acls = opened(store)
        assert not acls.authorizer.may(*ALICE, "t")
        acls.create(BINDINGS)
        acls.create(BINDINGS[:1])  # it exists already
        assert acls.authorizer.may(*ALICE, "t") and acls.authorizer.may(*ALICE, "orders-7")
        acls.close()
    (dirs[0] / "coordination-journal").unlink()
    with LogStore.open(dirs, admin_socket=False) as store:
        acls = opened(store)
        assert acls.describe(EVERYTHING) == sorted(BINDINGS)
        gone = acls.delete([BindingFilter(TOPIC, principal="User:alice"), BindingFilter(GROUP)])
        assert gone == [sorted([BINDINGS[0], BINDINGS[2]]), [BINDINGS[3]]]
        assert not acls.authorizer.may(*ALICE, "t")
        acls.close()
    with LogStore.open(dirs, admin_socket=False) as store:
        acls = opened(store)
        assert acls.describe(EVERYTHING) == [BINDINGS[1]]
        acls.close()


def test_the_brokers_of_a_process_share_their_acls(tmp_path: Path) -> None:
    """A change by one is heard by the other at once."""
    with LogStore.open(tmp_path / "a", admin_socket=False) as store:
        one, other = opened(store), opened(store)
        one.create(BINDINGS[:1])
        other.create(BINDINGS[1:2])
        assert one.describe(EVERYTHING) == sorted(BINDINGS[:2])
        assert other.authorizer.may(*ALICE, "t")
        other.close()
        one.delete([EVERYTHING])
        assert one.describe(EVERYTHING) == []
        one.close()


def test_the_number_of_acls_is_limited(tmp_path: Path) -> None:
    """Those that exist already do not count twice; nothing of a refused request is kept."""
    with LogStore.open(tmp_path / "a", admin_socket=False) as store:
        acls = opened(store, acls_max=3)
        acls.create(BINDINGS[:3])
        acls.create(BINDINGS[:2])
        with pytest.raises(AclRefusedError, match="at most 3") as caught:
            acls.create(BINDINGS[2:])
        assert caught.value.code == 44
        assert acls.describe(EVERYTHING) == sorted(BINDINGS[:3])
        acls.delete([BindingFilter(name="t")])
        acls.create(BINDINGS[3:])
        acls.close()


def test_a_large_change_is_written_in_parts(tmp_path: Path) -> None:
    """A request to the coordination store has at most 1 MiB."""
    many = [allowing(READ, TOPIC, f"{number:04}", "User:" + "x" * 900) for number in range(1000)]
    with LogStore.open(tmp_path / "a", admin_socket=False) as store:
        acls = opened(store, acls_max=5000)
        acls.create(many)
        crowd = [allowing(READ, TOPIC, "t", f"User:{number}" * 100) for number in range(3000)]
        with pytest.raises(AclRefusedError) as caught:  # more than one znode can have
            acls.create(crowd)
        assert caught.value.code == 44
        acls.close()
    with LogStore.open(tmp_path / "a", admin_socket=False) as store:
        acls = opened(store)
        assert acls.describe(EVERYTHING) == sorted(many)
        acls.close()


def test_acls_that_cannot_be_read_close_their_resource(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For all but super users, until an administrator deletes them."""
    path = tmp_path / "a"
    with LogStore.open(path, admin_socket=False) as store:
        acls = opened(store)
        acls.create([*BINDINGS, allowing(READ, TOPIC, "*")])
        acls.close()
        with EmbeddedStore([str(path)]) as znodes, znodes.connect() as session:
            session.set("/kafka-acl/Topic/t", b"?")
        with caplog.at_level(logging.ERROR, "broker"):
            acls = opened(store)
        assert "/kafka-acl/Topic/t: the ACLs cannot be read" in caplog.text
        may = acls.authorizer.may
        assert not may(*ALICE, "t") and may(*ALICE, "u") and may("User:root", *ALICE[1:], "t")
        with pytest.raises(AclRefusedError, match="delete its ACLs first"):
            acls.create(BINDINGS[:1])
        (found,) = acls.describe(BindingFilter(TOPIC, "t"))
        assert found.entry.permission is Permission.DENY
        assert acls.delete([BindingFilter(TOPIC, "t")]) == [[found]]
        acls.create(BINDINGS[:1])
        assert may(*ALICE, "t")
        acls.close()


def test_a_denial_is_logged_but_not_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that repeats a request cannot fill the log."""
    with GuardedBroker(tmp_path / "a") as broker, KafkaClient(broker.address("ALICE")) as client:
        with caplog.at_level(logging.WARNING, "broker"):
            for _ in range(50):
                client.call("DescribeGroups", groups=["g\n" + "x" * 500])
                client.call("ListGroups")  # nothing that it names is denied
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith(
            "'User:alice' at 127.0.0.1 has no right to DESCRIBE the group 'g\\nxxx"
        )
        assert caplog.messages[0].endswith("which DescribeGroups needs")
        assert len(caplog.messages[0]) < 500


def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    """The three requests get error 54, as in Kafka."""
    from broker import Broker
    from broker.wire import messages as m

    row = m.CreateAclsRequest.AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    chosen = m.DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    with Broker.start() as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert client.call("CreateAcls", creations=[row, row]).results[1].error_code == 54
        assert client.call("DeleteAcls", filters=[chosen]).filter_results[0].error_code == 54
        answer = client.call(
            "DescribeAcls", resource_type_filter=1, pattern_type_filter=1, operation=1,
            permission_type=1,
        )  # fmt: skip
        assert answer.error_code == 54
