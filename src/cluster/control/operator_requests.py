"""Let operators change leaders and replicas through the controller (KIP-455, KIP-460).

The rules accept a request, or reject it with a reason. This module adds Kafka's error code to the
reason. If this broker is not the controller, the answer says so, and the client asks the
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from broker.catalog.replica_changes import Outcome, Place, Reassignment
from broker.coordination.errors import CoordinationError
from broker.wire.error_codes import ErrorCode
from cluster.control.controller_host import ControllerHost
from cluster.pure import control_exchange as ce
from cluster.pure import operators
from cluster.state import State, changes_of

# An answer waits this long until the live brokers know of the change, because the client may send
# its next request to any of them.
KNOWN_SECONDS_MAX = 1.0
TRIES = 3  # a write fails if its answer is lost, or if the topic was changed in the meantime
CODES = {
    operators.NOT_KNOWN: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    operators.UNDER_WAY: ErrorCode.REASSIGNMENT_IN_PROGRESS,
    operators.NOT_UNDER_WAY: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    operators.CANCELLED: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    operators.LEADS_ALREADY: ErrorCode.ELECTION_NOT_NEEDED,
    operators.HAS_LEADER: ErrorCode.ELECTION_NOT_NEEDED,
    operators.NO_CANDIDATE: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    operators.NOT_YET: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}

Result = TypeVar("Result")


class OperatorRequests:
    """Implement `broker.catalog.replica_changes.ReplicaChanges` for a broker of a cluster.

    Threads: any thread may call any method. The controller's thread does the work.
    """

    def __init__(self, find: Callable[[], ControllerHost | None]) -> None:
        """Keep the function that finds the candidate.

        Args:
            find: returns this broker's candidate for controller; None before its start.
        """
        self._find = find

    def elect_leaders(
        self, places: Sequence[Place] | None, *, is_unclean: bool, seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Let the first replica of each partition lead, or elect a leader that may lack records."""
        return self._run(lambda desk: _elect(desk, places, is_unclean), seconds)

    def alter_reassignments(
        self, wanted: Mapping[Place, Sequence[int] | None], seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Begin reassignments to these brokers. For None, cancel the running reassignment."""
        return self._run(
            lambda desk: {place: _alter(desk, place, one) for place, one in wanted.items()}, seconds
        )

    def list_reassignments(
        self, places: Collection[Place] | None, seconds: float
    ) -> Mapping[Place, Reassignment] | ErrorCode:
        """List the running reassignments of these partitions, or of all partitions."""
        return self._run(lambda desk: _list(desk, places), seconds)

    def _run(self, do: Callable[[ControllerHost], Result], seconds: float) -> Result | ErrorCode:
        desk = self._find()
        if desk is None:
            return ErrorCode.NOT_CONTROLLER
        try:
            found = desk.run(lambda: do(desk), seconds)
            if found is not None:
                desk.announcer.wait_known(min(seconds, KNOWN_SECONDS_MAX))
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
        except CoordinationError:  # the reign has ended
            return ErrorCode.NOT_CONTROLLER
        return ErrorCode.NOT_CONTROLLER if found is None else found


def _elect(
    desk: ControllerHost, places: Sequence[Place] | None, is_unclean: bool
) -> dict[Place, Outcome]:
    found = {}
    for place in [*desk.room.entries] if places is None else places:
        if is_unclean:
            outcome = _fulfil(desk, ce.ElectUncleanly(place, is_forced=True))
        else:
            outcome = _fulfil(desk, ce.ElectLeader(place))
        if places is not None or outcome.code != ErrorCode.ELECTION_NOT_NEEDED:
            found[place] = outcome
    return found


def _alter(desk: ControllerHost, place: Place, replicas: Sequence[int] | None) -> Outcome:
    if replicas is None:
        return _fulfil(desk, ce.CancelReassignment(place))
    entry, target = desk.room.entries.get(place), tuple(replicas)
    if entry is not None and _is_same(entry.state, target):
        return Outcome()
    return _fulfil(desk, ce.Reassign(place, target))


def _is_same(state: State, target: tuple[int, ...]) -> bool:
    """Check that a partition has these replicas, or is being reassigned to them already.

    To change the throttle of a running reassignment, kafka-reassign-partitions sends the same
    reassignment again.
    """
    if state.target is None:
        return state.replicas == target
    return state.target == target and state.original is not None


def _list(desk: ControllerHost, places: Collection[Place] | None) -> dict[Place, Reassignment]:
    return {
        place: Reassignment(entry.state.replicas, *changes_of(entry.state))
        for place, entry in desk.room.entries.items()
        if entry.state.target is not None and (places is None or place in places)
    }


def _fulfil(desk: ControllerHost, wish: ce.Wish) -> Outcome:
    """Let the rules handle a request, until it is rejected or the new state is written."""
    for _ in range(TRIES):
        if reason := desk.tell(wish):
            return Outcome(CODES.get(reason, ErrorCode.INVALID_REPLICA_ASSIGNMENT), reason)
        if desk.room.is_deposed:
            return Outcome(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
        entry = desk.room.entries.get(wish.key)
        if entry is not None and is_fulfilled(wish, entry.state):
            return Outcome()
    return Outcome(ErrorCode.REQUEST_TIMED_OUT, "the coordination store did not take the change")


def is_fulfilled(wish: ce.Wish, state: State) -> bool:
    """Check that a state contains the change that an operator asked for."""
    match wish:
        case ce.Reassign(_, target):
            return target in (state.target, state.replicas)
        case ce.CancelReassignment():
            return state.original is None
        case ce.ElectLeader(_, broker):
            return state.leader == (state.replicas[0] if broker is None else broker)
        case ce.ElectUncleanly():
            return state.leader >= 0
