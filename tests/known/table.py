"""Name, for every failure that others met and wrote about, the tests that keep it out of here.

The numbers are those of the project's list of known failures; each row says in a few words what
happened to whom. A row without tests says why: what it is about does not exist here.
"""

from __future__ import annotations

from known.moves import MOVES
from known.row import Row

CALLS = "io_errors/test_every_call_fails.py::test_no_failing_call_loses_or_invents_a_record"
POWER = "crash/test_power_cut.py::test_a_power_cut_takes_nothing_that_was_flushed"
START = "unit/test_store_failures.py::test_each_call_of_a_start_may_fail_on_one_dir"
HALF = "startup/test_half_swapped.py::"
STORE = "unit/test_store_failures.py::"
CLOSING = "unit/test_store_closing.py::"
STAGED = "media/test_staged_segments.py::"
TAILS = "media/test_staged_tails.py::"
MEMBERS = "startup/test_membership.py::"
PLAYED = "known/test_rows.py::"
SEALING = "unit/test_seal.py::"
TABLE = "startup/test_startup_table.py::"
NO_ISR = "replicas on several brokers, leaders and in-sync sets are not part of this engine"
COMPACTION = "unit/test_compaction.py::"
COMPACTOR = "unit/test_compactor.py::"
CLEANER = "unit/test_cleaner.py::"
ALL = "integration/test_all_at_once.py::test_everything_goes_on_at_once_while_a_disk_fills"

