"""Find a path for an admin socket, connect to it, and remove the sockets of killed owners.

A socket is in a directory that only its user can access (mode 0700). It is not in a log dir: a disk
that hangs must not block clients that ask about that disk. `.lock` in each log dir holds the path
of the socket. An address may have 107 bytes; longer paths are reached through `/proc/self/fd`.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from logstore.disk import files

ADDRESS_BYTES_MAX = 107  # the size of `sun_path` without the zero at its end
SUFFIX = ".sock"
NEW_SUFFIX = ".new"
NEW_SECONDS_MAX = 60  # ample for the time between bind and listen, two calls in a row
BACKLOG = 64
TEMPORARY = "/tmp"  # not TMPDIR: it is often long, and the process that set it may remove it


def choose_path() -> str:
    """Give a path for a new socket, in an existing directory that no other user can write.

    Raises:
        OSError: there is no such directory, and none can be made.
    """
    name = f"{os.getpid()}-{os.urandom(6).hex()}{SUFFIX}"
    return os.path.join(private_dir(), name)


def private_dir() -> str:
    """Give the directory for sockets: that of the user's session, or one below /tmp.

    Raises:
        OSError: there is no such directory, and none can be made.
    """
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and _is_private(session):
        path = os.path.join(session, "logstore")
    else:
        path = _below_tmp()
    with suppress(FileExistsError):
        files.mkdir(path, 0o700)
    if not _is_private(path):  # another user made a directory of this name: use a random name
        path = f"{path}-{os.urandom(6).hex()}"
        files.mkdir(path, 0o700)
    return path


def _below_tmp() -> str:
    """Give the path of the directory for sockets of a user without a session."""
    return os.path.join(TEMPORARY, f"logstore-{os.geteuid()}")


def _is_private(path: str) -> bool:
    """Check whether a path is a directory of this user, closed to all others."""
    try:
        facts = files.lstat(path)
    except OSError:
        return False
    is_mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_mine and facts.st_mode & 0o077 == 0


@contextmanager
def address_of(path: str) -> Iterator[str]:
    """Give an address for a path of any length, valid inside the block."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield path
        return
    directory, name = os.path.split(path)
    fd = files.open_file(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        files.close(fd)


def listen(path: str) -> socket.socket:
    """Make a listening socket of mode 0600 at `path`; raises OSError.

    The socket gets its final name after it listens. So if no process listens at such a name, the
    name is stale.
    """
    _sweep_all(os.path.dirname(path))
    temporary = path.removesuffix(SUFFIX) + NEW_SUFFIX
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listener.fileno(), 0o600)  # `bind` gives this mode to the file
        with address_of(temporary) as address:
            listener.bind(address)
        listener.listen(BACKLOG)
        files.rename(temporary, path)
    except BaseException:
        listener.close()
        with suppress(OSError):
            files.remove_if_there(temporary)
        raise
    return listener


def connect(path: str) -> socket.socket:
    """Connect to an owner; raises OSError if no process listens at `path`."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            client.connect(address)
    except BaseException:
        client.close()
        raise
    return client


def sweep(directory: str) -> None:
    """Remove the sockets at which no process listens, because their owners were killed.

    A socket without its final name (`*.new`) may be about to listen. It is removed only if it is
    old.
    """
    old_ns = time.time_ns() - NEW_SECONDS_MAX * 1_000_000_000
    for entry in files.entries(directory):
        path = os.path.join(directory, entry.name)
        is_new = entry.name.endswith(NEW_SUFFIX) and entry.mtime_ns < old_ns
        if (is_new or entry.name.endswith(SUFFIX)) and _is_stale(path):
            files.remove_if_there(path)


def _sweep_all(directory: str) -> None:
    """Remove stale sockets from the directory of a new socket, and from the one below /tmp."""
    sweep(directory)
    other = _below_tmp()
    if other != directory and _is_private(other):
        with suppress(OSError):
            sweep(other)


def _is_stale(path: str) -> bool:
    """Check whether no process listens at a socket; one that is too busy to accept does listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            with address_of(path) as address:
                client.connect(address)
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False


def remove(path: str) -> None:
    """Remove a socket's name; if that fails, the next owner removes the name."""
    with suppress(OSError):
        files.remove_if_there(path)
