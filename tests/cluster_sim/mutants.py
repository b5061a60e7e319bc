"""Change one rule of the real rooms at a time: the simulator must object to each change.

A mutant replaces functions and methods of the rooms while a history runs. It can only be reached
from tests. Each one stands for a rule that an earlier design, or Kafka, did not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

from cluster_sim import changed_controller as c
from cluster_sim import changed_replica as r
from cluster_sim import changed_starts as s

Patch = tuple[Any, str, Any]


class Mutant(NamedTuple):
    """A rule that is left out, and what is done instead.

    Attributes:
        focus: steps that each history needs, so that the mutant can show itself.
    """

    name: str
    instead: str
    patches: Sequence[Patch]
    focus: tuple[str, ...] = ()
    brokers: int = 3


_ALL = (
    Mutant(
        "truncate_to_hw",
        "a follower first cuts to its own high watermark",
        r.TRUNCATE_TO_HIGH_WATERMARK,
    ),
    Mutant("hw_is_leo", "a new leader takes its log end for the high watermark", r.HW_IS_LEO),
    Mutant(
        "kip101_only", "an epoch that the leader does not know gives no divergence", r.KIP101_ONLY
    ),
    Mutant("ids_only", "the ISR has ids, and no admissions", c.IDS_ONLY),
    Mutant(
        "restart_is_whole", "a broker that was registered again counts as whole", c.RESTART_IS_WHOLE
    ),
    Mutant("last_start_only", "a dir attests only what its last start lost", r.LAST_START_ONLY),
    Mutant(
        "ack_before_persist",
        "the leader uses a smaller ISR before the store has it",
        r.ACK_BEFORE_PERSIST,
    ),
    Mutant("no_maximal_isr", "the leader ignores proposed members", r.NO_MAXIMAL_ISR),
    Mutant("forget_proposal", "a refused or unanswered proposal is forgotten", r.FORGET_PROPOSAL),
    Mutant("loose_min_isr", "the high watermark moves while the ISR is below min", r.LOOSE_MIN_ISR),
    Mutant("no_leso", "a follower joins below the start of the leader epoch", r.NO_LESO),
    Mutant(
        "resume_epoch",
        "a restarted leader continues in its old epoch",
        [*r.RESUME_EPOCH, *c.RESUME_EPOCH],
    ),
    Mutant(
        "no_broker_epoch",
        "control requests are obeyed whatever broker epoch they name",
        r.NO_BROKER_EPOCH,
    ),
    Mutant("return_same_epoch", "a dir returns without a new registration", r.RETURN_SAME_EPOCH),
    Mutant(
        "failure_unrecorded", "the failure of a dir is not recorded on tmpfs", r.FAILURE_UNRECORDED
    ),
    Mutant(
        "failure_unnoted",
        "the failure of a dir is not noted in the other dirs",
        r.FAILURE_UNNOTED,
    ),
    Mutant(
        "image_is_whole",
        "an old image of all log dirs counts as whole as when it was made",
        r.IMAGE_IS_WHOLE,
    ),
    Mutant("new_to_all", "a new topic is new to brokers that were restarted", c.NEW_TO_ALL),
    Mutant("any_answer", "a late answer about an older topic's state is taken", c.ANY_ANSWER),
    Mutant("clear_first", "the failure record is cleared before the entry", r.CLEAR_FIRST),
    Mutant(
        "recreated_is_whole", "an empty replica counts as the one before it", r.RECREATED_IS_WHOLE
    ),
    Mutant(
        "create_while_bad",
        "a replica is created elsewhere while its dir is bad",
        r.CREATE_WHILE_BAD,
    ),
    Mutant(
        "ack_any_epoch", "a produce waits on after a change of the leader epoch", r.ACK_ANY_EPOCH
    ),
    Mutant(
        "ack_duplicate", "a duplicate is acknowledged because the leader has it", r.ACK_DUPLICATE
    ),
    Mutant(
        "min_isr_at_once",
        "the leader takes min from the settings, not from the state",
        r.MIN_ISR_AT_ONCE,
    ),
    Mutant(
        "reassign_early",
        "a reassignment ends before the new replicas are in sync",
        c.REASSIGN_EARLY,
        brokers=4,
    ),
    Mutant(
        "stop_unfenced",
        "a late StopReplica deletes a replica that was assigned again",
        r.STOP_UNFENCED,
        brokers=4,
    ),
    Mutant("recover_any", "a recovery does not wait for all suspects", c.RECOVER_ANY),
    Mutant(
        "recover_stale",
        "a recovery uses answers from before the leaderless version",
        c.RECOVER_STALE,
        ("disk",),
    ),
    Mutant("no_renewal", "a renewed lease gives no role back", r.NO_RENEWAL, ("unclean",)),
    Mutant("no_lease", "a leader continues without its session", r.NO_LEASE, ("cut", "unclean")),
    Mutant(
        "no_controller_epoch",
        "writes are fenced by the version alone",
        c.NO_CONTROLLER_EPOCH,
        ("controller", "recreate", "suspect"),
    ),
    Mutant("blind_writes", "writes of the controller name no version", c.BLIND_WRITES),
    Mutant("flush_late", "records count before they are flushed", r.FLUSH_LATE),
    Mutant(
        "flush_at_once",
        "losses from before the topic flushed are forgotten",
        r.FLUSH_AT_ONCE,
    ),
    Mutant(
        "flush_same_epoch",
        "positions count that were confirmed before the follower flushed",
        c.FLUSH_SAME_EPOCH,
    ),
    Mutant("mark_stays", "a topic that does not flush any more counts as flushed", r.MARK_STAYS),
    Mutant("broker_epoch_for_dir", "a dir returns with a new broker epoch", r.BROKER_EPOCH_FOR_DIR),
    Mutant(
        "member_by_dir_epoch",
        "members are admitted at the epoch of their dir",
        [*r.MEMBER_BY_DIR_EPOCH, *c.MEMBER_BY_DIR_EPOCH],
    ),
    Mutant(
        "created_at_dir_epoch",
        "a new replica is whole since its dir's epoch",
        r.CREATED_AT_DIR_EPOCH,
    ),
    Mutant(
        "lead_by_dir_epoch",
        "a new replica takes a role by its dir's epoch alone",
        r.LEAD_BY_DIR_EPOCH,
    ),
    Mutant(
        "move_forgets",
        "a moved replica forgets what its old dir lost",
        r.MOVE_FORGETS,
        ("disk", "move"),
    ),
    Mutant(
        "moved_is_lossy",
        "a moved replica takes over what its new dir lost before",
        r.MOVED_IS_LOSSY,
    ),
    Mutant("roles_by_name", "roles and deletions are obeyed by name", r.ROLES_BY_NAME),
    Mutant(
        "requests_by_name",
        "fetches, proposals and answers go by name",
        [*r.REQUESTS_BY_NAME, *c.REQUESTS_BY_NAME],
    ),
    Mutant("other_id_ignored", "a replica of an older topic stays", r.OTHER_ID_IGNORED),
    Mutant("adopt_unwritten", "an adopted topic id is not written down", r.ADOPT_UNWRITTEN),
    Mutant("gone_for_ever", "a suspicion ends only with a new registration", c.GONE_FOR_EVER),
    Mutant(
        "hasty_unclean",
        "an unclean election waits for no lease",
        c.HASTY_UNCLEAN,
        ("suspect", "unclean"),
    ),
    Mutant(
        "append_of_any_log",
        "an append counts for the log that there is when it ends",
        r.APPEND_OF_ANY_LOG,
    ),
    Mutant(
        "flush_of_any_log",
        "a flush counts although the log was cut meanwhile",
        r.FLUSH_OF_ANY_LOG,
    ),
    Mutant(
        "fetch_while_appending",
        "a follower fetches before its last append has ended",
        r.FETCH_WHILE_APPENDING,
    ),
    Mutant(
        "diverge_while_appending",
        "a leader answers where its log ends before its append has ended",
        r.DIVERGE_WHILE_APPENDING,
    ),
    Mutant(
        "read_of_any_log",
        "a follower appends records of a later epoch than its leader's",
        r.READ_OF_ANY_LOG,
    ),
    Mutant(
        "unheard_lease",
        "an unclean election trusts a leader that does not know the setting",
        c.UNHEARD_LEASE,
    ),
    Mutant("stop_once", "a removed replica is asked for only once", c.STOP_ONCE, brokers=4),
    Mutant("delete_once", "the replica of a deleted topic is asked for only once", c.DELETE_ONCE),
    Mutant(
        "deletion_forgotten",
        "a new controller does not know what was to be deleted",
        c.DELETION_FORGOTTEN,
    ),
    Mutant("any_settings", "a late read brings older settings back", c.ANY_SETTINGS),
    Mutant(
        "back_too_early",
        "a cancelled reassignment ends with one original replica in sync",
        c.BACK_TOO_EARLY,
        brokers=4,
    ),
    Mutant(
        "leave_is_death",
        "a broker that leaves counts as gone at once",
        c.LEAVE_IS_DEATH,
        ("leave",),
    ),
    Mutant(
        "leave_for_ever",
        "a broker that left and came back counts as leaving",
        c.LEAVE_FOR_EVER,
        ("leave",),
    ),
    Mutant(
        "hand_over_in_epoch",
        "a leader that leaves is replaced in its own leader epoch",
        c.HAND_OVER_IN_EPOCH,
        ("leave", "prefer"),
    ),
    Mutant(
        "lead_unasked",
        "the lead moves to a member that may have lost records",
        c.LEAD_UNASKED,
        ("leave", "prefer"),
    ),
    Mutant(
        "leave_without_elr",
        "a leaving broker leaves an ISR below min and is forgotten",
        c.LEAVE_WITHOUT_ELR,
        ("leave",),
    ),
    Mutant(
        "admit_leaving",
        "a leaving broker is admitted to an ISR",
        c.ADMIT_LEAVING,
        ("leave",),
    ),
    Mutant(
        "leaving_joins",
        "a leaving follower is proposed for the ISR",
        r.LEAVING_JOINS,
        ("leave",),
    ),
    Mutant(
        "elect_any",
        "an operator may let any replica lead",
        c.ELECT_ANY,
        ("prefer",),
    ),
    Mutant(
        "anew_over_records",
        "a follower begins anew although it has records after the leader's log start",
        s.ANEW_OVER_RECORDS,
        ("trim",),
    ),
    Mutant(
        "count_below_start",
        "a follower that begins anew counts at once",
        s.COUNT_BELOW_START,
        ("trim",),
    ),
    Mutant("cut_at_zero", "logs without a common epoch are cut at 0", s.CUT_AT_ZERO, ("trim",)),
    Mutant("no_follow", "a follower keeps what its leader deleted", s.NO_FOLLOW, ("trim",)),
    Mutant(
        "follow_at_once",
        "a follower deletes above its high watermark",
        s.FOLLOW_AT_ONCE,
        ("trim",),
    ),
    Mutant(
        "trust_at_start",
        "a follower that ends at the leader's log start is not compared",
        s.TRUST_AT_START,
        ("trim",),
    ),
    Mutant(
        "empty_diverges",
        "an empty log that begins after the leader's log start is compared",
        s.EMPTY_DIVERGES,
        ("trim",),
    ),
    Mutant(
        "never_anew",
        "a fetch from before the leader's log start is refused for ever",
        s.NEVER_ANEW,
        ("trim",),
    ),
    Mutant(
        "unheard_start",
        "the rules do not hear that the log start rose",
        s.UNHEARD_START,
        ("trim",),
    ),
    Mutant(
        "empty_ranks_last",
        "a log without records is shorter than all others",
        s.EMPTY_RANKS_LAST,
        ("trim",),
    ),
    Mutant(
        "cut_before_start",
        "after an unclean election, a log is cut before its start",
        s.CUT_BEFORE_START,
        ("trim", "unclean"),
    ),
    Mutant("no_elr", "members that leave an ISR below min are forgotten", c.NO_ELR),
)

MUTANTS = {mutant.name: mutant for mutant in _ALL}


@contextlib.contextmanager
def changed(name: str) -> Iterator[None]:
    """Run with a mutant; with the rules as they are if the name is empty."""
    with contextlib.ExitStack() as stack:
        for owner, attribute, replacement in MUTANTS[name].patches if name else ():
            stack.enter_context(mock.patch.object(owner, attribute, replacement))
        yield


def with_mutant(name: str, function: Callable[[], Any]) -> Any:
    """Call a function with a mutant."""
    with changed(name):
        return function()
