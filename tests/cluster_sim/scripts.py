"""Histories that are told, because random search finds them rarely: each one needs its rule.

Each script holds with the rules as they are, and is violated by the mutants that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cluster.requests import (
    AlterPartition,
    AlterRefused,
    FetchAnswer,
    FollowerFetch,
    LeaderAndIsr,
    RoleAnswer,
    StopReplica,
)
from cluster_sim import disk_scripts as disks
from cluster_sim import late_scripts as late
from cluster_sim import lease_scripts as leases
from cluster_sim import leave_scripts as leaves
from cluster_sim import start_scripts as starts
from cluster_sim import stop_scripts as stops
from cluster_sim.checker import Violation
from cluster_sim.scene import (
    ROLES,
    Scene,
    acknowledge_without,
    depose,
    end_of,
    fetch,
    join,
    lose_dir,
    need,
    out_of_sync,
    shrink_to,
)


class Script(NamedTuple):
    """A history, its cluster, and the mutants that it catches."""

    tell: Callable[[Scene], None]
    cluster: dict[str, Any]
    catches: tuple[str, ...]

    def run(self) -> str:
        """Tell the history, heal the cluster, and give what is violated."""
        try:
            scene = Scene(**self.cluster)
            self.tell(scene)
            scene.heal()
        except (Violation, AssertionError) as violation:
            return str(violation) or repr(violation)
        return ""


def a_stale_answer(scene: Scene) -> None:
    """A suspect catches up after its answer; the leader then loses all: the suspect leads (P15)."""
    shrink_to(scene, 1, 2)
    lose_dir(scene, 2)
    scene.decide()
    need(scene.part.state.suspects == {2} and set(scene.part.state.isr) == {1}, "2 is a suspect")
    fetch(scene, 2, 1)
    scene.drop(AlterPartition)
    lose_dir(scene, 1)
    scene.do("refresh", 0)
    scene.do("ask", 0, 0)
    scene.hand(*ROLES, to=1)
    scene.hand(RoleAnswer)
    scene.do("decide", 0, 0)
    scene.drop(RoleAnswer)
    scene.hand(LeaderAndIsr, to=1)
    scene.decide()
    need(scene.part.state.leader == 2, "2 should lead")


def a_suspect_that_is_late(scene: Scene) -> None:
    """Both suspects lost records, and the one that has not answered has more (P15)."""
    shrink_to(scene, 1, 2)
    scene.do("flush", 0, 1)
    lose_dir(scene, 2)
    scene.decide()
    lose_dir(scene, 1)
    scene.do("refresh", 0)
    scene.do("decide", 0, 0)
    scene.hand(*ROLES)
    scene.do("decide", 0, 0)
    scene.hand(LeaderAndIsr)
    need(scene.part.state.suspects == {1, 2}, "1 and 2 should be suspects")
    answers = scene.take(RoleAnswer)
    scene.bring([m for m in answers if m.source != 1])
    scene.do("decide", 0, 0)
    scene.hand(LeaderAndIsr, to=2)
    scene.drop()
    scene.bring([m for m in answers if m.source == 1])
    scene.decide()
    need(scene.part.state.leader == 1, "1 should lead")


def a_topic_again(scene: Scene) -> None:
    """Requests about the deleted topic arrive after the new one has records (P6, P19)."""
    scene.do("ask", 0, 0)
    late = list(scene.world.net)
    scene.do("recreate", 0)
    late += [message for message in scene.world.net if message not in late]
    scene.drop()
    scene.turn(4)
    need(len(scene.part.checker.acked) > 0, "the new topic should work")
    scene.bring([m for m in late if isinstance(m.request, StopReplica)])
    scene.bring([m for m in late if isinstance(m.request, LeaderAndIsr)])


def an_old_controller(scene: Scene) -> None:
    """A new topic counts its versions from the start, and an old controller's version fits (P2)."""
    scene.do("controller", 3)
    scene.do("recreate", 0)
    scene.drop(StopReplica)
    scene.do("decide", 1, 0)
    scene.hand(*ROLES)
    entry = scene.world.controllers[0].room.entries[scene.part.key]
    need(entry.topic != scene.part.topic, "the old controller should not know the new topic")
    need(entry.version == scene.part.version, "the versions should be equal")
    scene.do("suspect", 0, 2)
    scene.do("decide", 0, 0)


