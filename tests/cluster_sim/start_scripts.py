"""Histories of log starts that rise: what was deleted neither returns nor stops anybody (P26)."""

from __future__ import annotations

from cluster.requests import AlterPartition, FetchAnswer, FollowerFetch, LeaderAndIsr
from cluster_sim.lease_scripts import alone
from cluster_sim.scene import (
    ROLES,
    Scene,
    depose,
    end_of,
    fetch,
    join,
    lose_dir,
    need,
    shrink_to,
)


def a_follower_that_was_away(scene: Scene) -> None:
    """Its log ends before the leader's log start: it counts only after it has begun anew."""
    shrink_to(scene, 1, 2)
    record = scene.produce(1)
    fetch(scene, 2)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.do("trim", 0, 1, 2, 2)
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch, AlterPartition, LeaderAndIsr)
    need(len(scene.take(FetchAnswer)) == 1, "3 should be asked to begin anew")
    end_of(scene, 1, 2)


def a_new_replica(scene: Scene) -> None:
    """The leader has deleted records before a replica is made: it begins at the log start."""
    scene.do("trim", 0, 1, 1, 1)
    scene.do("reassign", 0, (1, 2, 4))
    scene.turn(12)
    need(4 in scene.part.state.isr, "D broker 4 should be in the ISR")
    need(scene.world.brokers[4].stored[0].start >= 1, "4 should begin at the log start")


def a_deletion_during_a_fetch(scene: Scene) -> None:
    """The log start rises inside a batch while the leader reads: a follower does not know all."""
    shrink_to(scene, 1, 2)
    scene.produce(1)
    fetch(scene, 2)
    scene.do("tardy")
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch)
    need(len(scene.world.brokers[1].results) == 1, "the read should not have ended")
    scene.produce(1)
    fetch(scene, 2)
    scene.do("trim", 0, 1, 3, 1)
    scene.do("finish", 1)
    scene.hand(FetchAnswer)
    need(scene.world.brokers[3].stored[0].start == 2, "3 should delete what is replicated")


def an_end_at_the_log_start(scene: Scene) -> None:
    """A deposed leader has a record that was replaced, and its successor deletes up to there."""
    scene.do("lonely", 0, 1)
    scene.drop()
    depose(scene, 1, 2)
    record = scene.produce(2)
    fetch(scene, 3)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.do("trim", 0, 2, 2, 2)
    scene.do("ask", 0, 0)
    scene.hand(*ROLES)
    scene.do("fetch", 0, 1)
    scene.hand(FollowerFetch, AlterPartition, LeaderAndIsr)
    scene.drop(FetchAnswer)
    end_of(scene, 2, 3)


def an_empty_log_with_a_later_start(scene: Scene) -> None:
    """A follower began anew, and then a leader is elected whose log starts earlier."""
    shrink_to(scene, 1, 2)
    scene.produce(1)
    fetch(scene, 2)
    scene.do("trim", 0, 1, 2, 2)
    fetch(scene, 3, 1)
    need(scene.world.brokers[3].stored[0].start == 2, "3 should have begun anew")
    end_of(scene, 1)
    need(scene.part.state.leader == 2, "2 should lead")
    join(scene, 3)
    need(scene.world.brokers[2].stored[0].start == 0, "2 should have kept its records")


def an_unclean_leader_without_the_log_start(scene: Scene) -> None:
    """A leader deleted all and dies; another leads uncleanly, and ends before that log start."""
    alone(scene)
    scene.produce(1)
    scene.do("trim", 0, 1, 3, 3)
    scene.do("crash", 1)
    scene.do("expire", 1)
    scene.decide()
    scene.do("unclean", 0)
    scene.hand(*ROLES)
    need(scene.part.state.leader in (2, 3), "an unclean election should be possible")
    scene.do("start", 1)
    scene.decide()
    fetch(scene, 1)
    need(scene.world.brokers[1].stored[0].start == 0, "1 should have begun again")


def a_suspect_that_deleted_all(scene: Scene) -> None:
    """Both suspects had losses; one deleted all that it had, so it has no last epoch (P15)."""
    scene.do("flush", 0, 2)
    shrink_to(scene, 1, 2)
    record = scene.produce(1)
    fetch(scene, 2)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.do("trim", 0, 1, 2, 2)
    scene.do("power", 2, 0)
    lose_dir(scene, 1)
    scene.do("start", 2)
