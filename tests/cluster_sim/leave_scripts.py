"""Histories of brokers that stop in order, and of leaders that operators choose (P21)."""

from __future__ import annotations

from cluster.registration import NO_BROKER
from cluster.requests import AlterPartition, ControlledShutdown, FollowerFetch, LeaderAndIsr
from cluster_sim.scene import Scene, acknowledge_without, fetch, need, out_of_sync, shrink_to


def leave(scene: Scene, broker: int) -> None:
    """Let a broker say that it will stop, and the controller decide."""
    scene.do("leave", broker)
    scene.hand(ControlledShutdown)
    scene.decide()


def a_leader_that_leaves(scene: Scene) -> None:
    """It leads while nobody else can; then another one leads, before the broker stops."""
    shrink_to(scene, 1)
    leave(scene, 1)
    need(scene.part.state.leader == 1, "O 1 should lead while nobody else is in sync")
    for _ in range(2):
        fetch(scene, 2)
        scene.hand(AlterPartition, LeaderAndIsr)
    leave(scene, 1)
    need(scene.part.state.leader == 2, "2 should lead")
    scene.do("stop", 1)


def a_broker_that_comes_back(scene: Scene) -> None:
    """Two brokers stop in order and start again under the same controller: they are admitted."""
    for broker in (1, 2):
        leave(scene, broker)
        need(scene.part.state.leader not in (broker, NO_BROKER), "O another broker should lead")
        scene.do("stop", broker)
        scene.do("start", broker)
        scene.turn(6)
        need(broker in scene.part.state.isr, f"L {broker} should be in the ISR again")


def a_leader_that_is_replaced_alive(scene: Scene) -> None:
    """The old leader takes a record before it hears of the new one, which takes another (P11)."""
    scene.do("leave", 1)
    scene.hand(ControlledShutdown)
    scene.produce(1)
    scene.hand(LeaderAndIsr, to=2)
    scene.decide()
    record = scene.produce(2)
    fetch(scene, 3, 3)
    need(scene.is_acked(record), "the record should be acknowledged")
    fetch(scene, 1, 3)


def a_member_that_lost_its_records(scene: Scene) -> None:
    """A member was registered again and has not answered: it may lack records (P5, P21)."""
    scene.do("power", 2, 0)
    scene.do("start", 2)
    scene.do("refresh", 0)
    scene.do("leave", 3)
    scene.do("leave", 1)
    scene.hand(ControlledShutdown)
    scene.hand(LeaderAndIsr, to=2)


def a_member_that_leaves_below_min(scene: Scene) -> None:
    """It has all that was acknowledged, and the leader loses its log dir afterwards (P12)."""
    shrink_to(scene, 1, 2)
    leave(scene, 2)
    need(set(scene.part.state.isr) == {1}, "2 should have left the ISR")
    scene.do("stop", 2)
    scene.do("crash", 1)
    scene.do("wipe", 1, "a")
    scene.do("start", 2)
    scene.decide()


def a_proposal_of_a_leaving_member(scene: Scene) -> None:
    """A proposal was made before its member said that it will stop (P10)."""
    proposal = out_of_sync(scene)
    scene.do("leave", 3)
    scene.hand(ControlledShutdown)
    scene.bring(proposal)
    need(3 not in scene.part.state.isr, "P10 a leaving member is admitted")


def a_leaving_member_that_fetches(scene: Scene) -> None:
    """It left the ISR, and still fetches: the high watermark does not wait for it (P21)."""
    leave(scene, 3)
    need(set(scene.part.state.isr) == {1, 2}, "3 should have left the ISR")
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch)
    scene.do("stop", 3)
    acknowledge_without(scene)


def a_leader_that_lacks_records(scene: Scene) -> None:
    """An operator wants a replica to lead that is not in the ISR: the controller refuses."""
    shrink_to(scene, 1, 2)
    acknowledge_without(scene)
    scene.do("prefer", 0, 3)
    scene.decide()
    need(scene.part.state.leader == 1, "I1 3 lacks a record, and leads")


def a_preferred_leader(scene: Scene) -> None:
    """After its return the first of the replicas leads again, because an operator asks for it."""
    leave(scene, 1)
    scene.do("stop", 1)
    scene.do("start", 1)
    scene.turn(6)
    need(scene.part.state.leader == 2, "2 should lead")
    scene.do("prefer", 0, None)
    scene.decide()
    need(scene.part.state.leader == 1, "L 1 should lead again")
    record = scene.produce(1)
    fetch(scene, 2, 3)
    fetch(scene, 3, 3)
    need(scene.is_acked(record), "L the preferred leader should acknowledge")