def a_late_answer(scene: Scene) -> None:
    """The store answers a write about a topic after the topic was created again (P2)."""
    scene.do("minimum", 1)
    scene.do("slow")
    scene.do("refresh", 0)
    scene.do("decide", 0, 0)
    scene.do("slow")
    scene.do("recreate", 0)
    scene.hand(StopReplica)
    need(len(scene.world.answers) == 2, "two answers should be on their way")
    scene.do("hear")
    scene.do("ask", 0, 0)
    scene.hand(*ROLES)


def a_late_follower(scene: Scene) -> None:
    """A new leader's high watermark is too low: a follower below its epoch may not join (P10)."""
    shrink_to(scene, 1, 2)
    record = scene.produce(1)
    fetch(scene, 2, 1)
    scene.do("fetch", 0, 2)
    scene.hand(FollowerFetch)
    scene.drop(FetchAnswer)
    need(scene.is_acked(record), "the record should be acknowledged")
    end_of(scene, 1)
    need(set(scene.part.state.isr) == {2}, "2 should lead alone")
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch, AlterPartition, LeaderAndIsr)
    scene.drop(FetchAnswer)
    end_of(scene, 2)


def an_epoch_that_the_leader_does_not_know(scene: Scene) -> None:
    """A follower has a record of an epoch in which nobody followed; its log is no prefix (P9)."""
    depose(scene, 1, 2)
    scene.produce(2)
    scene.drop()
    depose(scene, 2, 3)
    scene.drop()
    join(scene, 1)
    record = scene.produce(3)
    for m in (2, 2, 1, 2, 1):
        fetch(scene, m, 1)
        scene.hand(AlterPartition, LeaderAndIsr)
    need(scene.is_acked(record), "the record should be acknowledged")
    end_of(scene, 3, 1)


def a_produce_that_waits(scene: Scene) -> None:
    """A leader is deposed, its record is replaced, and it leads again: no acknowledgement (P11)."""
    record = scene.produce(1)
    scene.do("suspect", 0, 1)
    scene.decide()
    need(scene.part.state.leader == 2, "2 should lead")
    scene.do("accepted", 0, 1)
    scene.decide()
    scene.produce(2)
    fetch(scene, 3)
    fetch(scene, 1, 3)
    scene.hand(AlterPartition, LeaderAndIsr)
    fetch(scene, 1)
    end_of(scene, 2)
    need(scene.part.state.leader == 1, "1 should lead again")
    fetch(scene, 3)
    need(not scene.is_acked(record), "I1 a record that was cut is acknowledged")


def a_late_deletion(scene: Scene) -> None:
    """A replica is removed and assigned again; then the first StopReplica arrives (P19)."""
    late: list[Any] = []
    for new, old in ((4, 3), (3, 4)):
        target = tuple(m for m in (1, 2, 3, 4) if m != old)
        scene.do("reassign", 0, target)
        for _ in range(12):
            scene.turn(1)
            late = late or [m for m in scene.world.net if isinstance(m.request, StopReplica)]
            if scene.part.state.target is None:
                break
            scene.do("decide", 0, 0)
            late = late or scene.take(StopReplica)
        need(new in scene.part.state.isr, f"{new} should be in the ISR")
    need(bool(late), "there should be a late StopReplica")
    scene.do("controller", 4)
    del scene.world.controllers[:-1]
    scene.bring(late)
    end_of(scene, 1, 2)


def a_doubled_proposal(scene: Scene) -> None:
    """A proposal arrives again after the member that it adds was removed again (P2, P10)."""
    proposal = out_of_sync(scene)
    scene.bring(proposal)
    scene.hand(LeaderAndIsr)
    shrink_to(scene, 1, 2)
    acknowledge_without(scene)
    scene.bring(proposal)
    scene.drop()
    end_of(scene, 1, 2)


def a_refused_proposal(scene: Scene) -> None:
    """A proposal is refused, and a second copy of it is accepted: its members count (P7)."""
    proposal = out_of_sync(scene)
    scene.do("suspect", 0, 3)
    scene.bring(proposal)
    scene.hand(AlterRefused)
    record = scene.produce(1)
    fetch(scene, 2)
    scene.drop()
    scene.do("accepted", 0, 3)
    scene.bring(proposal)
    scene.drop()
    need(3 in scene.part.state.isr, "the second copy should be accepted")
    need(not scene.is_acked(record), "P7 a proposed member does not have the record")
    end_of(scene, 1, 2)


