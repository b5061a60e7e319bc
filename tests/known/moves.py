"""Name the tests for failures 1 to 36, which are about moving replicas between disks."""

from __future__ import annotations

from known.row import Row

MOVES_OF = "mover/test_moves.py::"
STOPPED = "mover/test_stopped_moves.py::"
MANY = "mover/test_many_moves.py::"
SOAK = "mover/test_soak.py::test_logs_move_to_and_fro_under_everybody"
CUT = "crash/test_move_cut.py::test_a_power_cut_in_a_move_takes_nothing"
KILLED = "kill/test_move_kills.py::test_a_kill_anywhere_in_a_move_leaves_one_whole_log"
FAILING = "io_errors/test_failing_moves.py::test_no_failing_call_of_a_move_loses_a_record"
TABLE = "startup/test_startup_table.py::"
NO_LEADERS = "no leader changes: a move has no epoch of a leader to be fenced by"
NO_PAUSE = "nothing is paused for a move: retention and truncation go on, and the copy follows"
NO_CLUSTER = "one store decides alone: there is no controller, and no assignment to acknowledge"

MOVES: dict[int, Row] = {
    1: Row(
        "a move never ends: it compared positions, not offsets",
        (
            MOVES_OF + "test_a_truncation_is_followed",
            "mover/test_at_odds.py::test_a_compacted_log_of_a_broker_is_moved",
        ),
    ),
    2: Row("a leader change kills a move for good", reason=NO_LEADERS),
    3: Row("a copier is begun for a copy that was just swapped in", (SOAK,)),
    4: Row(
        "a request reads a move that has ended meanwhile",
        (MANY + "test_a_request_is_complete_when_every_result_is_known",),
    ),
    5: Row(
        "a chunk of the old target meets the new one",
        (STOPPED + "test_another_target_while_it_runs",),
    ),
    6: Row(
        "the high watermark goes to the wrong log",
        (MOVES_OF + "test_everything_of_a_log_comes_along",),
    ),
    7: Row(
        "appends and swap checks share a lock",
        reason=(
            "the lock is asked for once the copy is all but complete; make bench-move times it"
        ),
    ),
    8: Row(
        "the old dir's checkpoint wins after a move",
        (MOVES_OF + "test_a_moved_replica_opens_without_a_scan", CUT),
    ),
    9: Row(
        "a log whose start is inside a batch cannot be moved",
        (MOVES_OF + "test_deleted_records_stay_deleted",),
    ),
    10: Row(
        "deleting a moving partition errs one way, then another",
        (STOPPED + "test_a_deletion_takes_the_move_along",),
    ),
    11: Row("figures say is-future after the swap", (MOVES_OF + "test_a_replica_moves",)),
    12: Row(
        "retention never runs again after a cancel", (STOPPED + "test_a_cancel_leaves_nothing",)
    ),
    13: Row("cleaning stays off after a leader change", reason=NO_PAUSE),
    14: Row("another target leaks a pause", (STOPPED + "test_another_target_while_it_runs",)),
    15: Row("the target fails and the source grows without limit", (FAILING,)),
    16: Row(
        "orphans are left when retention meets the swap",
        (SOAK, MOVES_OF + "test_deleted_records_stay_deleted"),
    ),
    17: Row("a crash in the swap takes a second dir offline", (CUT, KILLED)),
    18: Row("what is recorded is not where the data is", (MOVES_OF + "test_a_replica_moves", CUT)),
    19: Row("the swap waits for an acknowledgement for ever", reason=NO_CLUSTER),
    20: Row(
        "the queue never drains when a replica is removed",
        (STOPPED + "test_a_deletion_takes_the_move_along",),
    ),
    21: Row("a swap takes a healthy disk offline", (SOAK,)),
    22: Row("a rename is taken for a failed disk", (SOAK,)),
    23: Row(
        "a field of the log is lost by the swap",
        (MOVES_OF + "test_everything_of_a_log_comes_along",),
    ),
    24: Row("a refusal has no reason", (MANY + "test_two_moves_that_fit_singly",)),
    25: Row(
        "a refused request changed something",
        (MANY + "test_a_request_is_complete_when_every_result_is_known",),
    ),
    26: Row("the copy is not synced before the source goes", (CUT,)),
    27: Row("a crash between the renames: two live copies", (CUT, KILLED)),
    28: Row(
        "the only copy left is a part, and is erased",
        (TABLE + "test_what_may_lack_records_opens_incomplete_and_says_what_is_missing",),
    ),
    29: Row("a move fills its target", (MANY + "test_two_moves_that_fit_singly",)),
    30: Row(
        "a path must be the same letter by letter",
        (MOVES_OF + "test_a_move_to_where_it_is_does_nothing",),
    ),
    31: Row(
        "the wish for a partition to come is lost",
        (
            "unit/test_health.py::test_a_wish_is_kept_until_it_comes_true",
            MANY + "test_a_request_is_complete_when_every_result_is_known",
        ),
    ),
    32: Row(
        "ending one move lifts the throttle of all",
        ("mover/test_throttle.py::test_the_narrowest_ceiling_counts",),
    ),
    33: Row(
        "a poller that loses replies never converges",
        reason=("the state of a move is asked of the process that runs it"),
    ),
    34: Row("moves take all of the disk", ("mover/test_throttle.py::test_threads_share_the_rate",)),
    35: Row("moves under load brick a broker", (SOAK,)),
    36: Row(
        "a plan counts free space in all, not per disk",
        ("mover/test_plan.py::test_regression_room_is_looked_for_disk_by_disk",),
    ),
}
