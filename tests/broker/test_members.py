"""Test which copies of a coordination store are trusted when others cannot be read."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopiesIncompleteError, CopyForkedError
from broker.coordination.journal import JOURNAL_NAME
from broker.coordination.members import Epoch, Membership, is_older
from broker.coordination.tree import EmbeddedSettings
from support.faulty import Fault, FaultyFiles
from support.places import fast_directory

SETTINGS = EmbeddedSettings(rewrite_bytes_min=600)
EIO = Fault("EIO", errno.EIO, frozenset({"pwrite", "pwritev"}), is_sticky=True)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    """Make four log dirs."""
    with fast_directory() as base:
        paths = [base / name for name in "abcd"]
        for path in paths:
            path.mkdir()
        yield [str(path) for path in paths]


def create(dirs: list[str], *paths: str, accept: bool = False) -> None:
    """Create znodes in a store."""
    with (
        EmbeddedStore(dirs, SETTINGS, accept_incomplete=accept) as store,
        store.connect() as session,
    ):
        for path in paths:
            session.create(path)


def names(dirs: list[str], *, accept: bool = False) -> list[str]:
    """Open a store, and give the names of its znodes."""
    with (
        EmbeddedStore(dirs, SETTINGS, accept_incomplete=accept) as store,
        store.connect() as session,
    ):
        return session.children("/")


def fail_in_a_change(dirs: list[str], failing: list[str], path: str) -> None:
    """Make a change while the disks of some log dirs fail."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session, ExitStack() as stack:
        for one in failing:
            stack.enter_context(FaultyFiles(one, EIO, 1))
        session.create(path)
        assert sorted(store.failures) == sorted(failing)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_regression_a_copy_that_was_left_out_is_not_believed_alone(
    dirs: list[str], count: int
) -> None:
    """Such a copy lacks changes; the others continue without it, and later bring it up to date."""
    dirs = dirs[:count]
    create(dirs, "/a")
    fail_in_a_change(dirs, dirs[:1], "/while")
    before = Path(dirs[0], JOURNAL_NAME).read_bytes()
    with pytest.raises(CopiesIncompleteError) as caught:
        names(dirs[:1])
    assert caught.value.found == dirs[:1]
    assert sorted(caught.value.missing.values()) == dirs[1:]
    assert Path(dirs[0], JOURNAL_NAME).read_bytes() == before
    assert names(dirs[1:]) == ["a", "while"]
    assert names(dirs) == ["a", "while"]
    if count > 2:
        assert names([dirs[0], *dirs[2:]]) == ["a", "while"]


def test_disks_that_die_one_after_another_need_no_operator(dirs: list[str]) -> None:
    """The last copy has recorded that only it is alive."""
    create(dirs, "/a")
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session, ExitStack() as stack:
        for number, path in enumerate(dirs[:-1]):
            stack.enter_context(FaultyFiles(path, EIO, 1))
            session.create(f"/{number}")
    assert names(dirs[-1:]) == ["0", "1", "2", "a"]
    for path in dirs[:-1]:
        with pytest.raises(CopiesIncompleteError):
            names([path])
    with pytest.raises(CopiesIncompleteError):
        names(dirs[:2])
    assert names(dirs) == ["0", "1", "2", "a"]


def test_more_than_half_of_the_copies_are_enough(dirs: list[str]) -> None:
    """The others record a dead disk at an open, too; exactly half of the copies is too few."""
    create(dirs, "/a")
    with pytest.raises(CopiesIncompleteError):
        names(dirs[2:])
    create(dirs[1:], "/b")
    with pytest.raises(CopiesIncompleteError):
        names(dirs[:2])
    assert names(dirs[2:]) == ["a", "b"]
    create(dirs[2:], "/c")
    with pytest.raises(CopiesIncompleteError):
        names(dirs[:2])
    assert names(dirs) == ["a", "b", "c"]


def test_an_operator_accepts_a_copy_once(dirs: list[str]) -> None:
    """After that, the copy suffices by itself, and a copy without own changes follows it."""
    create(dirs[:2], "/a")
    with pytest.raises(CopiesIncompleteError, match="accept_incomplete"):
        names(dirs[1:2])
    create(dirs[1:2], "/b", accept=True)
    assert names(dirs[1:2]) == ["a", "b"]
    assert names(dirs[:2]) == ["a", "b"]


def test_regression_a_fork_whose_writes_are_gone_is_refused(dirs: list[str]) -> None:
    """Each copy was used without the other, even if no changes of one remain."""
    create(dirs[:2], "/a")
    for path in dirs[:2]:
        with (
            EmbeddedStore([path], SETTINGS, accept_incomplete=True) as store,
            store.connect() as session,
        ):
            for _ in range(2 if path == dirs[0] else 5):
                session.create("/b")
                session.delete("/b")
    with pytest.raises(CopyForkedError):
        names(dirs[:2])


