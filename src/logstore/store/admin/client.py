"""Send commands to the process that owns a store, through the socket in its lock files."""

from __future__ import annotations

import os
import queue
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from logstore.disk.dir_lock import read_owner
from logstore.disk.documents.meta_properties import is_id
from logstore.disk.threads import Thread, start_for
from logstore.errors import LogStoreError
from logstore.store.admin import place as admin_place
from logstore.store.admin.protocol import decode_error, decode_line, encode_line

RECEIVE_BYTES = 1 << 16
LOOK_SECONDS_MAX = 5.0  # if a lock file cannot be read in this time, its log dir hangs


# Maps a command to the name of its argument that contains a log dir path, or a list of such paths.
PATHS = {
    "create": "log_dir",
    "describe_dirs": "log_dirs",
    **dict.fromkeys(("add_dir", "reopen_dir", "take_offline", "remove_dir"), "path"),
    **dict.fromkeys(("cordon", "uncordon", "prefer_dir"), "path"),
}


def resolved(command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Make the paths in the arguments absolute: the owner may have another working directory."""
    name = PATHS.get(command, "")
    given = arguments.get(name)
    if isinstance(given, list | tuple):
        return {**arguments, name: [_absolute(path) for path in given]}
    return {**arguments, name: _absolute(given)} if given is not None else arguments


def _absolute(path: Any) -> Any:
    """Make a path absolute; return any other value, such as a directory id, unchanged."""
    is_path = isinstance(path, str) and path != "" and not is_id(path)
    return os.path.abspath(path) if is_path else path


class AdminClient:
    """Calls the commands of a store that another process owns; each call makes a connection.

    Attributes:
        pid: the owner's process id.
    """

    def __init__(self, path: str, pid: int | None = None) -> None:
        self.path = path
        self.pid = pid

    def __repr__(self) -> str:
        """Show the process id of the store's owner."""
        return f"<AdminClient of process {self.pid} at {self.path}>"

    def call(
        self,
        command: str,
        arguments: dict[str, Any] | None = None,
        progress: Callable[[Any], object] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Let the owner run a command, and return the result of the command.

        Args:
            arguments: values of JSON's types. The path of a log dir may be relative to the working
                directory of this process.
            progress: a function that is called with each report of progress that the command sends.
            timeout: how many seconds to wait for each part of the answer. None means that the call
                waits without limit, which long commands such as a move need.

        Raises:
            LogStoreError: the command raised this error in the owner; or the owner has ended; or
                the owner did not answer in time.
            ValueError, TypeError: the owner refused the arguments.
        """
        request = {**resolved(command, arguments or {}), "command": command}
        for answer in self._answers(request, timeout):
            if "error" in answer:
                raise decode_error(answer["error"])
            if "progress" not in answer:
                return answer.get("result")
            if progress is not None:
                progress(answer["progress"])
        raise self._lost("ended before it answered")

    def _answers(self, request: dict[str, Any], timeout: float | None) -> Iterator[dict[str, Any]]:
        """Send a request and iterate over the lines of the answer."""
        try:
            with admin_place.connect(self.path) as connection:
                connection.settimeout(timeout)
                # If the owner has closed the connection, it first sent the reason.
                # The loop below reads this reason.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(encode_line(request))
                for line in _lines(connection):
                    yield decode_line(line)
        except TimeoutError as error:
            raise self._lost(f"did not answer for {timeout} s") from error
        except (OSError, ValueError) as error:
            raise self._lost(f"cannot be reached ({error})") from error

    def _lost(self, reason: str) -> LogStoreError:
        return LogStoreError(f"process {self.pid}, which owns the store, {reason}")


def _lines(connection: socket.socket) -> Iterator[bytes]:
    """Iterate over the lines of an answer."""
    rest = bytearray()
    while data := connection.recv(RECEIVE_BYTES):
        *lines, last = data.split(b"\n")
        for line in lines:
            yield bytes(rest) + line
            rest.clear()
        rest += last


def find_owner(log_dirs: Iterable[str | os.PathLike[str]]) -> AdminClient | None:
    """Find the owner of a store that serves an admin socket; return None if there is none.

    All lock files are read in parallel. The first lock file that leads to a live socket is used. So
    a disk that hangs does not block the request.
    """
    paths = [os.path.abspath(os.fspath(path)) for path in log_dirs]
    found: queue.SimpleQueue[AdminClient | None] = queue.SimpleQueue()
    asked, refusal = 0, None
    for path in paths:
        try:
            start_for(path, Thread(target=lambda at=path: found.put(_owner_of(at)), daemon=True))
            asked += 1
        except LogStoreError as error:
            refusal = error
    if not asked and refusal is not None:
        raise refusal
    deadline = time.monotonic() + LOOK_SECONDS_MAX
    for _ in range(asked):
        try:
            client = found.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if client is not None:
            return client
    return None


def _owner_of(log_dir: str) -> AdminClient | None:
    """Make a client of the owner that a lock file names; return None if no owner listens."""
    try:
        owner = read_owner(log_dir)
        if owner.admin_socket is None:
            return None
        admin_place.connect(owner.admin_socket).close()
    except (OSError, ValueError):  # a path may have a zero byte
        return None
    return AdminClient(owner.admin_socket, owner.pid)
