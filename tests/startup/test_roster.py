"""Every configured directory is told for what it is: ours, new, foreign, swapped, missing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from logstore.disk.documents.meta_properties import Hint, MetaProperties
from logstore.errors import LogDirIdentityError
from logstore.store.start.roster import DirFacts, Found, Roll, decide

NO_HINT = Hint(None, None)
STORE, OTHER = "5" * 32, "0" * 32
A, B, C = "a" * 32, "b" * 32, "c" * 32


def new_ids() -> Callable[[], str]:
    """Draw ids that can be told apart in a failure."""
    numbers = count(1)
    return lambda: f"{next(numbers):032x}"


def run(*facts: DirFacts, format_new: bool = False, broker_id: int | None = None) -> Roll:
    """Decide."""
    return decide(facts, broker_id=broker_id, format_new=format_new, new_id=new_ids())


def ours(
    path: str,
    id_: str,
    roster: tuple[str, ...] = (A, B),
    *,
    epoch: int = 1,
    store: str = STORE,
    is_forming: bool = False,
) -> DirFacts:
    """Make a formatted dir."""
    meta = MetaProperties(store, 0, id_, epoch, roster, is_forming)
    return DirFacts(path, Found.FORMATTED, meta)


def bare(path: str, **facts: object) -> DirFacts:
    """Make an unformatted dir."""
    return DirFacts(path, Found.BARE, **facts)  # type: ignore[arg-type]


def damaged(path: str, hint: Hint = NO_HINT) -> DirFacts:
    """Make a dir whose identity does not check out."""
    reason = "the checksum does not match the content"
    return DirFacts(path, Found.DAMAGED, hint=hint, reason=reason)


def bad(path: str) -> DirFacts:
    """Make a dir that cannot be read."""
    return DirFacts(path, Found.BAD, reason="EIO")


def ids(roll: Roll) -> dict[str, str]:
    """Name the identity of each serving dir."""
    return {member.path: member.meta.directory_id for member in roll.members}


def refused(roll: Roll) -> dict[str, str]:
    """Name the reason of each dir that does not serve."""
    return {refusal.path: refusal.explained() for refusal in roll.refused}


def test_bare_dirs_alone_are_a_new_store() -> None:
    """One store id, one roster, everyone in it, forming."""
    roll = run(bare("/1"), DirFacts("/2", Found.ABSENT), broker_id=4)
    assert roll.is_new_store
    one, two = roll.members
    assert one.meta.roster == two.meta.roster == (one.meta.directory_id, two.meta.directory_id)
    assert one.meta.cluster_id == two.meta.cluster_id
    assert one.meta.is_forming
    assert one.meta.broker_id == 4
    assert one.is_new
    assert one.is_changed


def test_a_store_that_is_whole_serves_unchanged() -> None:
    """Nothing is written where nothing is wrong; the order of the paths does not matter."""
    for facts in ([ours("/1", A), ours("/2", B)], [ours("/1", B), ours("/2", A)]):
        roll = run(*facts)
        assert not any(member.is_changed for member in roll.members)
        assert roll.refused == ()
        assert roll.missing_ids == ()
        assert not roll.is_new_store


def test_an_empty_mount_point_is_not_a_new_disk() -> None:
    """A bare dir beside formatted ones is offline, and its id is missing; nothing is written."""
    for found in (Found.BARE, Found.ABSENT):
        roll = run(ours("/1", A), DirFacts("/2", found))
        assert ids(roll) == {"/1": A}
        assert "format_new" in refused(roll)["/2"]
        assert roll.missing_ids == (B,)
        assert not roll.members[0].is_changed


def test_format_new_takes_a_bare_dir_into_the_store() -> None:
    """It gets a new id, never that of the missing one, and the roster grows by an epoch."""
    roll = run(ours("/1", A), bare("/2"), format_new=True)
    one, two = roll.members
    assert two.meta.directory_id not in (A, B)
    assert two.is_new
    assert one.meta.roster == two.meta.roster == (A, B, two.meta.directory_id)
    assert one.meta.roster_epoch == 2
    assert one.is_changed
    assert roll.missing_ids == (B,)


def test_a_foreign_disk_is_offline_and_keeps_its_identity() -> None:
    """The majority's store serves; the other disk is named as foreign, even if told to format."""
    for format_new in (False, True):
        foreign = ours("/3", C, (C,), store=OTHER)
        roll = run(ours("/1", A), ours("/2", B), foreign, format_new=format_new)
        assert ids(roll) == {"/1": A, "/2": B}
        assert "another store" in refused(roll)["/3"]


