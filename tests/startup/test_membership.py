"""A running store takes log dirs in, replaces and forgets them, and a crash leaves old or new."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from logstore import LogDirIdentityError, LogDirOfflineError, LogStore
from logstore.disk import files
from logstore.disk.documents.meta_properties import MetaProperties, decode_meta
from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition
from logstore.store.dirs.membership import Admission, Membership
from support.inside import membership_of
from support.moves import directory_id_of


def meta_of(path: Path) -> MetaProperties:
    """Read an identity."""
    path = path / "meta.properties"
    return decode_meta(path.read_bytes(), str(path))


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Make a store of three log dirs, and close it."""
    disks = [tmp_path / f"disk{number}" for number in range(3)]
    LogStore.open(disks).close()
    return disks


def taken(membership: Membership, admission: Admission) -> LogDir:
    """Make a log dir of an admitted path a member."""
    log_dir = LogDir(admission.path)
    Path(admission.path).mkdir(exist_ok=True)
    membership.join(log_dir, admission)
    return log_dir


def test_a_new_dir_joins_when_the_user_says_so(disks: list[Path], tmp_path: Path) -> None:
    """It is in the roster of all, and serves from the next start on."""
    new = tmp_path / "new"
    with LogStore.open(disks) as store:
        with pytest.raises(LogDirIdentityError, match="format_new"):
            membership_of(store).admit(str(new))
        admission = membership_of(store).admit(str(new), format_new=True)
        assert admission.is_new and not new.exists()
        taken(membership_of(store), admission)
    metas = [meta_of(path) for path in [*disks, new]]
    assert {meta.roster for meta in metas} == {metas[0].roster}
    assert {meta.roster_epoch for meta in metas} == {2}
    with LogStore.open([*disks, new]) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


def test_regression_a_path_that_is_not_utf_8_is_refused_at_once(
    disks: list[Path], tmp_path: Path
) -> None:
    """It cannot be in a document or in an answer to a client. With two log dirs, a start failed.

    Nothing is written. If the directory gets another name, the store opens.
    """
    odd = tmp_path / os.fsdecode(b"disk-\xff")
    link = tmp_path / "link"
    link.symlink_to(odd)
    refused = pytest.raises(
        LogDirIdentityError, match=r"disk-\\udcff: its path is not UTF-8; rename"
    )
    for paths in ([odd], [*disks, odd], [link, disks[0]], [link]):
        with refused as raised:
            LogStore.open(paths, format_new=True)
        str(raised.value).encode()
    assert not odd.exists()
    with LogStore.open(disks) as store, refused:
        store.add_dir(odd)
    disks[2].rename(odd)
    with refused:
        LogStore.open([*disks[:2], odd])
    odd.rename(disks[2])
    with LogStore.open(disks) as store:
        assert [one.is_live for one in store.describe_dirs().log_dirs] == [True] * 3


def test_a_new_disk_takes_the_place_of_a_dead_one(disks: list[Path]) -> None:
    """The dead one's id is out of the roster: nothing of the store is bad any more."""
    dead = directory_id_of(disks[2])
    shutil.rmtree(disks[2])
    disks[2].mkdir()
    with LogStore.open(disks) as store:
        with pytest.raises(LogDirIdentityError, match="not formatted"):
            membership_of(store).admit(str(disks[2]))
        admission = membership_of(store).admit(str(disks[2]), format_new=True, replaces=dead)
        taken(membership_of(store), admission)
        assert dead not in membership_of(store).roster
    with LogStore.open(disks) as store:
        assert store.recovery_report.is_sound and not store.host.replicas.is_a_dir_bad()


def test_a_disk_that_joins_after_a_start_without_another_leaves_that_one_missing(
    disks: list[Path],
) -> None:
    """What is missed still is named, not a log dir that serves; and what to do about it."""
    dead, key = str(disks[2]), TopicPartition("orders", 0)
    with LogStore.open(disks) as store:
        store.create(*key, log_dir=dead)
    shutil.rmtree(dead)
    disks[2].mkdir()
    with LogStore.open(disks) as store:
        (lost_id,) = store.host.replicas.missing_ids
        assert f"logstore reopen {dead} --format-new" in str(store.recovery_report)
        with pytest.raises(LogDirOfflineError) as raised:
            store.log(*key)
        assert raised.value.path == dead  # the only one that may be it
    remedy = f"logstore remove-dir --lost {lost_id}"
    with LogStore.open(disks, format_new=True) as store:
        for ask, asked in ((store.log, key), (store.create, ("new", 0))):
            with pytest.raises(LogDirOfflineError, match=remedy) as raised:
                ask(*asked)
            assert raised.value.path == lost_id
        assert store.remove_dir(lost_id, lost=True) == (key,)
        store.create(*key)


