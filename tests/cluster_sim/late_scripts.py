"""Histories of disks that answer late: each result is of one log, and of one epoch (P25)."""

from __future__ import annotations

from cluster.requests import AlterPartition, FetchAnswer, FollowerFetch, LeaderAndIsr
from cluster_sim.scene import ROLES, Scene, end_of, fetch, join, need, shrink_to


def replace_leader(scene: Scene, old: int, new: int) -> None:
    """Let another broker lead, although the old leader lives; it hears of that."""
    for m in (1, 2, 3):
        if m != new:
            scene.do("suspect", 0, m)
    scene.do("refresh", 0)
    scene.do("decide", 0, 0)
    scene.hand(*ROLES, to=new)
    for m in (1, 2, 3):
        scene.do("accepted", 0, m)
    scene.do("ask", 0, 0)
    scene.hand(LeaderAndIsr, to=old)
    scene.drop()
    need(scene.part.state.leader == new, f"{new} should lead")


def a_late_append(scene: Scene) -> None:
    """An append ends after the topic was created again: it is not in the new log."""
    scene.do("tardy")
    scene.produce(1)
    need(len(scene.world.brokers[1].results) == 1, "the append should not have ended")
    scene.do("recreate", 0)
    for _ in range(2):
        scene.turn(2)
    scene.do("finish", 1)
    scene.turn(2)


def a_late_flush(scene: Scene) -> None:
    """A flush ends after its records were cut, and others came in their place (P24)."""
    scene.produce(1)
    fetch(scene, 2, 1)
    scene.do("tardy")
    scene.do("fetch", 0, 2)
    need(bool(scene.world.brokers[2].results), "the flush should not have ended")
    replace_leader(scene, 2, 3)
    scene.do("crash", 1)
    join(scene, 2, 3)
    record = scene.produce(3)
    fetch(scene, 2, 1)
    while scene.world.brokers[2].results:
        scene.do("finish", 2)
    fetch(scene, 2)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.do("crash", 3)
    scene.do("wipe", 3, "a")
    scene.do("power", 2, 0)


def an_append_under_way(scene: Scene) -> None:
    """A follower gets the same records twice, because its append has not ended."""
    scene.produce(1)
    scene.produce(1)
    scene.do("fetch", 0, 2)
    scene.hand(FollowerFetch)
    scene.do("tardy")
    scene.hand(FetchAnswer)
    need(len(scene.world.brokers[2].results) == 1, "the append should not have ended")
    fetch(scene, 2, 1)
    while scene.world.brokers[2].results:
        scene.do("finish", 2)
    records = [scene.produce(1), scene.produce(1)]
    for m in (2, 3, 3, 3, 2):
        fetch(scene, m, 1)
    need(all(map(scene.is_acked, records)), "the records should be acknowledged")
    end_of(scene, 1)


def a_late_read(scene: Scene) -> None:
    """A leader reads for a fetch, and meanwhile its log was cut and has other records."""
    scene.produce(1)
    fetch(scene, 2, 1)
    scene.produce(1)
    scene.do("tardy")
    scene.do("fetch", 0, 2)
    scene.hand(FollowerFetch)
    need(len(scene.world.brokers[1].results) == 1, "the read should not have ended")
    replace_leader(scene, 1, 3)
    join(scene, 1, 3)
    records = [scene.produce(3), scene.produce(3)]
    fetch(scene, 1, 2)
    need(all(map(scene.is_acked, records)), "the records should be acknowledged")
    scene.do("finish", 1)
    scene.hand(FetchAnswer)
    scene.do("ask", 0, 0)
    scene.hand(LeaderAndIsr)
    for m in (2, 1, 2, 1):
        fetch(scene, m, 1)
        scene.hand(AlterPartition, LeaderAndIsr)
    end_of(scene, 3, 1)


def a_fetch_beyond_the_known_end(scene: Scene) -> None:
    """A follower has a record whose append has not ended at the leader: it does not diverge."""
    shrink_to(scene, 1, 3)
    scene.do("tardy")
    scene.do("lonely", 0, 1)
    fetch(scene, 3, 1)
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch)
    late = scene.take(FetchAnswer)
    scene.do("finish", 1)
    fetch(scene, 3)
    need(scene.world.brokers[3].high_watermark(0) == 2, "the record should be replicated")
    scene.bring(late)
