"""Test the ACLs in the coordination store of a single broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import Operation, PatternType, Permission, ResourceType
from broker.catalog.admin.acls import KIND, AclRefusedError, Acls
from broker.catalog.topic_store import TopicStore
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CoordinationError
from broker.coordination.shared_documents import SharedDocuments
from broker.coordination.verbs import Session
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


@contextmanager
def opened(store: LogStore, acls_max: int = 100) -> Iterator[Acls]:
    """Read the ACLs of a store."""
    topics = TopicStore.of(store)
    acls = Acls(topics.documents, AuthorizerSettings(frozenset({"User:root"})), acls_max)
    acls.start()
    try:
        yield acls
    finally:
        topics.release()


def test_acls_are_kept(tmp_path: Path) -> None:
    """ACLs survive a restart, even without the log dir in which they were first written."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, admin_socket=False) as store, opened(store) as acls:
        assert not acls.authorizer.may(*ALICE, "t")
        acls.create(BINDINGS)
        acls.create(BINDINGS[:1])  # it exists already
        assert acls.authorizer.may(*ALICE, "t") and acls.authorizer.may(*ALICE, "orders-7")
    (dirs[0] / "coordination-journal").unlink()
    with LogStore.open(dirs, admin_socket=False) as store, opened(store) as acls:
        assert acls.describe(EVERYTHING) == sorted(BINDINGS)
        gone = acls.delete([BindingFilter(TOPIC, principal="User:alice"), BindingFilter(GROUP)])
        assert gone == [sorted([BINDINGS[0], BINDINGS[2]]), [BINDINGS[3]]]
        assert not acls.authorizer.may(*ALICE, "t")
    with LogStore.open(dirs, admin_socket=False) as store, opened(store) as acls:
        assert acls.describe(EVERYTHING) == [BINDINGS[1]]


def test_the_brokers_of_a_process_share_their_acls(tmp_path: Path) -> None:
    """All brokers of a process learn of a change of ACLs at once."""
    with (
        LogStore.open(tmp_path / "a", admin_socket=False) as store,
        opened(store) as one,
        opened(store) as other,
    ):
        one.create(BINDINGS[:1])
        other.create(BINDINGS[1:2])
        assert one.describe(EVERYTHING) == sorted(BINDINGS[:2])
        assert other.authorizer.may(*ALICE, "t")
        one.delete([EVERYTHING])
        assert one.describe(EVERYTHING) == other.describe(EVERYTHING) == []


def test_the_number_of_acls_is_limited(tmp_path: Path) -> None:
    """ACLs that already exist are not counted twice; a refused request changes nothing."""
    with LogStore.open(tmp_path / "a", admin_socket=False) as store, opened(store, 3) as acls:
        acls.create(BINDINGS[:3])
        acls.create(BINDINGS[:2])
        with pytest.raises(AclRefusedError, match="at most 3") as caught:
            acls.create(BINDINGS[2:])
        assert caught.value.code == 44
        assert acls.describe(EVERYTHING) == sorted(BINDINGS[:3])
        acls.delete([BindingFilter(name="t")])
        acls.create(BINDINGS[3:])


def test_a_large_change_is_written_in_parts(tmp_path: Path) -> None:
    """A large change is written in parts, because a request has at most 1 MiB."""
    many = [allowing(READ, TOPIC, f"{number:04}", "User:" + "x" * 900) for number in range(1000)]
    with LogStore.open(tmp_path / "a", admin_socket=False) as store, opened(store, 5000) as acls:
        acls.create(many)
        crowd = [allowing(READ, TOPIC, "t", f"User:{number}" * 100) for number in range(3000)]
        with pytest.raises(AclRefusedError) as caught:  # more than one document can have
            acls.create(crowd)
        assert caught.value.code == 44
    with LogStore.open(tmp_path / "a", admin_socket=False) as store, opened(store) as acls:
        assert acls.describe(EVERYTHING) == sorted(many)
        assert acls.delete([EVERYTHING]) == [sorted(many)]
        assert acls.describe(EVERYTHING) == []


def test_acls_that_cannot_be_read_close_their_resource(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unreadable ACLs close their resource to all but super users, until they are deleted."""
    path = tmp_path / "a"
    with LogStore.open(path, admin_socket=False) as store:
        with opened(store) as acls:
            acls.create([*BINDINGS, allowing(READ, TOPIC, "*")])
        with EmbeddedStore([str(path)]) as znodes, znodes.connect() as session:
            session.set("/documents/acls/literal%2FTopic%2Ft", b"?")
        with caplog.at_level(logging.ERROR, "broker"), opened(store) as acls:
            assert "literal/Topic/t: the ACLs cannot be read" in caplog.text
            may = acls.authorizer.may
            assert not may(*ALICE, "t") and may(*ALICE, "u") and may("User:root", *ALICE[1:], "t")
            with pytest.raises(AclRefusedError, match="delete its ACLs first"):
                acls.create(BINDINGS[:1])
            (found,) = acls.describe(BindingFilter(TOPIC, "t"))
            assert found.entry.permission is Permission.DENY
            assert acls.delete([BindingFilter(TOPIC, "t")]) == [[found]]
            acls.create(BINDINGS[:1])
            assert may(*ALICE, "t")


def test_a_document_of_no_resource_closes_everything(tmp_path: Path) -> None:
    """A document without a valid name may deny anything, so it closes everything."""
    path = tmp_path / "a"
    with LogStore.open(path, admin_socket=False) as store:
        with opened(store) as acls:
            acls.create(BINDINGS)
        with EmbeddedStore([str(path)]) as znodes, znodes.connect() as session:
            session.create("/documents/acls/later", b"?")
        with opened(store) as acls:
            assert not acls.authorizer.may(*ALICE, "t")
            assert acls.authorizer.may("User:root", *ALICE[1:], "t")
            for ask in (
                lambda: acls.describe(EVERYTHING),
                lambda: acls.create(BINDINGS),
                lambda: acls.delete([EVERYTHING]),
            ):
                with pytest.raises(AclRefusedError, match="cannot be read"):
                    ask()


def test_acls_that_were_not_known_at_the_start_count_later(tmp_path: Path) -> None:
    """Until the ACLs are read, only super users may do anything.

    A refresh or a change reads them.
    """
    with LogStore.open(tmp_path / "a", admin_socket=False) as store:
        with opened(store) as acls:
            acls.create(BINDINGS)
        topics, is_broken = TopicStore.of(store), [True]

        def run(work: Callable[[Session], Any]) -> Any:
            if is_broken[0]:
                raise CoordinationError("it does not answer")
            return topics.in_session(work)

        ways: tuple[Callable[[SharedDocuments, Acls], object], ...] = (
            lambda documents, acls: documents.refresh(),
            lambda documents, acls: acls.create(BINDINGS),
        )
        for later in ways:
            is_broken[0] = True
            documents = SharedDocuments(run, is_shared=False)
            acls = Acls(documents, AuthorizerSettings(allows_if_no_acl=True), 100)
            acls.start()
            assert not documents.is_known(KIND) and not acls.authorizer.may(*ALICE, "t")
            with pytest.raises(AclRefusedError, match="not read yet"):
                acls.describe(EVERYTHING)
            with pytest.raises(AclRefusedError, match="does not answer"):
                acls.create(BINDINGS)
            is_broken[0] = False
            later(documents, acls)
            assert acls.authorizer.may(*ALICE, "t") and acls.describe(EVERYTHING)
        topics.release()


def test_a_denial_is_logged_but_not_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that repeats a refused request cannot fill the log."""
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
    """Without an authorizer, the three requests about ACLs get error 54, as in Kafka."""
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
