"""Test a coordination store whose log dirs are partly full: opens and deletions."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.coordination import journal_file
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopyFullError
from broker.coordination.journal import JOURNAL_NAME
from broker.coordination.tree import EmbeddedSettings
from support.faulty import Fault, FaultyFiles

WRITES = frozenset({"pwrite", "pwritev"})
FULL = Fault("ENOSPC", errno.ENOSPC, WRITES, is_sticky=True)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Make three log dirs with a store: one znode that stays, and one that an open deletes."""
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.mkdir()
    with EmbeddedStore([str(path) for path in paths]) as store:
        session = store.connect()
        session.create("/stays")
        session.create("/ephemeral", ephemeral=True)
    return [str(path) for path in paths]


def journal(path: str) -> Path:
    """Return the path of the journal in a log dir."""
    return Path(path, JOURNAL_NAME)


def full(paths: list[str]) -> ExitStack:
    """Make the disks of some log dirs full."""
    stack = ExitStack()
    for path in paths:
        stack.enter_context(FaultyFiles(path, FULL, 1))
    return stack


@pytest.mark.parametrize("count", [1, 2])
def test_regression_a_full_disk_prevents_no_open(dirs: list[str], count: int) -> None:
    """The other copies delete the ephemeral znode; later, the full log dirs return."""
    with full(dirs[:count]), EmbeddedStore(dirs) as store, store.connect() as session:
        assert sorted(store.failures) == dirs[:count]
        assert {error.errno for error in store.failures.values()} == {errno.ENOSPC}
        assert session.children("/") == ["stays"]
        session.create("/new")
    with EmbeddedStore(dirs) as store, store.connect() as session:
        assert not store.failures
        assert session.children("/") == ["new", "stays"]
    for path in dirs:
        with EmbeddedStore([path], accept_incomplete=True) as store, store.connect() as session:
            assert session.children("/") == ["new", "stays"]


def test_regression_a_full_disk_without_a_copy_prevents_no_open(dirs: list[str]) -> None:
    """A new log dir without space gets its first copy at a later open."""
    journal(dirs[1]).unlink()
    with full([dirs[1]]), EmbeddedStore(dirs) as store:
        assert list(store.failures) == [dirs[1]]
    assert [path.name for path in Path(dirs[1]).iterdir() if "journal" in path.name] == []
    with EmbeddedStore(dirs) as store:
        assert not store.failures
    assert journal(dirs[1]).exists()


def test_regression_a_full_disk_prevents_no_deletion(dirs: list[str]) -> None:
    """Deletions work, because they make space. Other changes are still refused."""
    with EmbeddedStore(dirs) as store, store.connect() as session:
        session.create("/gone")
        with full([dirs[2]]):
            with pytest.raises(CopyFullError):
                session.set("/gone", b"x")
            assert not store.failures
            session.delete("/gone")
            assert list(store.failures) == [dirs[2]]
            session.create("/new")
        assert session.children("/") == ["new", "stays"]
    with EmbeddedStore(dirs) as store, store.connect() as session:
        assert session.children("/") == ["new", "stays"]


def test_a_deletion_of_which_a_part_was_written_leaves_no_damage(dirs: list[str]) -> None:
    """The log dir is left out without the partial line, so a later open can read its copy."""
    part = Fault("ENOSPC after a part", errno.ENOSPC, WRITES)
    with EmbeddedStore(dirs) as store, store.connect() as session:
        before = journal(dirs[0]).read_bytes()
        with FaultyFiles(dirs[0], part, 1):
            session.delete("/stays")
        assert list(store.failures) == [dirs[0]]
        assert journal(dirs[0]).read_bytes() == before
    with EmbeddedStore(dirs) as store, store.connect() as session:
        assert session.children("/") == []


def test_an_open_without_any_space_is_refused(dirs: list[str]) -> None:
    """The error names a file on a full disk, and no data is lost."""
    with full(dirs), pytest.raises(CopyFullError) as caught:
        EmbeddedStore(dirs)
    assert caught.value.path == str(journal(dirs[0]))
    for path in dirs:
        journal(path).unlink()
    with full(dirs), pytest.raises(CopyFullError):
        EmbeddedStore(dirs)
    with EmbeddedStore(dirs) as store:
        assert store.is_new


@pytest.mark.parametrize("count", [1, 3])
def test_regression_a_journal_does_not_grow_past_its_bound(
    dirs: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is space for changes, but for no new file. It is opened again, and later continued."""
    monkeypatch.setattr(journal_file, "JOURNAL_BYTES_MAX", 4000)
    monkeypatch.setattr(journal_file, "LINE_BYTES_MAX", 500)
    no_file = Fault("ENOSPC", errno.ENOSPC, frozenset({"open_file"}), is_sticky=True)
    paths, settings = dirs[:count], EmbeddedSettings(rewrite_bytes_min=400, return_seconds=3600)
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(FaultyFiles(path, no_file, 1))
        with (
            EmbeddedStore(paths, settings, accept_incomplete=True) as store,
            store.connect() as session,
            pytest.raises(CopyFullError),
        ):
            for number in range(100):
                session.set("/stays", b"%d" % number * 50)
        assert max(journal(path).stat().st_size for path in paths) <= 4000
        with EmbeddedStore(paths, settings) as store, store.connect() as session:
            found = session.get("/stays")
            assert found.data == b"%d" % (found.version - 1) * 50
            with pytest.raises(CopyFullError):
                session.set("/stays", b"x" * 500)
            stack.close()
            for number in range(100):
                session.set("/stays", b"%d" % number * 50)
            assert not store.failures
