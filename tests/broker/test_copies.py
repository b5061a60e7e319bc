"""Test the copies of an embedded coordination store: disks that fail, fill up, or come back."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.copies import Copies
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import (
    CopiesIncompleteError,
    CopiesOfflineError,
    CopyDamagedError,
    CopyForeignError,
    CopyFullError,
    NoNodeError,
)
from broker.coordination.journal import JOURNAL_NAME, Journal, decode_journal
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import Session
from logstore.disk import files
from support.faulty import Fault, FaultyFiles
from support.places import fast_directory

SETTINGS = EmbeddedSettings(rewrite_bytes_min=400)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    """Make three log dirs."""
    with fast_directory() as base:
        paths = [base / name for name in "abc"]
        for path in paths:
            path.mkdir()
        yield [str(path) for path in paths]


def journal(path: str) -> Path:
    """Return the path of the journal in a log dir."""
    return Path(path, JOURNAL_NAME)


def fill(dirs: list[str], count: int = 3) -> None:
    """Make a store with some znodes."""
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        for number in range(count):
            session.create(f"/{number}", b"x")


def names(dirs: list[str], *, accept: bool = False) -> tuple[int, list[str]]:
    """Open a store, and give its zxid and the names of its znodes."""
    with (
        EmbeddedStore(dirs, SETTINGS, accept_incomplete=accept) as store,
        store.connect() as session,
    ):
        return session.zxid(), session.children("/")


def test_any_one_copy_is_enough(dirs: list[str]) -> None:
    """If an operator accepts it, one copy is enough; then the other log dirs get copies again."""
    fill(dirs)
    for kept in dirs:
        for path in set(dirs) - {kept}:
            journal(path).unlink()
        with pytest.raises(CopiesIncompleteError):
            names(dirs)
        assert names(dirs, accept=True) == (3, ["0", "1", "2"])
        for path in dirs:
            tree = decode_journal(journal(path).read_bytes(), path).tree
            assert (tree.zxid, sorted(tree.nodes)) == (3, ["/", "/0", "/1", "/2"])


def test_the_highest_zxid_wins(dirs: list[str]) -> None:
    """A log dir that returns with an old copy is brought up to date."""
    fill(dirs)
    shutil.copy(journal(dirs[2]), journal(dirs[2]).with_name("old"))
    with EmbeddedStore(dirs[:2], SETTINGS) as store, store.connect() as session:
        session.delete("/0")
        session.create("/new")
    journal(dirs[2]).with_name("old").rename(journal(dirs[2]))
    for order in (dirs, dirs[::-1]):
        assert names(order) == (5, ["1", "2", "new"])


def test_a_new_store_is_reported(dirs: list[str]) -> None:
    """So a user can distinguish a new store from a store whose files are gone."""
    with EmbeddedStore(dirs, SETTINGS) as store:
        assert store.is_new
    with EmbeddedStore(dirs, SETTINGS) as store:
        assert not store.is_new
    with pytest.raises(ValueError, match="at least one log dir"):
        EmbeddedStore([])


def test_a_damaged_copy_is_refused_by_name(dirs: list[str]) -> None:
    """A damaged copy is not replaced; when it is moved away, the other copies serve."""
    fill(dirs)
    damaged = journal(dirs[1])
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    for _ in range(2):
        with pytest.raises(CopyDamagedError) as caught:
            EmbeddedStore(dirs)
        assert caught.value.path == str(damaged)
        assert damaged.read_bytes() == data
    damaged.rename(damaged.with_name("away"))
    assert names(dirs) == (3, ["0", "1", "2"])


def test_an_unfinished_journal_is_removed(dirs: list[str]) -> None:
    """An unfinished journal of a crash is removed; files with other names stay."""
    fill(dirs)
    unfinished = Path(dirs[0], f"{JOURNAL_NAME}.0123abcd.tmp")
    for path in (unfinished, Path(dirs[0], "other.tmp"), Path(dirs[0], f"{JOURNAL_NAME}-mine")):
        path.write_bytes(b"x")
    assert names(dirs)[0] == 3
    assert sorted(os.listdir(dirs[0])) == [JOURNAL_NAME, f"{JOURNAL_NAME}-mine", "other.tmp"]


@pytest.mark.parametrize("data", [b"", b"something else\n"])
def test_a_file_of_another_kind_is_refused(dirs: list[str], data: bytes) -> None:
    """A file of another kind is neither used as an empty store nor replaced."""
    journal(dirs[0]).write_bytes(data)
    with pytest.raises(CopyDamagedError):
        EmbeddedStore(dirs)
    assert journal(dirs[0]).read_bytes() == data


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/null", path)])
def test_what_is_no_file_is_refused(dirs: list[str], make: Callable[[str], Any]) -> None:
    """A directory, a FIFO or a symlink of this name is refused, without waiting for a FIFO."""
    fill(dirs)
    journal(dirs[0]).unlink()
    make(str(journal(dirs[0])))
    with pytest.raises(CopyDamagedError, match="not a regular file"):
        EmbeddedStore(dirs)


def test_copies_of_two_stores_are_refused(dirs: list[str]) -> None:
    """The error names both paths and both store ids."""
    fill(dirs[:2])
    fill(dirs[2:])
    with pytest.raises(CopyForeignError) as caught:
        EmbeddedStore(dirs)
    error = caught.value
    assert (error.path, error.other_path) == (str(journal(dirs[2])), str(journal(dirs[0])))
    assert error.store_id != error.other_store_id


def failing(dirs: list[str], place: int, fault: Fault, nth: int = 1) -> FaultyFiles:
    """Make the disk of one log dir fail."""
    return FaultyFiles(dirs[place], fault, nth)


WRITES = frozenset({"pwrite", "pwritev"})
EIO = Fault("EIO", errno.EIO, WRITES, is_sticky=True)
SYNC_EIO = Fault("EIO", errno.EIO, frozenset({"fdatasync"}), is_sticky=True)
READ_EIO = Fault("EIO", errno.EIO, frozenset({"pread", "open_file", "lstat"}), is_sticky=True)
FULL = Fault("ENOSPC", errno.ENOSPC, WRITES, is_sticky=True)
PART_FULL = Fault("ENOSPC after a part", errno.ENOSPC, WRITES)


@pytest.mark.parametrize("fault", [EIO, SYNC_EIO])
def test_a_disk_that_fails_is_left_out(dirs: list[str], fault: Fault) -> None:
    """The others continue, the failure is reported once, and an open uses the log dir again."""
    failed: list[str] = []
    fill(dirs)
    with (
        EmbeddedStore(dirs, SETTINGS, lambda path, error: failed.append(path)) as store,
        store.connect() as session,
    ):
        with failing(dirs, 1, fault):
            session.create("/while")
        session.create("/later")
        assert failed == [dirs[1]]
        assert list(store.failures) == [dirs[1]]
    assert names(dirs[::2])[1] == ["0", "1", "2", "later", "while"]
    assert names(dirs) == (5, ["0", "1", "2", "later", "while"])
    assert names([dirs[1]], accept=True) == (5, ["0", "1", "2", "later", "while"])


def test_a_disk_that_cannot_be_read_is_left_out(dirs: list[str]) -> None:
    """If no other log dir has a copy, no empty store begins."""
    fill(dirs)
    with failing(dirs, 0, READ_EIO):
        assert names(dirs) == (3, ["0", "1", "2"])
        for path in dirs[1:]:
            journal(path).unlink()
        with pytest.raises(CopiesOfflineError, match="no copy of the store is found") as caught:
            EmbeddedStore(dirs)
        assert list(caught.value.failures) == [dirs[0]]
    assert not journal(dirs[1]).exists()


def test_a_log_dir_that_is_missing_is_left_out(dirs: list[str]) -> None:
    """A missing log dir is not mistaken for a new log dir."""
    fill(dirs)
    os.rename(dirs[0], dirs[0] + "-away")
    assert names(dirs) == (3, ["0", "1", "2"])
    assert not os.path.exists(dirs[0])


def test_without_a_disk_nothing_is_acknowledged(dirs: list[str]) -> None:
    """The error has the failure of each disk; reads still work; an open repairs the store."""
    fill(dirs)
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with FaultyFiles(os.path.dirname(dirs[0]), EIO, 1):
            with pytest.raises(CopiesOfflineError) as caught:
                session.create("/no")
            assert sorted(caught.value.failures) == dirs
        with pytest.raises(CopiesOfflineError):
            session.create("/no")
        assert session.children("/") == ["0", "1", "2"]
        with pytest.raises(NoNodeError):
            session.get("/no")
    assert names(dirs)[1] == ["0", "1", "2"]


@pytest.mark.parametrize("fault", [FULL, PART_FULL])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_full_disk_refuses_a_change_and_half_writes_none(
    dirs: list[str], place: int, fault: Fault
) -> None:
    """No copy has the change, and the next change works when there is space."""
    fill(dirs)
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        before = [journal(path).read_bytes() for path in dirs]
        with failing(dirs, place, fault), pytest.raises(CopyFullError) as caught:
            session.create("/no", b"x" * 600)
        assert caught.value.path == str(journal(dirs[place]))
        assert [journal(path).read_bytes() for path in dirs] == before
        assert session.children("/") == ["0", "1", "2"]
        assert not store.failures
        zxid = session.zxid()
        assert session.create("/yes").czxid == zxid + 1
    assert names(dirs)[1] == ["0", "1", "2", "yes"]


def test_a_change_that_cannot_be_taken_back_stops_the_store(dirs: list[str]) -> None:
    """If one disk is full, and another fails during the cut, the outcome is unknown."""
    fill(dirs)
    cut_fails = Fault("EIO", errno.EIO, frozenset({"ftruncate"}), is_sticky=True)
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with (
            failing(dirs, 1, FULL),
            failing(dirs, 0, cut_fails),
            pytest.raises(CopiesOfflineError, match="may have happened"),
        ):
            session.create("/maybe")
        with pytest.raises(CopiesOfflineError, match="open the store again"):
            session.create("/no")
    zxid, found = names(dirs)
    assert (zxid, found) in ((3, ["0", "1", "2"]), (4, ["0", "1", "2", "maybe"]))
    assert names(dirs[1:]) == (zxid, found)


def test_a_full_disk_delays_a_new_journal(dirs: list[str]) -> None:
    """The long journal is kept, and changes continue in it."""
    fill(dirs)
    no_file = Fault("ENOSPC", errno.ENOSPC, frozenset({"open_file"}), is_sticky=True)
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
        with failing(dirs, 1, no_file):
            for number in range(30):
                session.set("/0", b"%d" % number * 20)
        sizes = [journal(path).stat().st_size for path in dirs]
        assert sizes[1] > 2 * max(sizes[0], sizes[2])
        for number in range(60):
            session.set("/0", b"%d" % number * 20)
        assert journal(dirs[1]).stat().st_size < sizes[1]
        assert not store.failures
    assert names(dirs)[1] == ["0", "1", "2"]


def test_a_process_without_descriptors_opens_no_store(dirs: list[str]) -> None:
    """A lack of descriptors is not the disk's fault, so the log dir is not left out."""
    fill(dirs)
    no_descriptor = Fault("EMFILE", errno.EMFILE, frozenset({"open_file"}), is_sticky=True)
    with failing(dirs, 1, no_descriptor), pytest.raises(CopiesOfflineError):
        EmbeddedStore(dirs)


