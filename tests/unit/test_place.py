"""Admin sockets are in private directories, at paths of any length; stale ones are removed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from logstore.store.admin import place as admin_place


def test_a_socket_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directory and socket are closed to other users from the beginning."""
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    before = os.umask(0)
    try:
        path = admin_place.choose_path()
        listener = admin_place.listen(path)
    finally:
        os.umask(before)
    with listener:
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.lstat(os.path.dirname(path)).st_mode) == 0o700
        assert os.path.dirname(path) == str(tmp_path / f"logstore-{os.geteuid()}")
    admin_place.remove(path)
    assert not os.path.lexists(path)
    admin_place.remove(path)


def test_the_session_has_a_directory_for_such_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_RUNTIME_DIR is used if it is private, but not if others may write there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path))
    tmp_path.chmod(0o700)
    assert os.path.dirname(admin_place.choose_path()) == str(tmp_path / "logstore")
    tmp_path.chmod(0o755)
    assert os.path.dirname(admin_place.choose_path()) != str(tmp_path / "logstore")


@pytest.mark.parametrize("what", ["open to others", "a file", "a symlink"])
def test_a_directory_that_somebody_prepared_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A new directory is made beside it."""
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    prepared = tmp_path / f"logstore-{os.geteuid()}"
    (tmp_path / "elsewhere").mkdir(0o700)
    if what == "open to others":
        prepared.mkdir()
        prepared.chmod(0o777)
    elif what == "a file":
        prepared.write_bytes(b"")
    else:
        prepared.symlink_to(tmp_path / "elsewhere")
    directory = os.path.dirname(admin_place.choose_path())
    assert directory.startswith(f"{prepared}-")
    assert stat.S_IMODE(os.lstat(directory).st_mode) == 0o700


def test_no_place_at_all_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller decides what to do."""
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path / "not there"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(OSError, match="not there"):
        admin_place.choose_path()


@pytest.mark.parametrize("length", [20, 107, 108, 109, 300, 2000])
def test_a_path_may_have_any_length(tmp_path: Path, length: int) -> None:
    """An address has room for 107 bytes, but longer paths can be used, too."""
    directory = tmp_path
    while len(str(directory)) < length - 20:
        directory /= "d" * min(100, max(1, length - 21 - len(str(directory))))
    directory.mkdir(parents=True, exist_ok=True)
    path = str(directory / ("s" * max(1, length - 6 - len(str(directory))) + ".sock"))
    with admin_place.listen(path) as listener, admin_place.connect(path) as client:
        assert stat.S_ISSOCK(os.lstat(path).st_mode)
        listener.setblocking(True)
        peer, _ = listener.accept()
        with peer:
            client.sendall(b"x")
            assert peer.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        admin_place.connect(path)


def test_only_stale_sockets_are_swept(tmp_path: Path) -> None:
    """A living owner's socket stays, even if its backlog is full; foreign files stay, too."""
    stale, living, busy = (str(tmp_path / name) for name in ("s.sock", "l.sock", "b.sock"))
    admin_place.listen(stale).close()
    (tmp_path / "notes.sock").write_text("no socket")
    (tmp_path / "readme").write_text("")
    assert os.path.lexists(stale)
    with (
        admin_place.listen(living),
        socket.socket(socket.AF_UNIX) as crowded,
        socket.socket(socket.AF_UNIX) as first,
    ):
        crowded.bind(busy)
        crowded.listen(0)
        first.connect(busy)
        admin_place.sweep(str(tmp_path))
        left = set(os.listdir(tmp_path))
    assert left == {"l.sock", "b.sock", "notes.sock", "readme"} - (
        {"notes.sock"} - left  # connecting to a plain file is refused as well
    )


def test_a_socket_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    """Neither a temporary name nor a descriptor is left."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"."):
        admin_place.listen(str(tmp_path / "not" / "there.sock"))
    (tmp_path / "taken.sock").mkdir()
    with pytest.raises(OSError, match=r"."):
        admin_place.listen(str(tmp_path / "taken.sock"))
    assert os.listdir(tmp_path) == ["taken.sock"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_socket_that_never_got_its_name_is_swept_once_it_is_old(tmp_path: Path) -> None:
    """The owner was killed between bind and rename; a new socket may be about to listen.

    One that somebody listens on stays, however old it is.
    """
    for name in ("old.new", "fresh.new", "living.new"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / name))
    (tmp_path / "living.new").unlink()
    with admin_place.listen(str(tmp_path / "a.sock")):
        os.rename(tmp_path / "a.sock", tmp_path / "living.new")
        for name in ("old.new", "living.new"):
            os.utime(tmp_path / name, (0, 0))
        admin_place.sweep(str(tmp_path))
        assert set(os.listdir(tmp_path)) == {"fresh.new", "living.new"}


def test_what_a_killed_owner_left_outside_of_a_session_is_swept_within_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's next start cleans both places; directories of other users stay."""
    session, below_tmp = tmp_path / "session", tmp_path / f"logstore-{os.geteuid()}"
    for directory in (session, below_tmp):
        directory.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path))
    for is_private in (False, True):
        stale = str(below_tmp / "stale.sock")
        below_tmp.chmod(0o700)
        admin_place.listen(stale).close()
        below_tmp.chmod(0o700 if is_private else 0o755)
        with admin_place.listen(admin_place.choose_path()):
            assert os.path.lexists(stale) is not is_private