def test_a_change_of_one_copy_alone_is_dropped(dirs: list[str]) -> None:
    """A crash came before the others had the change, so no caller had an answer."""
    dirs = dirs[:3]
    with EmbeddedStore(dirs) as store, store.connect() as session:
        session.create("/a")
    journals = [Path(path, JOURNAL_NAME) for path in dirs]
    before = [path.read_bytes() for path in journals]
    with EmbeddedStore(dirs) as store, store.connect() as session:
        session.create("/cut")
    for path, data in zip(journals[1:], before[1:], strict=True):
        after = path.read_bytes()[len(data) :]
        epoch = after[: after.index(b"\n") + 1]
        path.write_bytes(data + epoch)
    create(dirs[1:], "/b")
    assert names(dirs) == ["a", "b"]


def begin_an_epoch_in(dirs: list[str], chosen: list[str]) -> None:
    """Make the process of an open end when only some copies have its epoch."""
    journals = [Path(path, JOURNAL_NAME) for path in dirs if path not in chosen]
    before = [path.read_bytes() for path in journals]
    names(dirs)
    for path, data in zip(journals, before, strict=True):
        path.write_bytes(data)


@pytest.mark.parametrize("order", [1, -1])
def test_regression_an_epoch_that_others_replaced_is_not_believed(
    dirs: list[str], order: int
) -> None:
    """Two epochs have the same number, and the copy that continued one of them is missing."""
    a, b, c, _ = dirs
    create([a, b, c], "/a")
    begin_an_epoch_in([a, b, c], [b])
    fail_in_a_change([a, c], [c], "/b")
    with pytest.raises(CopiesIncompleteError) as caught:
        names([b, c][::order])
    assert list(caught.value.missing.values()) == [a]
    assert names([a, b]) == ["a", "b"]
    assert names([a, b, c]) == ["a", "b"]


def test_regression_an_epoch_that_more_than_half_have_is_continued(dirs: list[str]) -> None:
    """A copy that is one incomplete change ahead in this epoch is no fork."""
    a, b, c, d = dirs
    create(dirs, "/a")
    begin_an_epoch_in(dirs, [b])
    with EmbeddedStore([a, c, d]) as store, store.connect() as session:
        journals = [Path(path, JOURNAL_NAME) for path in (a, c)]
        before = [path.read_bytes() for path in journals]
        session.create("/cut")
    for path, data in zip(journals, before, strict=True):
        path.write_bytes(data)
    create([b, a, c], "/b")
    assert names(dirs) == ["a", "b"]


def test_two_files_of_one_copy_count_once(dirs: list[str]) -> None:
    """A file that was copied to another log dir does not count twice."""
    create(dirs[:3], "/a")
    shutil.copy(Path(dirs[0], JOURNAL_NAME), dirs[3])
    with pytest.raises(CopiesIncompleteError):
        names([dirs[0], dirs[3]])
    assert names([dirs[0], dirs[1], dirs[3]]) == ["a"]
    assert names([dirs[1], dirs[3]]) == ["a"]


def test_a_log_dir_is_added_and_removed(dirs: list[str]) -> None:
    """Less than half of the log dirs of the configuration change."""
    create(dirs[:1], "/a")
    create(dirs[:2], "/b")
    with pytest.raises(CopiesIncompleteError):
        names(dirs[:1])
    create(dirs[:3], "/c")
    create(dirs[1:3], "/d")
    assert names(dirs[1:]) == ["a", "b", "c", "d"]


def test_members_change_one_by_one() -> None:
    """There is always a member, and each step begins a new epoch."""
    now = Membership.first("a", "/a")
    wanted = {"b": "/b", "c": "/c"}
    seen = []
    while (step := now.step_to(wanted, 7)) is not None:
        assert step.epoch[::2] == (now.epoch.number + 1, 7)
        assert len(step.members.keys() ^ now.members.keys()) == 1
        now = step
        seen.append("".join(now.members))
    assert seen == ["ab", "b", "bc"]
    assert now.step_to(wanted, 8) is None


def lineage(*zxids: int, name: str = "x") -> Membership:
    """Make a membership whose epochs begin after the given changes."""
    epochs = [Epoch(number, f"{name}{number}", zxid) for number, zxid in enumerate(zxids, 1)]
    return Membership(tuple(epochs), {"a": "/a"})


@pytest.mark.parametrize(
    ("old", "old_zxid", "new", "expected"),
    [
        (lineage(0), 5, lineage(0), True),
        (lineage(0), 5, lineage(0, 5), True),
        (lineage(0), 4, lineage(0, 5, 9), True),
        (lineage(0), 6, lineage(0, 5), True),
        (lineage(0), 7, lineage(0, 5), False),
        (Membership((*lineage(0).epochs, Epoch(2, "y", 5)), {}), 5, lineage(0, 5), True),
        (Membership((*lineage(0).epochs, Epoch(2, "y", 5)), {}), 6, lineage(0, 5), False),
        (lineage(0, name="y"), 0, lineage(0), False),
    ],
)
def test_where_two_copies_parted(
    old: Membership, old_zxid: int, new: Membership, expected: bool
) -> None:
    """In the last epoch that both know, a copy may be at most one change ahead."""
    assert is_older(old, old_zxid, new) is expected
