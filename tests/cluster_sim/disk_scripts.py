"""Histories of log dirs that fail, return, are given up, and lose power."""

from __future__ import annotations

from cluster.requests import LeaderAndIsr, RoleAnswer, StopReplica
from cluster_sim.scene import Scene, end_of, fetch, join, lose_dir, need, shrink_to


def a_dir_returns(scene: Scene) -> None:
    """Broker 1 leads on both dirs; one fails and returns: the other leader keeps its role (P3)."""
    part, other = scene.world.parts
    other.records += 1
    record, before = other.records, (other.state.leader, other.state.leader_epoch)
    scene.do("produce", 1, 1, record)
    lose_dir(scene, 1)
    replica = scene.world.brokers[1].replicas[1]
    need(record in replica.waiting, "E the leader on the other dir was disturbed")
    scene.turn(4)
    after = other.state.leader, other.state.leader_epoch
    need(after == before and record in other.checker.acked, "E the other leader was replaced")
    need(part.state.leader != 1, "the replica that lost all should not lead")


def a_dir_given_up(scene: Scene) -> None:
    """A dir is given up; its replica is created on the other dir, which has an old epoch (P11)."""
    scene.do("disk", 1, "a", 0)
    scene.do("giveup", 1, "a")
    scene.drop(RoleAnswer)
    scene.decide()
    need(scene.part.state.leader == 2 and 1 not in scene.part.state.isr, "2 should lead")


def a_move_from_a_lossy_dir(scene: Scene) -> None:
    """A dir lost all; its replica then moves to the intact dir: it is not whole (P4)."""
    lose_dir(scene, 2)
    scene.do("move", 0, 2)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def a_move_to_a_lossy_dir(scene: Scene) -> None:
    """A replica moved to a dir, which then lost all: its old dir's epoch says nothing (P5)."""
    scene.do("move", 0, 2)
    scene.do("disk", 2, "b", 0)
    scene.do("return", 2, "b")
    scene.drop(RoleAnswer)
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def a_replica_made_anew(scene: Scene) -> None:
    """A dir is given up, and its replica is created on a dir that lost nothing: not whole (P4)."""
    scene.do("disk", 2, "a", 0)
    scene.do("giveup", 2, "a")
    scene.drop(RoleAnswer)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def a_failure_before_a_kill(scene: Scene) -> None:
    """A dir fails, the process is killed, and the dir works again: it is not whole (P4)."""
    scene.do("disk", 2, "a", 0)
    scene.do("crash", 2)
    scene.do("mend", 2, "a")
    scene.do("start", 2)
    scene.drop(RoleAnswer)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def a_return_cut_short(scene: Scene) -> None:
    """The process is killed while a dir returns: the failure is still recorded (P4)."""
    scene.do("disk", 2, "a", 0)
    scene.do("torn_return", 2, "a", 4)
    scene.do("start", 2)
    scene.drop(RoleAnswer)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def two_restarts(scene: Scene) -> None:
    """A broker loses power, and is then killed: the second start loses nothing more (P4)."""
    scene.do("power", 2, 0)
    scene.do("start", 2)
    scene.do("crash", 2)
    scene.do("start", 2)
    scene.drop(RoleAnswer)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == 3, "3 should lead")


def a_power_cut_of_all(scene: Scene) -> None:
    """A topic that flushes loses nothing if all machines lose power at once (P24)."""
    for m in (1, 2, 3):
        scene.do("power", m, 0)


def a_restart_before_the_election(scene: Scene) -> None:
    """A replica of a new topic is on a dir that fails, and its broker is restarted (P17)."""
    scene.do("recreate", 0)
    scene.hand(StopReplica)
    scene.do("ask", 0, 0)
    scene.hand(LeaderAndIsr)
    need(scene.world.brokers[2].stored[0].exists, "2 should have a replica")
    scene.do("disk", 2, "a", 0)
    scene.do("crash", 2)
    scene.do("start", 2)
    scene.drop()
    scene.decide()


def _acknowledge_unflushed(scene: Scene) -> None:
    """Let brokers 1 and 2 acknowledge a record, of which broker 3 knows nothing."""
    record = scene.produce(1)
    fetch(scene, 2)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.drop()