def test_two_stores_in_a_tie_are_refused_naming_both() -> None:
    """Nobody can tell which one is meant."""
    with pytest.raises(LogDirIdentityError) as raised:
        run(ours("/1", A, (A,)), ours("/2", C, (C,), store=OTHER))
    assert "/1" in str(raised.value)
    assert "/2" in str(raised.value)


def test_one_directory_id_twice_is_refused_naming_both() -> None:
    """A copied disk or a double mount."""
    with pytest.raises(LogDirIdentityError) as raised:
        run(ours("/1", A), ours("/2", A))
    assert "/1" in str(raised.value)
    assert "/2" in str(raised.value)


def test_a_dir_that_left_the_roster_does_not_serve() -> None:
    """The highest epoch wins; format_new takes the dir back under its own id."""
    facts = [ours("/1", A, (A,), epoch=2), ours("/2", B, (A, B), epoch=1)]
    roll = run(*facts)
    assert ids(roll) == {"/1": A}
    assert "roster" in refused(roll)["/2"]
    roll = run(*facts, format_new=True)
    assert ids(roll) == {"/1": A, "/2": B}
    assert roll.members[1].meta.roster == (A, B)
    assert roll.members[1].meta.roster_epoch == 3


def test_a_dir_that_missed_a_change_of_the_roster_is_told() -> None:
    """It gets the roster with the highest epoch."""
    roll = run(ours("/1", A, (A, B, C), epoch=2), ours("/2", B, (A, B), epoch=1), ours("/3", C))
    assert [member.is_changed for member in roll.members] == [False, True, True]
    assert roll.members[1].meta.roster == (A, B, C)


def test_two_rosters_of_one_epoch_are_joined() -> None:
    """Changes made while the other disk was away are both kept."""
    roll = run(ours("/1", A, (A, B), epoch=2), ours("/2", B, (A, B, C), epoch=2), ours("/3", C))
    assert ids(roll) == {"/1": A, "/2": B, "/3": C}
    assert {member.meta.roster_epoch for member in roll.members} == {3}
    assert {member.meta.roster for member in roll.members} == {(A, B, C)}


def test_a_crash_while_forming_is_completed() -> None:
    """The dirs not yet written get the ids that wait for them."""
    roll = run(ours("/1", A, is_forming=True), bare("/2"))
    assert ids(roll) == {"/1": A, "/2": B}
    assert roll.is_new_store
    assert roll.members[1].is_new


def test_forming_is_completed_for_the_dirs_that_are_given_now() -> None:
    """Nothing was stored yet, so the user may have changed the list."""
    roll = run(ours("/1", A, (A, B, C), is_forming=True))
    assert roll.members[0].meta.roster == (A,)
    assert roll.missing_ids == ()
    roll = run(ours("/1", A, (A,), is_forming=True), bare("/2"), bare("/3"))
    assert len(roll.members) == 3
    assert len(set(roll.members[0].meta.roster)) == 3


def test_a_store_that_is_half_done_with_forming_has_all_its_dirs() -> None:
    """One formed dir proves that all were written, so a bare one is a missing disk."""
    roll = run(ours("/1", A), ours("/2", B, (A, B, C), is_forming=True), bare("/3"))
    assert "/3" in refused(roll)
    assert not roll.members[1].meta.is_forming
    assert roll.members[1].is_changed


def test_a_dir_that_cannot_be_read_is_offline_alone() -> None:
    """The others serve."""
    roll = run(ours("/1", A), bad("/2"))
    assert ids(roll) == {"/1": A}
    assert refused(roll) == {"/2": "EIO"}
    assert not roll.refused[0].is_identity


def test_a_bad_dir_leaves_open_whether_the_store_is_new() -> None:
    """Nothing is formatted then, unless the user says so."""
    with pytest.raises(LogDirIdentityError, match="format_new"):
        run(bare("/1"), bad("/2"))
    roll = run(bare("/1"), bad("/2"), format_new=True)
    assert [member.path for member in roll.members] == ["/1"]


def test_no_good_dir_at_all_gives_no_member() -> None:
    """Whoever acts raises then."""
    assert run(bad("/1"), bad("/2")).members == ()


@pytest.mark.parametrize("hint", [Hint(None, None), Hint(STORE, B), Hint(None, B)])
def test_a_damaged_identity_is_restored_as_the_only_gap(hint: Hint) -> None:
    """One damaged dir and one missing id belong together."""
    roll = run(ours("/1", A), damaged("/2", hint))
    assert ids(roll) == {"/1": A, "/2": B}
    assert roll.members[1].is_changed
    assert not roll.members[1].is_new
    assert "/2" in roll.members[1].warning
    assert not roll.members[0].is_changed