def test_a_forgotten_dir_is_refused_until_it_is_taken_back(disks: list[Path]) -> None:
    """Its disk may come back one day: then the user decides."""
    with LogStore.open(disks[:2]) as store:
        (lost,) = store.host.replicas.missing_ids
        membership_of(store).forget(lost)
        membership_of(store).forget(lost)
        assert store.host.replicas.missing_ids == () and not store.host.replicas.is_a_dir_bad()
        with pytest.raises(LogDirIdentityError, match="removed or replaced"):
            membership_of(store).admit(str(disks[2]))
        back = membership_of(store).admit(str(disks[2]), format_new=True)
        assert (back.directory_id, back.is_new) == (lost, False)
    with LogStore.open(disks) as store:
        (offline,) = store.recovery_report.offline_dirs
        assert offline.path == str(disks[2]) and "not in the roster" in offline.reason


def test_a_member_that_comes_back_is_known(disks: list[Path]) -> None:
    """By its identity, or by what is left of it; it is told the roster when it missed a change."""
    with LogStore.open(disks[:2]) as store:
        admission = membership_of(store).admit(str(disks[2]))
        assert not admission.is_changed and not admission.is_new
        (disks[2] / "meta.properties").write_bytes(b"\0" * 80)
        damaged = membership_of(store).admit(str(disks[2]))
        assert damaged.directory_id == admission.directory_id and damaged.is_changed
        taken(membership_of(store), damaged)
    assert meta_of(disks[2]) == meta_of(disks[0])._replace(directory_id=admission.directory_id)


def test_what_is_not_ours_is_not_admitted(disks: list[Path], tmp_path: Path) -> None:
    """Another store's dir, a copy of one of ours, a second name of one, and what cannot be read."""
    LogStore.open(tmp_path / "foreign").close()
    shutil.copytree(disks[0], tmp_path / "copy")
    (tmp_path / "link").symlink_to(disks[0])
    (tmp_path / "file").touch()
    (tmp_path / "kafka").mkdir()
    kafka = b"cluster.id=Zm9vYmFyYmF6cXV4Zm9vYg\nversion=1\n"
    (tmp_path / "kafka" / "meta.properties").write_bytes(kafka)
    with LogStore.open(disks) as store:
        admit = membership_of(store).admit
        for name, reason in (("foreign", "another store"), ("copy", "same log dir as")):
            with pytest.raises(LogDirIdentityError, match=reason):
                admit(str(tmp_path / name), format_new=True)
        assert admit(str(tmp_path / "link")).path == str(disks[0])
        for name in ("kafka", "file"):
            with pytest.raises(LogDirOfflineError):
                admit(str(tmp_path / name), format_new=True)


def test_a_disk_comes_back_under_its_own_name_only(disks: list[Path], tmp_path: Path) -> None:
    """By another one all its replicas would be there twice, and be served from neither place."""
    with LogStore.open(disks) as store:
        store.create("orders", 0, log_dir=disks[0]).append(b"x")
        store.take_offline(disks[0])
        shutil.copytree(disks[0], tmp_path / "elsewhere")
        for lost in ("", "meta.properties"):  # known by its identity, then by what is left of it
            if lost:
                (tmp_path / "elsewhere" / lost).unlink()
            with pytest.raises(LogDirIdentityError, match=f"same log dir as {disks[0]}.*reopen"):
                store.add_dir(tmp_path / "elsewhere")
        assert len(store.log_dirs) == len(disks)
        store.reopen_dir(disks[0])
        assert store.log("orders", 0).append(b"y") == 1