def a_lost_confirmation(scene: Scene) -> None:
    """A proposal is accepted, and the leader does not hear of it: the new member counts (P7)."""
    proposal = out_of_sync(scene)
    scene.bring(proposal)
    scene.drop()
    record = scene.produce(1)
    fetch(scene, 2)
    need(not scene.is_acked(record), "P7 a proposed member does not have the record")
    end_of(scene, 1, 2)


def a_lost_removal(scene: Scene) -> None:
    """A proposal to remove a member is lost: the member still counts (P10)."""
    scene.do("shrink", 0, 1, 3)
    scene.drop()
    record = scene.produce(1)
    fetch(scene, 2)
    need(not scene.is_acked(record), "P10 a member of the ISR does not have the record")
    end_of(scene, 1, 2)


def a_new_leader(scene: Scene) -> None:
    """A new leader has a record that no other replica has: nobody may rely on it (P7)."""
    scene.produce(1)
    fetch(scene, 2, 1)
    scene.drop()
    end_of(scene, 1)
    need(scene.part.state.leader == 2, "2 should lead")
    scene.do("read", 0, 2)
    end_of(scene, 2)


def a_produce_below_min(scene: Scene) -> None:
    """A leader is alone, and min is lowered: it counts only when the state says so (P8)."""
    shrink_to(scene, 1)
    scene.do("minimum", 1)
    record = scene.produce(1)
    need(not scene.is_acked(record), "P8 the ISR is below min")
    end_of(scene, 1)


def a_leader_alone_loses_all(scene: Scene) -> None:
    """A leader is alone in an ISR below min, and loses its disk: another has all (P12)."""
    shrink_to(scene, 1)
    lose_dir(scene, 1)
    scene.decide()
    need(scene.part.state.leader == 3, "3 should lead")


def a_proposal_of_the_old_topic(scene: Scene) -> None:
    """A proposal for the deleted topic fits the new one in all but the topic id (P6)."""
    proposal = out_of_sync(scene)
    scene.do("recreate", 0)
    scene.drop()
    for _ in range(12):
        scene.turn(1)
    shrink_to(scene, 1, 2)
    asked = proposal[0].request
    need(asked.version == scene.part.version, "the versions should be equal")
    acknowledge_without(scene)
    scene.bring(proposal)
    scene.drop()
    end_of(scene, 1, 2)


