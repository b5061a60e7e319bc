"""Test that the brokers of a deleted topic are asked until each has answered."""

from __future__ import annotations

from cluster.pure import control_exchange as ce
from cluster.pure.controller import Controller
from cluster.pure.exchange import Opened, RemoveReplica, RoleEnded
from cluster.pure.partition import handle
from cluster.registration import DELETED_VERSION, NO_TOPIC, Registration, TopicIdentity
from cluster.requests import StopAnswer, StopReplica
from cluster.state import State
from support.replicas import order, replica_of

KEY = ("orders", 0)
TOPIC = TopicIdentity("first", 3)
STATE = State(1, 4, 1, {1: 10, 2: 20}, {}, frozenset(), 10, (1, 2), None, 2)
STATE = STATE._replace(removed=frozenset({3}))
DELETION = ce.Deletion(TOPIC, 0, DELETED_VERSION, frozenset({1, 2, 3}))


def controller_of(*live: int) -> Controller:
    """Return a controller of these live brokers."""
    controller = Controller(5)
    registrations = {m: Registration(10 * m, 10 * m, {}) for m in live}
    controller.handle(ce.RegistrationsRead(registrations), 0)
    return controller


def stop(broker: int) -> ce.SendRequest:
    """Return the request to a broker."""
    return ce.SendRequest(broker, StopReplica(TOPIC, 0, 10 * broker, DELETED_VERSION))


def test_a_deletion_is_kept_before_the_first_request() -> None:
    """The deletion names all replicas, including those that a reassignment removed (P19)."""
    controller = controller_of(1, 3)
    controller.handle(ce.StateRead(KEY, TOPIC, 7, STATE, ce.TopicConfig(2)), 0)
    effects = controller.handle(ce.DeleteTopic(KEY), 0)
    assert effects == [ce.KeepDeletion(DELETION), stop(1), stop(3)]


def test_a_replica_that_obeyed_a_version_which_the_controller_has_not_read_is_deleted() -> None:
    """Another controller wrote this version just before the topic was deleted."""
    replica = replica_of()
    handle(replica, order(9), 0)
    controller = controller_of(1)
    controller.handle(ce.StateRead(KEY, TOPIC, 7, STATE, ce.TopicConfig(2)), 0)
    for effect in controller.handle(ce.DeleteTopic(KEY), 0):
        if isinstance(effect, ce.SendRequest):
            assert RemoveReplica() in handle(replica, effect.request, 0)
    assert not replica.exists
    assert handle(replica, order(10), 0) == []  # it is late


def test_a_deletion_is_remembered_when_the_log_dir_returns() -> None:
    """A late request does not create the replica again; a request of a newer topic does."""
    replica = replica_of()
    handle(replica, order(7), 0)
    handle(replica, StopReplica(TOPIC, 0, 10, DELETED_VERSION), 0)
    assert not replica.exists
    handle(replica, RoleEnded(), 0)
    handle(replica, Opened(replica.dir_id, NO_TOPIC, exists=False), 0)
    assert handle(replica, order(8), 0) == [] and not replica.exists
    newer = TopicIdentity("second", 30)
    handle(replica, order(1, topic=newer, is_new=True), 0)
    assert replica.exists and replica.topic == newer


def test_a_replica_whose_log_dir_was_replaced_is_created_again() -> None:
    """The replica was not deleted, so the controller asks for it with its version."""
    replica = replica_of()
    handle(replica, order(7), 0)
    handle(replica, RoleEnded(), 0)
    handle(replica, Opened(replica.dir_id, NO_TOPIC, exists=False), 0)
    handle(replica, order(7), 0)
    assert replica.exists


def test_regression_a_deletion_of_an_unknown_partition_is_rejected() -> None:
    """The read of the partition is late; otherwise its replicas would stay."""
    delete = ce.DeleteTopic(KEY)
    rejected = ce.Reject(delete, "the partition is not known")
    assert controller_of(1).handle(delete, 0) == [rejected]


def test_brokers_are_asked_until_they_have_answered() -> None:
    """The next controller asks, too; an absent broker is asked when it is back (P23)."""
    controller = controller_of(1, 2)
    controller.handle(ce.DeletionsRead((DELETION,)), 0)
    assert controller.handle(ce.StopsDue(), 0) == [stop(1), stop(2)]
    assert controller.handle(StopAnswer(TOPIC, 0, 1, 7), 0) == []
    assert controller.handle(StopAnswer(TOPIC, 0, 1, DELETED_VERSION), 0) == []
    assert controller.handle(ce.StopsDue(), 0) == [stop(2)]
    controller.handle(StopAnswer(TOPIC, 0, 3, DELETED_VERSION), 0)
    assert controller.handle(StopAnswer(TOPIC, 0, 2, DELETED_VERSION), 0) == [
        ce.ForgetDeletion(TOPIC, 0)
    ]
    assert controller.handle(ce.StopsDue(), 0) == []
    assert controller.handle(StopAnswer(TOPIC, 0, 2, DELETED_VERSION), 0) == []
