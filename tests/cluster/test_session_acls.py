"""ACLs that the brokers of a cluster share: each follows the changes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from broker.acls import session_acls
from broker.acls.acl_store import AclRefusedError
from broker.acls.session_acls import SessionAcls
from broker.authorization.acl_znodes import NOTICES
from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import Operation, PatternType, ResourceType
from broker.coordination.errors import NotConnectedError
from broker.coordination.verbs import Session
from support.guarded_broker import allowing
from support.heard import Connect
from support.serving import wait_until

TOPIC, READ = ResourceType.TOPIC, Operation.READ
ALICE = ("User:alice", "127.0.0.1", READ, TOPIC)
BOB = ("User:bob", *ALICE[1:])
EVERYTHING = BindingFilter()
SETTINGS = AuthorizerSettings(frozenset({"User:root"}))


class Broken:
    """A session whose verbs fail, or are preceded by another change, when a test says so."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_broken = False
        self.changes: list[SessionAcls] = []

    def __getattr__(self, name: str) -> object:
        if self.is_broken:
            raise NotConnectedError(1)
        if name == "multi" and self.changes:
            self.changes.pop().create([allowing(READ, TOPIC, "t", "User:bob")])
        return getattr(self._session, name)


def opened(session: object, acls_max: int = 100) -> SessionAcls:
    """Read the ACLs of a cluster."""
    return SessionAcls(session, SETTINGS, acls_max)  # type: ignore[arg-type]


@pytest.fixture
def pair(connect: Connect) -> Iterator[tuple[SessionAcls, SessionAcls]]:
    """Give the ACLs of two brokers."""
    with closing(opened(connect())) as one, closing(opened(connect())) as other:
        one.start()
        other.start()
        yield one, other


def test_each_broker_follows_the_changes(pair: tuple[SessionAcls, SessionAcls]) -> None:
    """Of any broker, in both directions, and of any kind."""
    one, other = pair
    right = allowing(READ, TOPIC, "t")
    prefixed = allowing(READ, TOPIC, "orders/", pattern=PatternType.PREFIXED)
    one.create([right, prefixed])
    assert one.authorizer.may(*ALICE, "t")
    wait_until(lambda: other.authorizer.may(*ALICE, "t"), "the other broker does not allow it")
    assert other.authorizer.may(*ALICE, "orders/7")
    other.create([allowing(READ, TOPIC, "t", "User:bob")])
    wait_until(lambda: one.authorizer.may(*BOB, "t"), "bob is not allowed")
    one.delete([BindingFilter(principal="User:alice")])
    wait_until(lambda: not other.authorizer.may(*ALICE, "t"), "the other broker still allows it")
    assert other.authorizer.may(*BOB, "t") and not other.authorizer.may(*ALICE, "orders/7")


def test_a_broker_that_did_not_listen_catches_up(connect: Connect) -> None:
    """A request about ACLs sees what another broker has changed before."""
    with closing(opened(connect())) as one, closing(opened(connect())) as other:
        one.create([allowing(READ, TOPIC, "t")])
        assert other.describe(EVERYTHING) == [allowing(READ, TOPIC, "t")]
        one.create([allowing(READ, TOPIC, "u")])
        assert len(other.delete([EVERYTHING])[0]) == 2
        assert one.describe(EVERYTHING) == []
    with closing(opened(connect())) as later:
        assert later.authorizer.snapshot is not None and later.authorizer.snapshot.count == 0


def test_changes_at_the_same_time_are_both_kept(connect: Connect) -> None:
    """The slower one decides again."""
    with closing(opened(connect())) as other:
        broken = Broken(connect())
        with closing(opened(broken)) as one:
            one.create([allowing(READ, TOPIC, "x")])
            broken.changes = [other]
            one.create([allowing(READ, TOPIC, "t")])
            assert len(one.describe(BindingFilter(name="t"))) == 2
            assert len(other.describe(BindingFilter(name="t"))) == 2
            other.create([allowing(READ, TOPIC, "t", "User:eve")])
            broken.changes = [other]  # it changes nothing this time
            one.delete([BindingFilter(name="t", principal="User:eve")])
            assert len(other.describe(BindingFilter(name="t"))) == 2


def test_without_the_store_the_last_acls_count(connect: Connect) -> None:
    """Nothing can be changed then; afterwards, the broker catches up."""
    broken = Broken(connect())
    with closing(opened(broken)) as one, closing(opened(connect())) as other:
        one.create([allowing(READ, TOPIC, "t")])
        one.start()
        broken.is_broken = True
        with pytest.raises(AclRefusedError) as caught:
            one.create([allowing(READ, TOPIC, "u")])
        assert caught.value.code == 56
        assert one.authorizer.may(*ALICE, "t")
        assert one.describe(EVERYTHING) == [allowing(READ, TOPIC, "t")]
        other.delete([EVERYTHING])
        broken.is_broken = False
        one.watch_again(None)
        wait_until(lambda: not one.authorizer.may(*ALICE, "t"), "the deletion was not heard of")


def test_missed_notices_lead_to_a_full_reading(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some notices are kept."""
    monkeypatch.setattr(session_acls, "NOTICES_KEPT", 3)
    session = connect()
    with closing(opened(session)) as one, closing(opened(connect())) as other:
        names = [f"t{number}" for number in range(10)]
        for name in names:
            one.create([allowing(READ, TOPIC, name)])
        assert len(session.children(NOTICES)) == 3
        assert [row.pattern.name for row in other.describe(EVERYTHING)] == names


def test_the_number_of_acls_is_limited(connect: Connect) -> None:
    """As without a cluster; those of other brokers count."""
    with closing(opened(connect(), 2)) as one, closing(opened(connect(), 2)) as other:
        one.create([allowing(READ, TOPIC, "t"), allowing(READ, TOPIC, "u")])
        with pytest.raises(AclRefusedError, match="at most 2") as caught:
            other.create([allowing(READ, TOPIC, "v")])
        assert caught.value.code == 44