DISKS: dict[int, Row] = {
    37: Row("one dir's path errs at start: the broker dies", (START,)),
    38: Row(
        "one offline replica kills the work on all others",
        (STORE + "test_a_dir_that_fails_while_it_serves_is_offline_alone",),
    ),
    39: Row(
        "a null pointer after a dir went offline",
        (CALLS, "unit/test_log_dir.py::test_an_error_of_the_disk_takes_the_dir_offline_once"),
    ),
    40: Row("a leader on a dead disk shrinks the in-sync set to itself", reason=NO_ISR),
    41: Row(
        "a creation fails though other dirs are good",
        (STORE + "test_creation_goes_to_the_next_dir_when_one_fails",),
    ),
    42: Row(
        "nothing can be created while one dir is bad",
        (STORE + "test_a_missing_disk_is_offline_and_its_mount_point_stays_empty",),
    ),
    43: Row(
        "partitions of a failed dir are created again, empty, in another",
        (
            "unit/test_catalog.py::test_without_a_disk_what_lives_there_is_missed_by_name",
            HALF + "test_with_a_disk_missing_nothing_is_touched",
        ),
    ),
    44: Row(
        "a topic made anew under an old name is not made",
        (
            "unit/test_store.py::test_a_deleted_partition_leaves_its_name_without_a_past",
            "startup/test_history_model.py::test_no_start_breaks_a_promise",
        ),
    ),
    45: Row("locking an offline dir kills the broker", (START,)),
    46: Row(
        "the failure handler dies of its first exception",
        (STORE + "test_an_exception_in_the_callback_is_survived",),
    ),
    47: Row("the controller cannot be told of a failure", reason="there is no controller"),
    48: Row(
        "dirs of before directory ids are all called offline",
        (
            "startup/test_roster.py::test_a_dir_with_replicas_that_lost_its_identity_is_taken_back",
            "startup/test_roster.py::test_a_store_that_lost_every_identity_gets_them_back",
        ),
    ),
    49: Row(
        "two processes on one directory",
        (
            "unit/test_store_processes.py::test_another_process_is_refused_with_the_owners_pid",
            "unit/test_store_processes.py::test_of_two_that_form_a_store_at_once_one_owns_it",
        ),
    ),
    50: Row("a full disk in recovery, and a clean marker all the same", (CALLS,)),
    51: Row(
        "a close among rolls and retention marks the dir offline",
        ("unit/test_creation.py::test_a_close_among_appends_and_rolls_is_an_orderly_one",),
    ),
    52: Row(
        "one failed close skips the others",
        (
            CLOSING + "test_a_failed_flush_at_close_raises_after_the_others_are_closed",
            CLOSING + "test_close_skips_a_disk_that_hangs",
            "unit/test_store.py::test_close_leaves_no_thread_and_no_descriptor",
        ),
    ),
    53: Row(
        "a clean marker after a start that died half way",
        ("unit/test_store.py::test_a_start_that_dies_half_way_leaves_no_clean_marker",),
    ),
    54: Row(
        "a crash during the start is taken for an orderly close",
        (
            "startup/test_crash_points.py::test_a_crash_at_any_call_loses_nothing_acknowledged",
            "unit/test_dir_lock.py::test_only_a_marker_of_the_last_start_counts",
        ),
    ),
    55: Row("a close hangs with a delete delay of 0", reason="a deletion has no delay"),
    56: Row(
        "lost+found stops the broker",
        (
            "startup/test_listing.py::test_a_foreign_name_is_a_warning",
            "startup/test_damage.py::test_foreign_names_in_every_place_are_reported_and_survive",
        ),
    ),
    57: Row("an unclear message about a bad volume", (START,)),
    58: Row(
        "one unreadable file fails the whole dir",
        (
            STORE + "test_one_unreadable_file_takes_its_replica_offline_alone",
            "unit/test_log_dir.py::test_one_bad_file_on_a_good_disk_is_the_replicas_trouble",
        ),
    ),
    59: Row(
        "a disk that hangs stalls the threads of all",
        (CLOSING + "test_a_disk_that_hangs_delays_nobody_else",),
    ),
    60: Row(
        "a slow sync under the log's lock",
        ("integration/test_slow_disk.py::test_a_slow_disk_stalls_no_other_thread",),
    ),
    61: Row(
        "the dir that holds the metadata fails, and the process with it",
        (
            "unit/test_catalog.py::test_all_dirs_carry_the_same_catalog",
            MEMBERS + "test_a_crash_at_any_call_leaves_the_old_roster_or_the_new_one",
        ),
    ),
    62: Row(
        "a crash in a move leaves two copies, and the server does not start",
        (HALF + "test_two_live_copies_resolve_themselves",),
    ),
    63: Row(
        "a disk was not mounted: an empty mount point is taken for an empty disk",
        (
            STORE + "test_a_missing_disk_is_offline_and_its_mount_point_stays_empty",
            "startup/test_roster.py::test_an_empty_mount_point_is_not_a_new_disk",
        ),
    ),
    64: Row(
        "a failed move cannot be tried again: its target exists",
        (PLAYED + "test_a_move_that_failed_at_its_half_is_tried_again",),
    ),
    65: Row(
        "a crash when no disk can be chosen",
        (
            "unit/test_placement.py::test_no_disk_is_an_error",
            STORE + "test_every_dir_bad_is_an_error_at_open",
        ),
    ),
    66: Row(
        "a disk with data is dropped from the configuration",
        (STORE + "test_a_dir_left_out_of_the_configuration_is_missed",),
    ),
    67: Row(
        "a move to where it is never ends",
        ("mover/test_moves.py::test_a_move_to_where_it_is_does_nothing",),
    ),
    68: Row("a move of an empty part crashes", (PLAYED + "test_a_log_of_next_to_nothing_moves",)),
    69: Row("reads fail during a move", ("mover/test_moves.py::test_readers_go_on",)),
    70: Row(
        "a lost disk blocks the repair elsewhere",
        (MEMBERS + "test_a_new_disk_takes_the_place_of_a_dead_one",),
    ),
    71: Row(
        "one full disk cuts the whole node off",
        (
            "unit/test_health.py::test_a_full_dir_serves_everything_but_appends",
            "unit/test_health.py::test_new_replicas_go_where_there_is_room",
        ),
    ),
    72: Row(
        "new shards land on few disks",
        ("unit/test_placement.py::test_ten_thousand_equal_replicas_are_spread_evenly",),
    ),
    73: Row(
        "files striped over disks: one lost disk loses all",
        (PLAYED + "test_a_disk_alone_has_all_of_its_logs",),
    ),
    74: Row(
        "one of two disks full: the node goes down",
        ("unit/test_health.py::test_a_full_dir_serves_everything_but_appends",),
    ),
    75: Row(
        "read-only for ever after a restart",
        ("unit/test_health.py::test_a_start_inside_the_band_writes",),
    ),
    76: Row(
        "one of 24 disks errs and the node stops",
        (STORE + "test_a_dir_that_fails_while_it_serves_is_offline_alone", CALLS),
    ),
    77: Row(
        "figures are 0 on a read-only node",
        (PLAYED + "test_figures_are_live_in_every_state",),
    ),
    78: Row(
        "what was deleted comes back when a disk dies",
        (
            TABLE + "test_a_deletion_takes_every_copy_of_its_topic_and_goes_last",
            "startup/test_history_model.py::test_no_start_breaks_a_promise",
        ),
    ),
    79: Row(
        "what is left is served as if it were whole",
        (
            HALF + "test_a_half_copy_is_read_but_not_written",
            "startup/test_mutants.py::test_a_changed_rule_is_caught",
        ),
    ),
}

