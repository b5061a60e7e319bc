"""Histories of replicas that must be deleted: brokers are asked until they answer (P19)."""

from __future__ import annotations

from cluster.pure import control_exchange as ce
from cluster.requests import AlterPartition, LeaderAndIsr, StopReplica
from cluster_sim.scene import Scene, fetch, need


def a_lost_stop(scene: Scene) -> None:
    """A reassignment has ended, and the request to delete the removed replica is lost."""
    scene.do("reassign", 0, (1, 2, 4))
    while 4 not in scene.part.state.isr:
        scene.turn(1)
    while scene.part.state.target is not None:
        scene.do("decide", 0, 0)
    need(bool(scene.take(StopReplica)), "broker 3 should be asked")
    need(scene.part.state.removed == {3}, "the state should name broker 3")


def a_lost_deletion(scene: Scene) -> None:
    """A topic is created again on fewer brokers, and the requests for the old one are lost."""
    (controller,) = scene.world.controllers
    scene.world.tell(controller, ce.DeleteTopic(scene.part.key))
    need(len(scene.take(StopReplica)) == 4, "all brokers should be asked")
    scene.world.create(controller, scene.part, (1, 2, 3))


def a_deletion_without_a_controller(scene: Scene) -> None:
    """The same, and then the controller is replaced."""
    a_lost_deletion(scene)
    scene.do("controller", 2)
    del scene.world.controllers[:-1]


def a_topic_again_at_once(scene: Scene) -> None:
    """The requests to delete the old topic are lost: its replicas make room at once (P6)."""
    scene.do("recreate", 0)
    scene.drop(StopReplica)
    scene.decide()
    for broker in scene.world.brokers.values():
        is_new = broker.stored[0].topic == scene.part.topic
        need(is_new, f"P6 broker {broker.id} keeps a replica of the older topic")


def a_topic_again_while_a_broker_is_down(scene: Scene) -> None:
    """A replica had no topic id when it got its first role; its log is not the new topic's (P6)."""
    broker = scene.world.brokers[2]
    scene.do("crash", 2)
    broker.stored[0].is_named = False
    scene.do("start", 2)
    scene.decide()
    need(broker.replicas[0].topic == scene.part.topic, "2 should have adopted the topic")
    scene.do("crash", 2)
    scene.do("recreate", 0)
    scene.drop(StopReplica)
    scene.do("start", 2)
    scene.decide()
    need(broker.stored[0].topic == scene.part.topic, "P6 2 takes the old log for the new one")


def a_cancelled_reassignment(scene: Scene) -> None:
    """A record is on broker 1 and on the added one; the reassignment goes back (P18)."""
    scene.do("reassign", 0, (1, 4))
    while 4 not in scene.part.state.isr:
        fetch(scene, 4, 1)
        scene.do("decide", 0, 0)
        scene.hand(AlterPartition, LeaderAndIsr)
    for m in (2, 3):
        scene.do("shrink", 0, 1, m)
        scene.hand(AlterPartition, LeaderAndIsr)
    record = scene.produce(1)
    fetch(scene, 4)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.do("cancel", 0)
    scene.decide()
    scene.do("crash", 1)
    scene.do("wipe", 1, "a")


def a_min_above_the_number_of_replicas(scene: Scene) -> None:
    """A reassignment cannot end, because min was raised; it is cancelled, and ends (P18)."""
    scene.do("reassign", 0, (1, 2, 4))
    scene.do("minimum", 4)
    scene.turn(6)
    need(scene.part.state.target is not None, "the reassignment should not have ended")
    scene.do("cancel", 0)
    scene.turn(6)
    need(scene.part.state.replicas == (1, 2, 3), "L the reassignment should have gone back")
    scene.do("minimum", 2)