def test_a_log_dir_inside_or_around_another_is_refused(disks: list[Path], tmp_path: Path) -> None:
    """Nobody deletes a log dir by deleting a replica; nothing is written where it was refused."""
    with LogStore.open(disks) as store:
        store.create("orders", 0, log_dir=disks[0])
        for path in (disks[0] / "sub", disks[0] / "orders-0", disks[0].parent):
            with pytest.raises(LogDirIdentityError, match=r"lies (inside|around) the log dir"):
                store.add_dir(path)
        assert not (disks[0] / "sub").exists()
        assert not (disks[0] / "orders-0" / "meta.properties").exists()
        assert store.add_dir(tmp_path / f"{disks[0].name}-and-more").is_sound
    for paths in ([*disks, disks[1] / "sub"], [disks[0].parent, *disks]):
        with pytest.raises(LogDirIdentityError, match=r"lies (inside|around) the log dir"):
            LogStore.open(paths, format_new=True)


class CrashError(BaseException):
    """The process is dead."""


def join_new(store: LogStore, disks: list[Path]) -> None:
    """Take a new disk in."""
    admission = membership_of(store).admit(str(disks[2].parent / "new"), format_new=True)
    taken(membership_of(store), admission)


def replace(store: LogStore, disks: list[Path]) -> None:
    """Put a new disk in the place of the one that was not given."""
    (dead,) = store.host.replicas.missing_ids
    new = str(disks[2].parent / "new")
    taken(membership_of(store), membership_of(store).admit(new, format_new=True, replaces=dead))


def forget(store: LogStore, disks: list[Path]) -> None:
    """Forget the one that was not given."""
    membership_of(store).forget(store.host.replicas.missing_ids[0])


@pytest.mark.parametrize("change", [join_new, replace, forget])
def test_a_crash_at_any_call_leaves_the_old_roster_or_the_new_one(
    tmp_path: Path, change: Callable[[LogStore, list[Path]], None]
) -> None:
    """Every store opens afterwards, with the same answer from all its log dirs."""
    outcomes = set()
    for number in range(1000):
        base = tmp_path / str(number)
        base.mkdir()
        disks = [base / f"disk{n}" for n in range(3)]
        LogStore.open(disks).close()
        with LogStore.open(disks[:2]) as store:
            before = membership_of(store).roster
            with pytest.MonkeyPatch.context() as patch:
                calls = crash_at(patch, number)
                try:
                    change(store, disks)
                    is_whole = True
                except CrashError:
                    is_whole = False
            after = membership_of(store).roster
        there = disks[:2] + [path for path in [base / "new"] if (path / "meta.properties").exists()]
        with LogStore.open(there) as store:
            assert not store.recovery_report.offline_dirs
            assert membership_of(store).roster in (before, after)
            outcomes.add(membership_of(store).roster == after)
            assert not is_whole or membership_of(store).roster == after
        assert {meta_of(path).roster for path in there} == {membership_of(store).roster}
        if len(calls) < number:
            assert outcomes == {True, False}
            return
    raise AssertionError("too many calls")


def crash_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the process die at the n-th call that changes a disk; give the list of calls made."""
    calls: list[str] = []
    for name in ("pwritev", "fsync", "rename", "unlink"):
        real = getattr(files, name)

        def call(*arguments: object, name: str = name, real: object = real) -> object:
            if len(calls) >= number:
                raise CrashError
            calls.append(name)
            return real(*arguments)  # type: ignore[operator]

        patch.setattr(files, name, call)
    return calls


def test_regression_a_list_written_as_one_text_makes_no_directory(
    disks: list[Path], tmp_path: Path
) -> None:
    """A store was made in a directory of the name `d1,d2`, or the log dir added to a store."""
    text = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    several = f"'{tmp_path / 'a'}', '{tmp_path / 'b'}'"
    calls: list[Callable[[str], object]]
    calls = [LogStore.open, partial(LogStore.open, read_only=True), LogStore.open_kafka]
    with LogStore.open(disks) as store:
        for call in [*calls, store.add_dir]:
            with pytest.raises(ValueError, match="each string is one path") as caught:
                call(text)
            assert several in str(caught.value)
    assert sorted(tmp_path.iterdir()) == disks


def test_a_comma_may_belong_to_the_name_of_a_log_dir(tmp_path: Path) -> None:
    """If the directory exists, or is an item of a list, the path means what it says."""
    (tmp_path / "a,b").mkdir()
    for given in (str(tmp_path / "a,b"), [tmp_path / "c,d"]):
        with LogStore.open(given) as store:
            assert len(store.describe_dirs().log_dirs) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a,b", "c,d"]