LOGS: dict[int, Row] = {
    80: Row(
        "a damaged index gives wrong reads",
        ("media/test_tamper.py::test_one_spoiled_file_changes_no_read",),
    ),
    81: Row(
        "two threads build one index",
        ("integration/test_threads.py::test_64_threads_touch_a_cold_log_at_once",),
    ),
    82: Row(
        "a log truncated to nothing cannot be appended to",
        ("unit/test_truncation.py::test_a_log_ends_where_it_is_truncated",),
    ),
    83: Row(
        "a damaged small file stops the start",
        (
            "startup/test_damage.py::test_every_small_file_of_the_log_dirs_harmed_at_once",
            "startup/test_damage.py::test_each_small_file_of_the_log_dirs_harmed_alone",
        ),
    ),
    84: Row(
        "an empty active segment is taken for a damaged one",
        ("crash/test_regressions.py::test_regression_a_log_without_any_segment_is_opened",),
    ),
    85: Row("a small file is torn by a power cut", (POWER,)),
    86: Row(
        "a whole segment vanishes in a power cut",
        (POWER, "crash/test_power_cut.py::test_a_missing_sync_is_found"),
    ),
    87: Row(
        "an empty checkpoint is read as zero",
        ("unit/test_checkpoint.py::test_an_empty_document_says_so", POWER),
    ),
    88: Row(
        "a recovery point ahead of the log's end",
        (
            TAILS + "test_a_flushed_tail_that_is_gone_is_named",
            SEALING + "test_regression_nothing_found_after_a_crash_is_vouched_for_before_a_flush",
        ),
    ),
    89: Row(
        "leader epochs are lost when they are rebuilt",
        ("unit/test_epochs.py::test_both_ends_of_the_log_move",),
    ),
    90: Row("an offset is given twice after a failed write", (CALLS,)),
    91: Row(
        "a late deletion removes a new file of an old name",
        ("unit/test_truncation.py::test_what_is_appended_instead_is_what_is_read",),
    ),
    92: Row(
        "recovery removes the wrong segments",
        (STAGED + "test_a_damaged_length_in_the_middle_costs_one_batch",),
    ),
    93: Row(
        "hours of recovery after a crash",
        ("unit/test_store.py::test_a_crash_is_told_from_an_orderly_close",),
    ),
    94: Row(
        "a bad snapshot stops the start",
        ("unit/test_snapshots.py::test_a_damaged_snapshot_only_makes_the_replay_longer",),
    ),
    95: Row(
        "a crash in a replacement of files leaves a log that does not open",
        (
            "startup/test_crash_points.py::test_a_crash_at_any_call_loses_nothing_acknowledged",
            "crash/test_compaction_cut.py::test_each_step_of_a_replacement_is_needed",
            POWER,
        ),
    ),
    96: Row(
        "the cleaner loops for ever",
        (COMPACTION + "test_offsets_far_apart_are_compacted_once",),
    ),
    97: Row(
        "the cleaner passes the high watermark",
        (COMPACTION + "test_nothing_after_the_high_watermark_is_compacted",),
    ),
    98: Row(
        "aborted data shows after cleaning",
        (CLEANER + "test_committed_records_are_the_same_after_each_of_many_passes",),
    ),
    99: Row(
        "a tombstone goes too early or never",
        (
            COMPACTION + "test_tombstones_stay_for_their_time_and_a_plan_is_due_for_them",
            CLEANER + "test_a_tombstone_stays_for_the_whole_time_after_its_first_cleaning",
        ),
    ),
    100: Row(
        "one bad log ends the housekeeping of all",
        (
            "unit/test_keeper.py::test_a_keeper_outlives_every_exception",
            COMPACTOR + "test_a_log_that_cannot_be_compacted_is_set_aside_and_tried_again",
        ),
    ),
    101: Row(
        "the log's start beyond its high watermark",
        (
            "startup/test_damage.py::test_a_log_start_offset_behind_the_end_is_not_believed",
            ALL,
        ),
    ),
    102: Row(
        "a reader at the start is out of range during retention",
        ("unit/test_retention.py::test_a_reader_whose_records_went_is_told", ALL),
    ),
    103: Row(
        "a checkpoint while the logs are loaded",
        ("unit/test_keeper.py::test_checkpoints_say_what_is_durable",),
    ),
    104: Row("an I/O error in recovery cuts the log", (CALLS,)),
    105: Row("one unreadable sector stops the broker", (CALLS, START)),
    106: Row(
        "one flipped bit discards all later segments",
        (TAILS + "test_a_bad_bit_in_an_unflushed_older_segment_is_not_cut",),
    ),
    107: Row(
        "a log start offset behind the end deletes everything",
        ("startup/test_damage.py::test_a_log_start_offset_behind_the_end_is_not_believed",),
    ),
    108: Row(
        "a segment missing in the middle is not noticed",
        (STAGED + "test_a_segment_missing_in_the_middle_is_named",),
    ),
    109: Row(
        "rot below the recovery point is served",
        (
            "media/test_bit_flips.py::test_no_flipped_bit_is_served_by_the_owner",
            "unit/test_scrubber.py::test_rot_is_reported_once_and_counted",
        ),
    ),
    110: Row(
        "whatever goes wrong in recovery, the log is cut",
        (TAILS + "test_a_bad_last_batch_below_the_recovery_point_is_not_cut", CALLS),
    ),
    111: Row(
        "the end of a file in recovery stops the start",
        (TAILS + "test_a_torn_last_batch_is_cut_at_every_length",),
    ),
    112: Row(
        "sound indexes are rebuilt for no fault",
        ("format/test_golden.py::test_v1_is_read",),
    ),
}

ROWS = {**MOVES, **DISKS, **LOGS}
