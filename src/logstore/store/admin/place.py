"""Find a path for an admin socket, connect to it, and remove the sockets of killed owners.

A socket is in a directory that only the owner's user can access (mode 0700). The socket is not in a
log dir, so a disk that hangs does not block clients that ask about this disk. `.lock` in each log
dir contains the path of the socket. The address of a socket has at most 107 bytes. If a path is
longer, the socket is reached through `/proc/self/fd`.
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
NEW_SECONDS_MAX = 60  # after this time, a socket without a final name is old
BACKLOG = 64
TEMPORARY = "/tmp"  # TMPDIR is not used: its path is often long, and it may be removed early


def choose_path() -> str:
    """Return a path for a new socket, in an existing directory that only this user can write.

    Raises:
        OSError: there is no such directory, and it cannot be made.
    """
    name = f"{os.getpid()}-{os.urandom(6).hex()}{SUFFIX}"
    return os.path.join(private_dir(), name)


def private_dir() -> str:
    """Return the directory for sockets: below the user's session directory, or below /tmp.

    Raises:
        OSError: there is no such directory, and it cannot be made.
    """
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and _is_private(session):
        path = os.path.join(session, "logstore")
    else:
        path = _below_tmp()
    with suppress(FileExistsError):
        files.mkdir(path, 0o700)
    if not _is_private(path):  # another user has taken this name: use a random name
        path = f"{path}-{os.urandom(6).hex()}"
        files.mkdir(path, 0o700)
    return path


def _below_tmp() -> str:
    """Return the path of the directory for sockets below /tmp.

    This directory is used if the user has no session directory.
    """
    return os.path.join(TEMPORARY, f"logstore-{os.geteuid()}")


def _is_private(path: str) -> bool:
    """Check whether a path is a directory of this user that no other user can access."""
    try:
        facts = files.lstat(path)
    except OSError:
        return False
    is_mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_mine and facts.st_mode & 0o077 == 0


@contextmanager
def address_of(path: str) -> Iterator[str]:
    """Return an address for a path of any length; the address is valid inside the `with` block."""
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
    """Make a listening socket of mode 0600 at `path`. Raises OSError.

    The socket gets its final name only after it listens. So if no process listens at a final name,
    the name is stale.
    """
    _sweep_all(os.path.dirname(path))
    temporary = path.removesuffix(SUFFIX) + NEW_SUFFIX
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listener.fileno(), 0o600)  # `bind` gives the socket's mode to the file
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
    """Connect to an owner. Raises OSError if no process listens at `path`."""
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

    A socket without a final name (`*.new`) may be about to listen. So a socket without a final name
    is removed only if it is old.
    """
    old_ns = time.time_ns() - NEW_SECONDS_MAX * 1_000_000_000
    for entry in files.entries(directory):
        path = os.path.join(directory, entry.name)
        is_new = entry.name.endswith(NEW_SUFFIX) and entry.mtime_ns < old_ns
        if (is_new or entry.name.endswith(SUFFIX)) and _is_stale(path):
            files.remove_if_there(path)


def _sweep_all(directory: str) -> None:
    """Remove stale sockets from a new socket's directory, and from the directory below /tmp."""
    sweep(directory)
    other = _below_tmp()
    if other != directory and _is_private(other):
        with suppress(OSError):
            sweep(other)


def _is_stale(path: str) -> bool:
    """Return True if no process listens at a socket; a busy process counts as listening."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            with address_of(path) as address:
                client.connect(address)
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False


def remove(path: str) -> None:
    """Remove the name of a socket; if this fails, the next owner removes the name."""
    with suppress(OSError):
        files.remove_if_there(path)
