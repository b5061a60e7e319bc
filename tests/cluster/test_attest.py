"""Each row of the table that says since when a log dir is whole, and the order of effects."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.host_dirs import DirEntry
from cluster.pure.attest import (
    ClearFailure,
    DirEntered,
    DirFailed,
    DirFound,
    DirJoined,
    DirMissing,
    DirRemoved,
    DirReturned,
    EndRoles,
    EntryDue,
    FailureRecord,
    Host,
    RecordFailure,
    SessionBegan,
    WriteEntry,
    WriteRegistration,
    noted_failures,
    since_at_start,
)

ENTRY = DirEntry("boot", "mount", whole_since=5, flushed_since=3)
STOPPED = ENTRY._replace(is_stopped_cleanly=True)
NONE, RECORDED, MISSING = FailureRecord.NONE, FailureRecord.RECORDED, FailureRecord.MISSING
FOUND = DirFound("a", ENTRY, NONE, "boot", "mount")


@pytest.mark.parametrize(
    ("found", "since"),
    [
        (FOUND, (5, 3)),
        (FOUND._replace(entry=None), (9, 9)),
        (FOUND._replace(entry=STOPPED, is_synced=False), (9, 9)),
        (FOUND._replace(is_synced=False), (9, 9)),
        (FOUND._replace(record=RECORDED), (9, 9)),
        (FOUND._replace(record=RECORDED, entry=STOPPED), (9, 9)),
        (FOUND._replace(record=RECORDED, boot_id="next"), (9, 9)),
        (FOUND._replace(is_noted=True, record=MISSING, boot_id="next", entry=STOPPED), (9, 9)),
        (FOUND._replace(record=MISSING, entry=STOPPED, boot_id="next", mount_id="next"), (5, 3)),
        (FOUND._replace(record=MISSING), (9, 9)),
        (FOUND._replace(record=MISSING, mount_id="next"), (9, 9)),
        (FOUND._replace(record=MISSING, boot_id="next"), (9, 3)),
        (FOUND._replace(boot_id="next", mount_id="next"), (9, 3)),
        (FOUND._replace(boot_id="next", lacks_notes=True), (9, 9)),
        (FOUND._replace(lacks_notes=True), (5, 3)),
        (FOUND._replace(entry=STOPPED, boot_id="next", lacks_notes=True), (5, 3)),
        (FOUND._replace(mount_id="next"), (9, 3)),
    ],
)
def test_a_start_attests_a_log_dir(found: DirFound, since: tuple[int, int]) -> None:
    """Only a killed process and a clean stop keep what was not flushed (P4)."""
    assert since_at_start(found, 9) == since


def started(found: DirFound = FOUND) -> Host:
    """Give a host of two dirs that was registered at 9 and found dir `a`; dir `b` is missing."""
    host = Host(1, ("a", "b"))
    host.handle(SessionBegan(9), 0)
    host.handle(found, 0)
    return host


def test_a_dir_that_is_missing_is_noted() -> None:
    """It may come back short at a later start, when nothing else knows of its failure."""
    noted = ENTRY._replace(failed=frozenset({"b"}))
    assert started().handle(DirMissing("b"), 0) == [WriteEntry("a", noted)]
    host = Host(1, ("a", "b"))
    host.handle(SessionBegan(9), 0)
    assert host.handle(DirMissing("b"), 0) == []
    assert host.handle(FOUND, 0)[0] == WriteEntry("a", noted)


def test_a_start_clears_the_record_last() -> None:
    """A crash between the effects leaves the failure recorded, and the dir not whole."""
    host = Host(1, ("a", "b"))
    assert host.handle(SessionBegan(9), 0) == []
    effects = host.handle(FOUND._replace(record=RECORDED), 0)
    assert effects == [WriteEntry("a", ENTRY._replace(whole_since=9, flushed_since=9)),
                       ClearFailure("a")]  # fmt: skip
    assert host.handle(FOUND._replace(entry=STOPPED), 0)[0] == WriteEntry("a", ENTRY)


def test_a_failure_is_recorded_first() -> None:
    """The process may be killed after any effect."""
    host = started()
    assert host.handle(DirFailed("a"), 0) == [RecordFailure("a"), EndRoles("a")]
    assert not host.dirs["a"].is_good


def test_a_failure_is_noted_in_the_other_dirs() -> None:
    """After the record on tmpfs, and before roles end; a reboot takes only the record (P4)."""
    host = Host(1, ("a", "b", "c"))
    host.handle(SessionBegan(9), 0)
    for dir_id in ("a", "b"):
        host.handle(FOUND._replace(dir_id=dir_id), 0)
    noted = ENTRY._replace(failed=frozenset({"a"}))
    effects = [RecordFailure("a"), WriteEntry("b", noted), EndRoles("a")]
    assert host.handle(DirFailed("a"), 0) == effects
    host.handle(DirReturned("a"), 0)
    returned = host.handle(DirEntered("a", 12), 0)
    assert returned[-2:] == [ClearFailure("a"), WriteEntry("b", ENTRY)]


def test_a_start_keeps_the_notes_about_dirs_that_are_not_attested() -> None:
    """In any order of the dirs, a note goes after the entry of the dir that failed (P4)."""
    noted = ENTRY._replace(failed=frozenset({"a", "gone"}))
    assert noted_failures([ENTRY, None, noted]) == {"a", "gone"}
    host = Host(1, ("a", "b"))
    host.handle(SessionBegan(9), 0)
    found = FOUND._replace(dir_id="b", entry=noted)
    assert host.handle(found, 0)[0] == WriteEntry("b", noted)
    effects = host.handle(FOUND._replace(is_noted=True), 0)
    left = ENTRY._replace(failed=frozenset({"gone"}))
    assert effects[0] == WriteEntry("a", ENTRY._replace(whole_since=9, flushed_since=9))
    assert effects[1:] == [ClearFailure("a"), WriteEntry("b", left)]
    other = Host(1, ("a", "b"))
    other.handle(SessionBegan(9), 0)
    other.handle(FOUND._replace(is_noted=True), 0)
    assert other.handle(found, 0)[0] == WriteEntry("b", left)


def test_a_dir_that_returns_needs_a_new_registration() -> None:
    """Only its own epoch rises, and what is on it is whole since then (P3, P4)."""
    host = started()
    before = host.dirs["a"].epoch
    assert host.handle(DirReturned("b"), 0) == [WriteRegistration("b")]
    assert not host.dirs["b"].is_good
    effects = host.handle(DirEntered("b", 12), 0)
    assert effects[0] == EndRoles("b") and effects[-1] == ClearFailure("b")
    assert (host.broker_epoch, host.registration_epoch) == (9, 12)
    assert (host.dirs["b"].epoch, host.dirs["b"].whole_since, host.dirs["a"].epoch) == (
        12,
        12,
        before,
    )
    assert host.are_all_good


def test_regression_a_dir_is_not_attested_before_the_registration() -> None:
    """It would be whole since epoch 0, whatever it lost (P3, P4)."""
    with pytest.raises(ValueError, match="log dir a was found before the broker was registered"):
        Host(1, ("a", "b")).handle(FOUND, 0)


def test_regression_a_session_may_end_while_a_dir_returns() -> None:
    """The registration is written again in the new session; the earlier write is too old (P3)."""
    host = started()
    host.handle(DirReturned("b"), 0)
    assert host.handle(SessionBegan(20), 0) == [WriteRegistration("b")]
    assert host.handle(DirEntered("b", 12), 0) == []
    assert not host.dirs["b"].is_good
    assert host.handle(DirEntered("b", 21), 0)[0] == EndRoles("b")
    assert host.dirs["b"].is_good and host.registration_epoch == 21
    assert host.handle(SessionBegan(30), 0) == []


def test_a_dir_that_fails_while_it_returns_does_not_work() -> None:
    """The registration was written, so only its number is taken over."""
    host = started()
    host.handle(DirReturned("b"), 0)
    host.handle(DirFailed("b"), 0)
    assert host.handle(DirEntered("b", 12), 0) == []
    assert (host.dirs["b"].is_good, host.registration_epoch) == (False, 12)


def test_an_entry_that_is_due_is_written_as_at_a_start() -> None:
    """A dir that does not work gets none."""
    host = started()
    assert host.handle(EntryDue("a"), 0) == [WriteEntry("a", ENTRY), ClearFailure("a")]
    assert host.handle(EntryDue("b"), 0) == []


def test_notes_that_were_not_removed_are_kept() -> None:
    """So that the next entry of the other dir has them, too."""
    host = started()
    host.handle(DirFailed("b"), 0)
    assert host.noting("b") == {"a"} and host.noting("a") == frozenset()
    host.forget("b")
    host.keep_notes("b", ["a"])
    assert host.dirs["a"].failed == {"b"}


def test_a_session_enters_every_dir() -> None:
    """All dir epochs rise with a new session."""
    host = started()
    host.handle(SessionBegan(20), 0)
    assert (host.broker_epoch, host.registration_epoch) == (20, 20)
    assert {log_dir.epoch for log_dir in host.dirs.values()} == {20}
    with pytest.raises(AssertionError, match="only rise"):
        host.handle(SessionBegan(20), 0)


def test_a_replica_is_whole_since_the_larger_number() -> None:
    """A replica that was created later than its dir was attested is whole since its creation."""
    host = started()
    assert host.whole_since("a", 0, flushes=False) == 5
    assert host.whole_since("a", 0, flushes=True) == 3
    assert host.whole_since("a", 7, flushes=True) == 7
    assert not host.are_all_good


def test_what_a_dir_lost_before_a_replica_came_is_no_loss_of_it() -> None:
    """A dir loses only what is on it (P4)."""
    host = started()
    assert host.whole_since("a", 2, flushes=False, placed_since=5) == 2
    assert host.whole_since("a", 2, flushes=False, placed_since=4) == 5
    assert host.whole_since("a", 7, flushes=False, placed_since=4) == 7


def test_regression_an_unknown_event_is_an_error() -> None:
    """A caller that sends it to the wrong room learns that at once."""
    word: Any = "a word"
    with pytest.raises(TypeError, match="a host does not know the event"):
        started().handle(word, 0)


def test_a_stop_leaves_a_mark() -> None:
    """The entry of a clean stop keeps the numbers over a reboot."""
    entry = started().dirs["a"].entry(is_stopped_cleanly=True)
    assert entry == STOPPED


def whole() -> Host:
    """Give a host of the dirs `a` and `b`, which work."""
    host = started()
    host.handle(FOUND._replace(dir_id="b"), 0)
    return host


JOINED = DirJoined("c", "id-c", "boot", "mount")


def test_a_dir_that_joins_counts_as_failed_until_it_is_entered() -> None:
    """A start in between trusts neither its old entry nor tmpfs (P4); it is whole since its write.

    Until then, a replica that is not found may be on it (P17).
    """
    host = whole()
    noted = ENTRY._replace(failed=frozenset({"c"}))
    assert host.handle(JOINED, 0) == [
        RecordFailure("c"), WriteEntry("a", noted), WriteEntry("b", noted),
    ]  # fmt: skip
    assert not host.are_all_good and not host.dirs["c"].is_good
    assert host.handle(DirReturned("c"), 0) == [WriteRegistration("c")]
    entry = DirEntry("boot", "mount", whole_since=12, flushed_since=12)
    assert host.handle(DirEntered("c", 12), 0) == [
        EndRoles("c"), WriteEntry("c", entry), ClearFailure("c"),
        WriteEntry("a", ENTRY), WriteEntry("b", ENTRY),
    ]  # fmt: skip
    assert host.are_all_good and (host.broker_epoch, host.registration_epoch) == (9, 12)
    assert [one.epoch for one in host.dirs.values()] == [9, 9, 12]


def test_a_dir_fails_right_after_it_joined() -> None:
    """The registration of its joining gives it nothing; it returns like any other dir."""
    host = whole()
    host.handle(JOINED, 0)
    host.handle(DirReturned("c"), 0)
    assert host.handle(DirFailed("c"), 0) == [RecordFailure("c"), EndRoles("c")]
    assert host.handle(DirEntered("c", 12), 0) == []
    assert not host.are_all_good and host.dirs["a"].failed == {"c"}
    host.handle(DirReturned("c"), 0)
    host.handle(DirEntered("c", 13), 0)
    assert host.are_all_good and host.dirs["c"].whole_since == 13 and not host.dirs["a"].failed


def test_a_dir_that_joins_knows_which_others_have_failed() -> None:
    """Its first entry has their notes, because the other dirs may be lost before it (P4)."""
    host = started()
    host.handle(DirFailed("b"), 0)
    host.handle(JOINED, 0)
    host.handle(DirReturned("c"), 0)
    effects = host.handle(DirEntered("c", 12), 0)
    assert effects[1] == WriteEntry("c", DirEntry("boot", "mount", 12, 12, failed=frozenset("b")))


def test_a_removed_dir_counts_as_failed_until_the_registration_is_without_it() -> None:
    """A replica that is created again is whole only since a later registration (P3, P17)."""
    host = whole()
    assert host.dir_for_new == "a"
    assert host.handle(DirRemoved("a", "id-a"), 0) == [WriteRegistration("a")]
    assert not host.are_all_good and host.dirs["a"].removed_as == "id-a"
    assert host.handle(SessionBegan(20), 0) == [WriteRegistration("a")]
    assert host.handle(DirEntered("a", 12), 0) == [] and "a" in host.dirs
    assert host.handle(DirEntered("a", 21), 0) == [EndRoles("a")]
    assert list(host.dirs) == ["b"] and host.are_all_good and host.dir_for_new == "b"
    assert (host.broker_epoch, host.registration_epoch) == (20, 21)
    assert not host.dirs["a"].is_good and "a" not in host.dirs


def test_a_lost_dir_stays_noted_under_its_id() -> None:
    """If the disk joins again, possibly without its last records, its failure is known (P4)."""
    host = whole()
    host.handle(DirFailed("b"), 0)
    host.handle(DirRemoved("b", "id-b"), 0)
    host.handle(DirEntered("b", 12), 0)
    assert host.dirs["a"].failed == {"id-b"}
    host.handle(DirJoined("c", "id-b", "boot", "mount"), 0)
    assert host.dirs["a"].failed == {"c"}
    host.handle(DirReturned("c"), 0)
    host.handle(DirEntered("c", 13), 0)
    assert host.dirs["a"].failed == frozenset()
