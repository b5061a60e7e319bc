"""Test leaders and replicas that move on purpose: clean stops, and operators' requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from broker.catalog.replica_changes import Outcome, Place, Reassignment
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import decode_response, encode_request, parse_request
from broker.wire.messages import ControlledShutdownRequest
from cluster import znodes
from cluster.control.departures import Departure
from cluster.control.operator_requests import OperatorRequests
from cluster.pure import leader
from cluster.pure.replica import Role
from cluster.registration import NO_BROKER
from cluster.state import State, parse_state
from support.members import APIS, Member, Members
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = 20.0
ORDERS = ("orders", 0)


@pytest.fixture
def members() -> Iterator[Members]:
    with fast_directory() as root, Members(root) as made:
        yield made


def state_of(members: Members, number: int = 0) -> State:
    path = znodes.state_path("orders", number)
    return parse_state(members.admin.get(path).data, path)


def topic_of(members: Members) -> dict[str, dict[str, list[int]]]:
    """Return the replicas of all partitions, as Kafka's tools read them."""
    document = json.loads(members.admin.get(znodes.topic_path("orders")).data)
    keys = ("partitions", "adding_replicas", "removing_replicas")
    return {key: document[key] for key in keys}


def controller_of(members: Members) -> Member:
    """Find the controller."""
    found: list[Member] = []

    def look() -> bool:
        for member in members.members.values():
            controller = member.member.controller
            if member.is_up and controller is not None and controller.epoch is not None:
                found[:] = [member]
        return bool(found)

    wait_until(look)
    return found[0]


def operators_of(members: Members) -> OperatorRequests:
    return controller_of(members).member.operator_requests


def values_of(members: Members, broker: int, number: int = 0) -> list[bytes | None]:
    replica = members.members[broker].replica("orders", number)
    log = None if replica is None else replica.log
    return [] if log is None else [record.value for record in log]


class Producing:
    """A producer for each partition with acks=all, which retries until it is acknowledged."""

    def __init__(self, members: Members, partitions: int) -> None:
        self.members, self.acked = members, [list[bytes]() for _ in range(partitions)]
        self._is_ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(partitions)
        ]

    def __enter__(self) -> Producing:
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        count = 0
        while not self._is_ended.is_set():
            value = b"%d-%d" % (number, count)
            self.members.produce("orders", value, number=number)
            self.acked[number].append(value)
            count += 1

    def go_on(self) -> None:
        """Wait until each producer has had two more acknowledgements."""
        before = [len(one) for one in self.acked]
        wait_until(lambda: all(len(one) > b + 2 for one, b in zip(self.acked, before, strict=True)))

    def check(self, *brokers: int) -> None:
        """Check that these brokers have all acknowledged records."""
        wait_until(lambda: all(self._has_all(broker) for broker in brokers))

    def _has_all(self, broker: int) -> bool:
        return all(
            set(acked) <= set(values_of(self.members, broker, number))
            for number, acked in enumerate(self.acked)
        )


def departure_of(member: Member) -> Departure:
    """Let a broker leave that has the controller."""
    controller = member.member.controller
    assert controller is not None
    return Departure(
        member.member.host, controller, lambda: member.broker, lambda _: pytest.fail("not asked")
    )


@pytest.mark.parametrize("broker", [1, 2])
def test_a_broker_stops_in_order(members: Members, broker: int) -> None:
    """Broker 1 is the controller. After each stop, others lead, and no ISR has the broker."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    with Producing(members, 3) as producing:
        assert controller_of(members).broker == 1
        epochs = [state_of(members, number).leader_epoch for number in range(3)]
        one = members.members[broker].member
        assert one.controller is not None
        leaving = Departure(one.host, one.controller, lambda: 1, one.connect)
        assert leaving.wait(SECONDS)
        states = [state_of(members, number) for number in range(3)]
        assert all(one.leader not in (broker, NO_BROKER) for one in states)
        assert all(broker not in one.isr and len(one.isr) == 2 for one in states)
        assert [one.leader_epoch - b for one, b in zip(states, epochs, strict=True)] == [
            int(number + 1 == broker) for number in range(3)
        ]
        members.members[broker].stop()
        producing.go_on()
        members.start(broker)
        wait_until(lambda: all(len(state_of(members, n).isr) == 3 for n in range(3)))
        producing.go_on()
    producing.check(1, 2, 3)
    assert all(state_of(members, number).unclean_epoch == -1 for number in range(3))


def test_brokers_stop_in_order_one_after_the_other(members: Members) -> None:
    """Each broker returns before the next one stops, and no record is lost."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
    with Producing(members, 2) as producing:
        for broker in (1, 2, 3):
            members.members[broker].stop()
            producing.go_on()
            members.start(broker)
            wait_until(lambda: all(len(state_of(members, n).isr) == 3 for n in range(2)))
    producing.check(1, 2, 3)