def a_flush_setting_turned_on(scene: Scene) -> None:
    """A broker loses power, and only then the topic begins to flush: the loss counts (P24)."""
    shrink_to(scene, 1, 2)
    _acknowledge_unflushed(scene)
    scene.do("power", 2, 0)
    scene.do("flushing", True)
    scene.decide()
    scene.do("start", 2)
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == -1, "2 should not lead")


def a_fetch_from_before_the_setting(scene: Scene) -> None:
    """A follower does not know yet that the topic flushes: its position does not count (P24)."""
    shrink_to(scene, 1, 2)
    scene.do("flushing", True)
    scene.do("refresh", 0)
    scene.do("decide", 0, 0)
    scene.hand(LeaderAndIsr, to=1)
    scene.drop()
    scene.produce(1)
    fetch(scene, 2)
    scene.do("crash", 1)
    scene.do("wipe", 1, "a")
    scene.do("power", 2, 0)


def a_flush_setting_turned_off(scene: Scene) -> None:
    """The topic does not flush any more, and a broker loses power: it is not whole (P24)."""
    shrink_to(scene, 1, 2)
    scene.do("flushing", False)
    scene.decide()
    _acknowledge_unflushed(scene)
    scene.do("power", 2, 0)
    scene.do("start", 2)
    scene.drop()
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == -1, "2 should not lead")


def a_leader_moves_to_a_dir_that_came_back(scene: Scene) -> None:
    """Its broker was admitted before the dir came back, and the replica lost nothing (P4)."""
    shrink_to(scene, 1)
    scene.do("disk", 1, "b", 0)
    scene.do("return", 1, "b")
    scene.drop()
    scene.decide()
    scene.do("move", 0, 1)
    scene.do("ask", 0, 0)
    scene.hand(LeaderAndIsr, RoleAnswer)
    scene.decide()
    need(set(scene.part.state.isr) == {1}, "1 should stay in the ISR")


def a_failure_before_a_reboot(scene: Scene) -> None:
    """A dir lost what it had flushed, and the machine was restarted: it is not whole (P4)."""
    shrink_to(scene, 1, 2)
    _acknowledge_unflushed(scene)
    scene.do("disk", 2, "a", -1)
    scene.do("power", 2, 0)
    scene.do("mend", 2, "a")
    scene.do("start", 2)
    scene.drop()
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == -1, "2 should not lead")


def _image(scene: Scene, *, is_clean: bool) -> None:
    """Make an image of broker 2. After that, brokers 1 and 2 acknowledge a record."""
    if is_clean:
        scene.do("leave", 2)
        scene.do("stop", 2)
    scene.do("image", 2)
    scene.do("crash", 2)
    scene.do("start", 2)
    scene.drop()
    scene.decide()
    join(scene, 2)
    shrink_to(scene, 1, 2)
    _acknowledge_unflushed(scene)


def _restore(scene: Scene) -> None:
    """Restore the image of broker 2, which must not lead when broker 1 dies."""
    scene.do("restore", 2)
    scene.do("start", 2)
    scene.drop()
    scene.decide()
    end_of(scene, 1)
    need(scene.part.state.leader == -1, "2 should not lead")


def a_clean_image(scene: Scene) -> None:
    """An image of all log dirs has the mark of a clean stop, but lacks later records (P4)."""
    _image(scene, is_clean=True)
    scene.do("crash", 2)
    _restore(scene)


def an_image_of_a_running_broker(scene: Scene) -> None:
    """The image is restored in the same boot and mount, as if the process had been killed (P4)."""
    _image(scene, is_clean=False)
    scene.do("crash", 2)
    _restore(scene)


def a_flushed_image_after_a_reboot(scene: Scene) -> None:
    """A loss of power takes no flushed record, but an old image lacks flushed records (P4)."""
    _image(scene, is_clean=False)
    scene.do("power", 2, 0)
    _restore(scene)


def an_image_and_a_torn_start(scene: Scene) -> None:
    """The first start with the image is killed before the store knows the image's state (P4)."""
    _image(scene, is_clean=True)
    scene.do("crash", 2)
    scene.do("restore", 2)
    for effects in range(5):
        scene.do("torn_start", 2, effects)
        scene.do("crash", 2)
    _restore(scene)
