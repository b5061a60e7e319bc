"""A client finds a store's owner through the log dirs, and gets an error if it ends or hangs."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from logstore import LogStore, LogStoreError
from logstore.disk.dir_lock import LOCK_NAME, Owner, read_owner
from logstore.store.admin import client as admin_client
from logstore.store.admin import place as admin_place
from logstore.store.admin.client import AdminClient, find_owner


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("a", "b")]


def test_any_log_dir_leads_to_the_owner(dirs: list[str]) -> None:
    """The lock file names the socket while the store is open, but not after a close."""
    assert find_owner(dirs) is None
    with LogStore.open(dirs) as store:
        for named in ([dirs[0]], [dirs[1]], [*dirs, "/not/there"]):
            owner = find_owner(named)
            assert owner is not None and owner.pid == os.getpid()
            assert owner.path == store.admin.path == read_owner(dirs[0]).admin_socket
            assert owner.call("ping")["log_dirs"] == dirs
            assert str(os.getpid()) in repr(owner)
    assert find_owner(dirs) is None
    assert store.admin.path is None


def test_a_store_may_serve_no_socket(dirs: list[str]) -> None:
    """With `admin_socket=False` there is no socket and no thread, and the lock file names none."""
    with LogStore.open(dirs, admin_socket=False) as store:
        assert store.admin.path is None
        assert find_owner(dirs) is None
        assert read_owner(dirs[0]) == (os.getpid(), None)
        assert "logstore-admin" not in {thread.name for thread in threading.enumerate()}
        assert store.admin.call("ping")["pid"] == os.getpid()


def test_a_store_opens_where_no_socket_can_be_made(
    dirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store does not depend on its admin socket."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(admin_place, "TEMPORARY", str(tmp_path / "not there"))
    with LogStore.open(dirs) as store:
        assert store.admin.path is None
        store.create("orders", 0)

    def refuse(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.undo()
    monkeypatch.setattr(admin_place, "listen", refuse)
    with LogStore.open(dirs) as store:
        assert store.admin.path is None


@pytest.mark.parametrize("lock", [b"", b"nonsense", json.dumps({"admin_socket": 7}).encode()])
def test_a_damaged_lock_names_nobody(tmp_path: Path, lock: bytes) -> None:
    """The lock file is a hint, and is ignored if its checksum is wrong."""
    (tmp_path / LOCK_NAME).write_bytes(lock)
    assert read_owner(str(tmp_path)) == (None, None)
    assert find_owner([tmp_path]) is None


def test_a_log_dir_that_hangs_does_not_hang_the_search(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lock file names the owner; if none answers in time, no owner is found."""
    gate = threading.Event()

    def read(path: str) -> Owner:
        if path == dirs[0]:
            gate.wait()
        return read_owner(path)

    with LogStore.open(dirs):
        monkeypatch.setattr(admin_client, "read_owner", read)
        try:
            assert find_owner(dirs) is not None
            monkeypatch.setattr(admin_client, "LOOK_SECONDS_MAX", 0.0)
            assert find_owner(dirs[:1]) is None
        finally:
            gate.set()


def serve(path: str, answer: bytes, gate: threading.Event) -> threading.Thread:
    """Stand in for an owner that sends one answer, waits, and ends."""
    listener = admin_place.listen(path)
    listener.setblocking(True)

    def run() -> None:
        with listener:
            peer, _ = listener.accept()
        with peer:
            peer.recv(1 << 16)
            peer.sendall(answer)
            gate.wait()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "ended before it answered"),
        (b'{"progress": 1}\n', "ended before it answered"),
        (b'{"result": 1', "ended before it answered"),
        (b"[]\n", "cannot be reached"),
        (b"{nonsense\n", "cannot be reached"),
    ],
)
def test_an_owner_that_breaks_off_is_told(tmp_path: Path, answer: bytes, said: str) -> None:
    """Any end before the last line causes an error that names the process."""
    gate = threading.Event()
    gate.set()
    thread = serve(str(tmp_path / "s.sock"), answer, gate)
    with pytest.raises(LogStoreError, match=said) as raised:
        AdminClient(str(tmp_path / "s.sock"), 4711).call("ping")
    assert "4711" in str(raised.value)
    thread.join()


def test_a_silent_owner_is_given_up(tmp_path: Path) -> None:
    """The client waits for the given number of seconds."""
    gate = threading.Event()
    thread = serve(str(tmp_path / "s.sock"), b"", gate)
    try:
        with pytest.raises(LogStoreError, match=r"did not answer for 0\.01 s"):
            AdminClient(str(tmp_path / "s.sock"), 1).call("ping", timeout=0.01)
    finally:
        gate.set()
        thread.join()


def test_a_relative_path_is_the_clients(
    dirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has another working directory; the id of a missing log dir is not a path."""
    with LogStore.open(dirs) as store:
        owner = find_owner(dirs)
        assert owner is not None
        asked = []
        answer = owner._answers

        def look(request: dict[str, Any], timeout: float | None) -> Any:
            asked.append(request)
            return answer(request, timeout)

        monkeypatch.setattr(owner, "_answers", look)
        monkeypatch.chdir(tmp_path)
        owner.call("add_dir", {"path": "c"})
        owner.call("create", {"topic": "orders", "partition": 0, "log_dir": "./c"})
        owner.call("describe_dirs", {"log_dirs": ["a", "c"]})
        with pytest.raises(LogStoreError):
            owner.call("remove_dir", {"path": "0" * 32, "lost": True})
        assert [r.get("path") or r.get("log_dir") or r.get("log_dirs") for r in asked] == [
            str(tmp_path / "c"),
            str(tmp_path / "c"),
            [str(tmp_path / "a"), str(tmp_path / "c")],
            "0" * 32,
        ]
        assert store["orders", 0].log_dir == str(tmp_path / "c")


def test_a_path_with_a_zero_byte_has_no_owner(tmp_path: Path) -> None:
    """A server.properties file may have such a path. No thread fails with a traceback."""
    assert find_owner([str(tmp_path / "a\0b")]) is None