def test_damaged_identities_are_told_apart_by_what_is_left_of_them() -> None:
    """Each hint that fits a gap is believed; the last one is the remaining gap."""
    facts = [ours("/1", A, (A, B, C)), damaged("/2", Hint(STORE, C)), damaged("/3")]
    assert ids(run(*facts)) == {"/1": A, "/2": C, "/3": B}


def test_damaged_identities_that_cannot_be_told_apart_do_not_serve() -> None:
    """Two damaged dirs, two gaps, nothing to go by: offline, until the user says format_new."""
    facts = [ours("/1", A, (A, B, C)), damaged("/2"), damaged("/3")]
    roll = run(*facts)
    assert set(refused(roll)) == {"/2", "/3"}
    roll = run(*facts, format_new=True)
    assert len(roll.members) == 3


def test_a_damaged_dir_of_another_store_is_not_taken_in() -> None:
    """What is left of it names another store."""
    roll = run(ours("/1", A), damaged("/2", Hint(OTHER, C)))
    assert set(refused(roll)) == {"/2"}


def test_a_dir_with_replicas_that_lost_its_identity_is_taken_back() -> None:
    """It was a log dir, and it is the only one missing; an empty one is not taken."""
    roll = run(ours("/1", A), bare("/2", has_replicas=True))
    assert ids(roll) == {"/1": A, "/2": B}
    roll = run(ours("/1", A), bare("/2", hint=Hint(STORE, B)))
    assert ids(roll) == {"/1": A, "/2": B}


def test_a_store_that_lost_every_identity_gets_them_back() -> None:
    """By the hints where there are any; a bare dir beside them is still no new disk."""
    roll = run(damaged("/1", Hint(STORE, A)), damaged("/2"), bare("/3"))
    assert ids(roll)["/1"] == A
    assert {member.meta.cluster_id for member in roll.members} == {STORE}
    assert not roll.is_new_store
    assert all(member.warning for member in roll.members)
    assert set(refused(roll)) == {"/3"}
    roll = run(bare("/1", has_replicas=True), bare("/2", has_replicas=True))
    assert len(set(ids(roll).values())) == 2


def test_another_broker_id_is_refused() -> None:
    """None says nothing; any number must match, also 0."""
    zero = (ours("/1", A), ours("/2", B))
    seven = [one._replace(meta=one.meta._replace(broker_id=7)) for one in zero if one.meta]
    for facts, kept, refused_id in ((zero, 0, 7), (seven, 7, 0)):
        for broker_id in (None, kept):
            roll = run(*facts, broker_id=broker_id)
            assert {member.meta.broker_id for member in roll.members} == {kept}
        with pytest.raises(LogDirIdentityError, match=f"broker id {kept} .* {refused_id} is"):
            run(*facts, broker_id=refused_id)


def unmounted(path: str) -> DirFacts:
    """Make a dir that holds nothing, and whose disk is not mounted."""
    return DirFacts(path, Found.ABSENT, unmounted=path)


def test_a_disk_of_fstab_that_is_not_mounted_is_not_formatted() -> None:
    """In a store that is known it is offline; where none is known, the store is not opened."""
    roll = run(ours("/a", A), unmounted("/b"))
    assert ids(roll) == {"/a": A}
    (refused,) = roll.refused
    assert "/b is listed in /etc/fstab and is not mounted" in refused.reason
    for others in ([], [bare("/c")], [unmounted("/c")]):
        with pytest.raises(LogDirIdentityError, match=r"/b.* listed in /etc/fstab and .* mounted"):
            run(unmounted("/b"), *others)
    assert not run(bare("/b"), bare("/c")).refused


def test_a_store_that_is_still_forming_leaves_an_unmounted_disk_alone() -> None:
    """The others form it without that one."""
    roll = run(ours("/a", A, is_forming=True), unmounted("/b"), bare("/c"))
    assert set(ids(roll)) == {"/a", "/c"}
    assert [refused.path for refused in roll.refused] == ["/b"]


@pytest.mark.parametrize("first", [unmounted("/a"), ours("/a", A, (A,))])
def test_what_is_said_to_be_new_is_formatted_all_the_same(first: DirFacts) -> None:
    """Its user knows that nothing is to be mounted there."""
    roll = run(first, unmounted("/b"), format_new=True)
    assert set(ids(roll)) == {"/a", "/b"}
    assert not roll.refused