def test_a_broker_that_nobody_can_replace_stops_at_once(members: Members) -> None:
    """It has the only replica, or all others are away, so waiting would not help."""
    members.create("orders", {0: [1, 2], 1: [1]}, min_insync_replicas="1")
    members.produce("orders", b"v")
    members.produce("orders", b"v", number=1)
    members.members[2].kill()
    wait_until(lambda: set(state_of(members).isr) == {1})
    assert departure_of(members.members[1]).wait(SECONDS)
    assert members.leader("orders") is members.members[1]
    assert members.leader("orders", 1) is members.members[1]


def test_a_broker_waits_for_a_replica_that_is_not_in_sync(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits while the replica lives, but not forever."""
    members.create("orders", {0: [1, 2]}, min_insync_replicas="1")
    members.produce("orders", b"v")
    members.members[2].kill()
    wait_until(lambda: set(state_of(members).isr) == {1})
    monkeypatch.setattr(leader, "may_be_proposed", lambda fetch: False)
    members.start(2)
    leaving = departure_of(members.members[1])
    assert not leaving.wait(0.5)
    assert state_of(members).leader == 1
    monkeypatch.undo()
    assert leaving.wait(SECONDS)
    assert state_of(members).leader == 2


def test_an_earlier_incarnation_leaves_nothing(members: Members) -> None:
    """The request names the broker's session; a broker that is no controller refuses it."""
    members.create("orders", {0: [2, 1, 3]})
    members.produce("orders", b"v")

    def ask(broker: int, epoch: int) -> int:
        message = ControlledShutdownRequest(2, epoch)
        frame = bytes(encode_request(7, 3, 9, "test", message))[4:]
        answer = members.members[broker].member.answer(parse_request(memoryview(frame), APIS))
        assert isinstance(answer, list)
        _, found = decode_response(7, 3, memoryview(bytes(answer[0]))[4:])
        return int(found.error_code)

    epoch = members.members[2].member.host.broker_epoch
    assert ask(1, epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert ask(3, epoch) == ErrorCode.NOT_CONTROLLER
    assert state_of(members).leader == 2
    assert ask(1, epoch) == ErrorCode.NONE
    assert state_of(members).leader == 1


def test_the_preferred_leader_leads_again_after_its_return(members: Members) -> None:
    """It leads again only if an operator asks for it, for one partition or for all."""
    members.create("orders", {0: [1, 2, 3], 1: [2, 1, 3]})
    with Producing(members, 2) as producing:
        members.members[2].stop()
        members.start(2)
        wait_until(lambda: all(len(state_of(members, n).isr) == 3 for n in range(2)))
        assert state_of(members, 1).leader == 1
        operators = operators_of(members)
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        asked = [ORDERS, ("orders", 1), ("orders", 7)]
        found = operators.elect_leaders(asked, is_unclean=False, seconds=SECONDS)
        assert not isinstance(found, ErrorCode)
        codes = [found[place].code for place in asked]
        assert codes == [not_needed, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert state_of(members, 1).leader == 2
        producing.go_on()
        assert operators.elect_leaders(None, is_unclean=False, seconds=SECONDS) == {}
    producing.check(1, 2, 3)


def test_a_preferred_leader_that_lacks_records_is_not_elected(members: Members) -> None:
    """The preferred leader is away, so it is not in the ISR."""
    members.create("orders", {0: [2, 1, 3]})
    members.produce("orders", b"v")
    members.members[2].kill()
    members.wait_for_leader("orders", other_than=2)
    found = operators_of(members).elect_leaders([ORDERS], is_unclean=False, seconds=SECONDS)
    assert not isinstance(found, ErrorCode)
    assert found[ORDERS].code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    unclean = operators_of(members).elect_leaders([ORDERS], is_unclean=True, seconds=SECONDS)
    assert not isinstance(unclean, ErrorCode)
    assert unclean[ORDERS].code == ErrorCode.ELECTION_NOT_NEEDED


def test_only_the_controller_is_asked(members: Members) -> None:
    """Other brokers answer that clients have to find the controller."""
    members.create("orders", {0: [1, 2]})
    members.produce("orders", b"v")
    assert controller_of(members).broker == 1
    other = members.members[2].member.operator_requests
    asked: list[Place] = [ORDERS]
    assert other.elect_leaders(asked, is_unclean=False, seconds=1) == ErrorCode.NOT_CONTROLLER
    assert other.alter_reassignments({ORDERS: [2, 3]}, 1) == ErrorCode.NOT_CONTROLLER
    assert other.list_reassignments(None, 1) == ErrorCode.NOT_CONTROLLER
    assert OperatorRequests(lambda: None).list_reassignments(None, 1) == ErrorCode.NOT_CONTROLLER


def altered(members: Members, replicas: list[int] | None) -> ErrorCode:
    """Begin or cancel a reassignment of the first partition; return the result."""
    found = operators_of(members).alter_reassignments({ORDERS: replicas}, SECONDS)
    assert not isinstance(found, ErrorCode)
    return found[ORDERS].code


def test_replicas_move_to_another_broker_under_load(members: Members) -> None:
    """The replicas move from 1 and 2 to 2 and 3; the topic's znode changes, too (P1)."""
    members.create("orders", {0: [1, 2]})
    with Producing(members, 1) as producing:
        assert altered(members, [2, 3]) == ErrorCode.NONE
        wait_until(lambda: state_of(members).target is None)
        producing.go_on()
        state = state_of(members)
        assert (state.replicas, state.leader, state.min_isr) == ((2, 3), 2, 2)
        wait_until(lambda: len(members.members[1].store) == 0)
        producing.go_on()
    producing.check(2, 3)
    empty: dict[str, list[int]] = {}
    expected = {"partitions": {"0": [2, 3]}, "adding_replicas": empty, "removing_replicas": empty}
    assert topic_of(members) == expected
    assert operators_of(members).list_reassignments(None, SECONDS) == {}
    assert altered(members, [2, 3]) == ErrorCode.NONE  # nothing is to be done
    assert altered(members, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_to_a_broker_that_dies_is_cancelled(members: Members) -> None:
    """The reassignment waits, is listed, refuses a second one, and goes back."""
    members.create("orders", {0: [1, 2]})
    with Producing(members, 1) as producing:
        members.members[3].server.stop(0.0)  # it is registered, and does not answer
        assert altered(members, [2, 3]) == ErrorCode.NONE
        assert topic_of(members) == {
            "partitions": {"0": [1, 2, 3]},
            "adding_replicas": {"0": [3]},
            "removing_replicas": {"0": [1]},
        }
        listed = {ORDERS: Reassignment((1, 2, 3), (3,), (1,))}
        operators = operators_of(members)
        assert operators.list_reassignments(None, SECONDS) == listed
        assert operators.list_reassignments([ORDERS], SECONDS) == listed
        assert operators.list_reassignments([("orders", 1)], SECONDS) == {}
        assert altered(members, [3, 2]) == ErrorCode.REASSIGNMENT_IN_PROGRESS
        members.members[3].kill()
        producing.go_on()
        assert state_of(members).target == (2, 3) and state_of(members).min_isr == 2
        assert altered(members, None) == ErrorCode.NONE
        wait_until(lambda: state_of(members).replicas == (1, 2))
        producing.go_on()
    producing.check(1, 2)
    three = members.start(3)
    wait_until(lambda: state_of(members).removed == frozenset() and len(three.store) == 0)
    assert topic_of(members)["partitions"] == {"0": [1, 2]}


@pytest.mark.parametrize("replicas", [[2, 9], [2, 2], [], [2]])
def test_a_bad_reassignment_is_refused(members: Members, replicas: list[int]) -> None:
    """If a broker is unknown or named twice, or there are too few, nothing changes."""
    members.create("orders", {0: [1, 2]})
    members.produce("orders", b"v")
    before = state_of(members)
    assert altered(members, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert state_of(members) == before
    unknown = operators_of(members).alter_reassignments({("orders", 5): [1, 2]}, SECONDS)
    assert not isinstance(unknown, ErrorCode)
    assert unknown["orders", 5].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_operator_accepts_a_loss(members: Members) -> None:
    """The only in-sync replica is lost; another replica leads, because an operator asks for it."""
    members.create("orders", {0: [1, 2]}, min_insync_replicas="1")
    members.produce("orders", b"v")
    members.members[2].kill()
    wait_until(lambda: set(state_of(members).isr) == {1})
    members.produce("orders", b"only on 1")
    members.members[1].kill()
    members.start(2)
    wait_until(lambda: state_of(members).leader == NO_BROKER)
    outcomes: list[Outcome] = []

    def elect() -> bool:
        operators = operators_of(members)
        found = operators.elect_leaders([ORDERS], is_unclean=True, seconds=SECONDS)
        assert not isinstance(found, ErrorCode)
        outcomes.append(found[ORDERS])
        return outcomes[-1].code == ErrorCode.NONE

    wait_until(elect)  # until then, replica 2 has not answered
    waited = {one.code for one in outcomes[:-1]}
    assert waited <= {ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    wait_until(lambda: members.leader("orders") is members.members[2])
    replica = members.members[2].replica("orders")
    assert replica is not None and replica.role is Role.LEADER
    assert state_of(members).unclean_epoch >= 0
