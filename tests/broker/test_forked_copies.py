"""Test copies of a coordination store of which each was used without the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.coordination import found_copies
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopyForkedError
from broker.coordination.found_copies import Past
from broker.coordination.journal import JOURNAL_NAME


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Make two log dirs with a store of three changes."""
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.mkdir()
    write([str(path) for path in paths], "common", 3)
    return [str(path) for path in paths]


def write(dirs: list[str], name: str, count: int) -> None:
    """Create znodes of a name in the copies of some log dirs."""
    with EmbeddedStore(dirs, accept_incomplete=True) as store, store.connect() as session:
        for number in range(count):
            session.create(f"/{name}{number}", b"x")


def journal(path: str) -> str:
    """Return the path of the journal in a log dir."""
    return str(Path(path, JOURNAL_NAME))


@pytest.mark.parametrize(("of_first", "of_second"), [(2, 2), (3, 6), (6, 3), (1, 40)])
def test_regression_copies_with_different_changes_are_refused(
    dirs: list[str], of_first: int, of_second: int
) -> None:
    """The error names both files, neither is changed, and the operator chooses."""
    write(dirs[:1], "first", of_first)
    write(dirs[1:], "second", of_second)
    before = [Path(journal(path)).read_bytes() for path in dirs]
    for order in (dirs, dirs[::-1]):
        with pytest.raises(CopyForkedError) as caught:
            EmbeddedStore(order)
        error = caught.value
        zxids = {error.path: error.zxid, error.other_path: error.other_zxid}
        assert zxids == {journal(dirs[0]): 3 + of_first, journal(dirs[1]): 3 + of_second}
    assert [Path(journal(path)).read_bytes() for path in dirs] == before
    Path(journal(dirs[0])).unlink()
    write(dirs, "later", 1)


def test_regression_a_process_that_uses_copies_in_turn_makes_no_fork(dirs: list[str]) -> None:
    """Its memory has the changes of both; but what another process changed is still a fork."""
    past: Past | None = None
    for number, used in enumerate([dirs[:1], dirs[1:], dirs[:1], dirs[1:], dirs]):
        with (
            EmbeddedStore(used, accept_incomplete=True, past=past) as store,
            store.connect() as session,
        ):
            session.create(f"/turn{number}")
            past = store.past()
    with EmbeddedStore(dirs) as store, store.connect() as session:
        assert {f"turn{number}" for number in range(5)} < set(session.children("/"))
        past = store.past()
    write(dirs[:1], "process", 1)
    with (
        EmbeddedStore(dirs[1:], accept_incomplete=True, past=past) as store,
        store.connect() as session,
    ):
        session.create("/here")
        past = store.past()
    with pytest.raises(CopyForkedError):
        EmbeddedStore(dirs, past=past)


def test_regression_a_new_disk_gets_the_store_of_its_process(dirs: list[str]) -> None:
    """If only an empty log dir is left, it gets no store of another id."""
    with EmbeddedStore(dirs) as store:
        past = store.past()
    Path(journal(dirs[0])).unlink()
    with EmbeddedStore(dirs[:1], accept_incomplete=True, past=past) as store:
        assert not store.is_new
    with EmbeddedStore(dirs) as store, store.connect() as session:
        assert session.children("/") == ["common0", "common1", "common2"]


def test_an_older_copy_is_continued(dirs: list[str]) -> None:
    """An older copy without changes of its own is no fork, whatever changed in the newer copy."""
    with EmbeddedStore(dirs[:1], accept_incomplete=True) as store, store.connect() as session:
        session.set("/common0", b"y")
        session.delete("/common1")
        session.create("/common1")
        session.create("/common2/child", ephemeral=True)
        session.set("/", b"root")
    write(dirs, "later", 1)
    assert len({Path(journal(path)).read_bytes() for path in dirs}) == 2  # one was written anew
    for path in dirs:
        with EmbeddedStore([path], accept_incomplete=True) as store, store.connect() as session:
            assert session.children("/") == ["common0", "common1", "common2", "later0"]


def test_a_check_of_the_highest_zxid_alone_is_noticed(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant believes that a copy with a higher zxid has all changes of the others."""
    monkeypatch.setattr(found_copies, "is_older", lambda old, zxid, new: True)
    with pytest.raises(pytest.fail.Exception):
        test_regression_copies_with_different_changes_are_refused(dirs, 3, 6)
