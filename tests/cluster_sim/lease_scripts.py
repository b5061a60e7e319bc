"""Histories of leases and unclean elections: no former leader acknowledges after one (P16)."""

from __future__ import annotations

from cluster.pure.replica import Role
from cluster_sim.scene import ROLES, Scene, need, shrink_to


def alone(scene: Scene) -> None:
    """Let broker 1 be the whole ISR, and acknowledge by itself."""
    shrink_to(scene, 1)
    need(scene.is_acked(scene.produce(1)), "1 should acknowledge alone")


def a_lease_that_ends(scene: Scene) -> None:
    """A leader is cut off, its session ends, another is elected uncleanly: it has stopped (P16)."""
    alone(scene)
    scene.do("cut", 1)
    scene.do("expire", 1)
    scene.decide()
    scene.do("unclean", 0)
    scene.hand(*ROLES)
    need(scene.part.state.leader in (2, 3), "an unclean election should be possible")
    scene.produce(1)


def a_wrong_suspicion(scene: Scene) -> None:
    """A leader lives although its port refused: no unclean election before its lease ends (P16)."""
    alone(scene)
    scene.do("suspect", 0, 1)
    scene.decide()
    scene.do("unclean", 0)
    scene.hand(*ROLES, to=2)
    need(scene.world.brokers[1].replicas[0].role is Role.LEADER, "1 should know nothing")
    scene.produce(1)
    scene.do("crash", 1)
    scene.do("expire", 1)
    scene.decide()
    scene.do("unclean", 0)
    need(scene.part.state.leader in (2, 3), "without the session it should be possible")


def a_setting_that_is_not_heard(scene: Scene) -> None:
    """A leader that is cut off never learns that its lease matters: it does not stop (P16)."""
    alone(scene)
    scene.do("cut", 1)
    scene.do("allow", True)
    scene.decide()
    scene.do("expire", 1)
    scene.decide()
    scene.do("unclean", 0)
    scene.hand(*ROLES)
    need(scene.part.state.is_unclean_allowed, "the setting should be in the state")
    scene.produce(1)
    need(scene.part.state.leader == -1, "no unclean election should be possible")


def a_late_read_of_settings(scene: Scene) -> None:
    """Settings are read before their change, and the read arrives after the change (P2)."""
    scene.do("slow_read")
    scene.do("refresh", 0)
    scene.do("flushing", True)
    scene.do("refresh", 0)
    scene.do("hear_read")
    scene.do("decide", 0, 0)
    need(scene.part.state.flushes, "P2 the older settings are used")