def test_a_write_that_was_interrupted_stops_the_store(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C between a write and its answer, an open finds out what happened."""
    fill(dirs)
    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:

        def interrupt(fd: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(files, "sync_data", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.create("/maybe")
        with pytest.raises(CopiesOfflineError, match="interrupted"):
            session.create("/no")
    assert names(dirs) == (4, ["0", "1", "2", "maybe"])


def test_each_call_may_fail_once(dirs: list[str]) -> None:
    """Whichever call of an open or a change fails, acknowledged changes are present afterwards."""
    every = frozenset({*WRITES, "fdatasync", "fsync", "ftruncate", "rename", "open_file", "pread"})
    for code in (errno.EIO, errno.ENOSPC):
        for nth in range(1, 200):
            fill_again(dirs)
            acknowledged = ["0", "1", "2"]
            with FaultyFiles(dirs[1], Fault("x", code, every), nth) as faulty:
                try:
                    with EmbeddedStore(dirs, SETTINGS) as store, store.connect() as session:
                        write_all(session, acknowledged)
                except (CopyFullError, CopiesOfflineError):
                    pass
            assert set(acknowledged) <= set(names(dirs)[1])
            if not faulty.injected:
                break
        assert nth > 10, "no call was counted"


def fill_again(dirs: list[str]) -> None:
    """Make a new store in the same log dirs."""
    for path in dirs:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
    fill(dirs)


def write_all(session: Session, acknowledged: list[str]) -> None:
    """Make changes until the journal is rewritten, and note the acknowledged changes."""
    for number in range(4):
        session.create(f"/new{number}", b"x" * 150)
        acknowledged.append(f"new{number}")


def test_the_lowest_zxid_does_not_win(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that chooses the oldest copy loses a change, and this is noticed."""

    def lowest(*values: Any, **options: Any) -> Any:
        return min(*values, **options) if options else max(*values)

    monkeypatch.setattr("broker.coordination.found_copies.max", lowest, raising=False)
    monkeypatch.setattr("broker.coordination.found_copies.is_older", lambda *found: True)
    with pytest.raises(AssertionError):
        test_the_highest_zxid_wins(dirs)


def test_an_incomplete_line_is_cut_before_the_next_change(dirs: list[str]) -> None:
    """A shorter line after a long incomplete line must not end in the old bytes."""
    fill(dirs[:1])
    with EmbeddedStore(dirs[:1]) as store, store.connect() as session:
        session.create("/lost", b"x" * 1500)
    data = bytearray(journal(dirs[0]).read_bytes())
    start = data.rindex(b"\n", 0, len(data) - 1) + 1
    end = start - start % 512 + 512
    data[start:end] = bytes(end - start)
    journal(dirs[0]).write_bytes(data)
    with EmbeddedStore(dirs[:1]) as store, store.connect() as session:
        assert session.create("/s", b"x" * 600).czxid == 4
    assert names(dirs[:1]) == (4, ["0", "1", "2", "s"])


def test_an_incomplete_line_that_stays_is_noticed(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant only overwrites the beginning of the incomplete line."""

    def keep(data: bytes, path: str) -> Journal:
        return decode_journal(data, path)._replace(is_torn=False)

    monkeypatch.setattr("broker.coordination.copies.decode_journal", keep)
    with pytest.raises(CopyDamagedError):
        test_an_incomplete_line_is_cut_before_the_next_change(dirs)


def test_the_copies_are_closed_once(dirs: list[str]) -> None:
    """A second close does nothing."""
    copies = Copies(dirs, SETTINGS)
    copies.close()
    copies.close()