ONE = {"min_isr": 1, "is_unclean_allowed": True}
SCRIPTS = (
    Script(a_stale_answer, {}, ("recover_stale",)),
    Script(a_suspect_that_is_late, {}, ("recover_any",)),
    Script(leases.a_lease_that_ends, ONE, ("no_lease",)),
    Script(leases.a_setting_that_is_not_heard, {"min_isr": 1}, ("unheard_lease",)),
    Script(leases.a_wrong_suspicion, ONE, ("hasty_unclean",)),
    Script(disks.a_dir_returns, {"parts": 2}, ("broker_epoch_for_dir", "return_same_epoch")),
    Script(disks.a_dir_given_up, {}, ("created_at_dir_epoch", "lead_by_dir_epoch")),
    Script(disks.a_move_from_a_lossy_dir, {}, ("move_forgets",)),
    Script(disks.a_move_to_a_lossy_dir, {}, ("member_by_dir_epoch",)),
    Script(a_topic_again, {}, ("roles_by_name",)),
    Script(an_old_controller, {}, ("no_controller_epoch",)),
    Script(a_late_answer, {}, ("any_answer",)),
    Script(a_late_follower, {}, ("no_leso",)),
    Script(an_epoch_that_the_leader_does_not_know, {}, ("kip101_only",)),
    Script(a_produce_that_waits, {}, ("ack_any_epoch",)),
    Script(a_late_deletion, {"brokers": 4, "spare": 1}, ("stop_unfenced",)),
    Script(a_doubled_proposal, {}, ("blind_writes",)),
    Script(a_refused_proposal, {}, ("forget_proposal",)),
    Script(disks.a_failure_before_a_kill, {}, ("failure_unrecorded",)),
    Script(a_lost_confirmation, {}, ("no_maximal_isr",)),
    Script(a_lost_removal, {}, ("ack_before_persist",)),
    Script(a_new_leader, {}, ("hw_is_leo",)),
    Script(a_produce_below_min, {}, ("min_isr_at_once", "loose_min_isr")),
    Script(a_leader_alone_loses_all, {}, ("no_elr",)),
    Script(disks.a_replica_made_anew, {}, ("recreated_is_whole",)),
    Script(disks.a_return_cut_short, {}, ("clear_first",)),
    Script(disks.a_restart_before_the_election, {}, ("new_to_all",)),
    Script(disks.two_restarts, {}, ("last_start_only",)),
    Script(disks.a_power_cut_of_all, {"flushes": True}, ("flush_late",)),
    Script(disks.a_leader_moves_to_a_dir_that_came_back, {"min_isr": 1}, ("moved_is_lossy",)),
    Script(disks.a_failure_before_a_reboot, {"flushes": True}, ("failure_unnoted",)),
    Script(disks.a_clean_image, {}, ("image_is_whole",)),
    Script(disks.a_clean_image, {"flushes": True}, ("image_is_whole",)),
    Script(disks.an_image_of_a_running_broker, {}, ("image_is_whole",)),
    Script(disks.a_flushed_image_after_a_reboot, {"flushes": True}, ("image_is_whole",)),
    Script(disks.an_image_and_a_torn_start, {}, ("image_is_whole",)),
    Script(disks.a_flush_setting_turned_on, {}, ("flush_at_once",)),
    Script(disks.a_fetch_from_before_the_setting, {}, ("flush_same_epoch",)),
    Script(disks.a_flush_setting_turned_off, {"flushes": True}, ("mark_stays",)),
    Script(late.a_late_append, {}, ("append_of_any_log",)),
    Script(late.a_late_flush, {"flushes": True}, ("flush_of_any_log",)),
    Script(late.an_append_under_way, {}, ("fetch_while_appending",)),
    Script(late.a_fetch_beyond_the_known_end, {}, ("diverge_while_appending",)),
    Script(late.a_late_read, {}, ("read_of_any_log",)),
    Script(stops.a_lost_stop, {"brokers": 4, "spare": 1}, ("stop_once",)),
    Script(stops.a_topic_again_at_once, {}, ("other_id_ignored",)),
    Script(stops.a_topic_again_while_a_broker_is_down, {}, ("adopt_unwritten",)),
    Script(leases.a_late_read_of_settings, {}, ("any_settings",)),
    Script(stops.a_cancelled_reassignment, {"brokers": 4, "spare": 1}, ("back_too_early",)),
    Script(stops.a_min_above_the_number_of_replicas, {"brokers": 4, "spare": 1}, ()),
    Script(stops.a_lost_deletion, {"brokers": 4}, ("delete_once",)),
    Script(stops.a_deletion_without_a_controller, {"brokers": 4}, ("deletion_forgotten",)),
    Script(leaves.a_leader_that_leaves, {}, ("leave_is_death",)),
    Script(leaves.a_broker_that_comes_back, {}, ("leave_for_ever",)),
    Script(leaves.a_leader_that_is_replaced_alive, {}, ("hand_over_in_epoch",)),
    Script(leaves.a_member_that_lost_its_records, {}, ("lead_unasked",)),
    Script(leaves.a_member_that_leaves_below_min, {}, ("leave_without_elr",)),
    Script(leaves.a_proposal_of_a_leaving_member, {}, ("admit_leaving",)),
    Script(leaves.a_leaving_member_that_fetches, {}, ("leaving_joins",)),
    Script(leaves.a_leader_that_lacks_records, {}, ("elect_any",)),
    Script(leaves.a_preferred_leader, {}, ()),
    Script(starts.a_follower_that_was_away, {}, ("count_below_start",)),
    Script(starts.a_new_replica, {"brokers": 4, "spare": 1}, ("unheard_start",)),
    Script(starts.a_deletion_during_a_fetch, {}, ("follow_at_once",)),
    Script(starts.an_end_at_the_log_start, {}, ("trust_at_start",)),
    Script(starts.an_empty_log_with_a_later_start, {}, ("empty_diverges",)),
    Script(starts.an_unclean_leader_without_the_log_start, ONE, ("cut_before_start",)),
    Script(starts.a_suspect_that_deleted_all, {}, ("empty_ranks_last",)),
    Script(a_proposal_of_the_old_topic, {}, ("requests_by_name",)),
)
