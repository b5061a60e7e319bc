"""Find a place for admin sockets, reach them there, and sweep what killed owners left.

A socket lies in a directory of its user's own (mode 0700) and on no log dir: a disk that hangs
must not hang who asks about it. `.lock` in each log dir holds its path. Paths longer than the 107
bytes that an address may have are reached through `/proc/self/fd`.
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

ADDRESS_BYTES_MAX = 107  # of sun_path, without the zero that ends it
SUFFIX = ".sock"
NEW_SUFFIX = ".new"
NEW_SECONDS_MAX = 60  # between bind and listen: two calls in a row
BACKLOG = 64
TEMPORARY = "/tmp"  # not TMPDIR: often long, and removed by those who set it


def choose_path() -> str:
    """Give a path for a new socket, in a directory that exists and nobody else can write.

    Raises:
        OSError: there is no such directory and none can be made.
    """
    name = f"{os.getpid()}-{os.urandom(6).hex()}{SUFFIX}"
    return os.path.join(private_dir(), name)


def private_dir() -> str:
    """Give the directory for sockets: the session's own, or one below /tmp.

    Raises:
        OSError: there is none and none can be made.
    """
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and _is_private(session):
        path = os.path.join(session, "logstore")
    else:
        path = _below_tmp()
    with suppress(FileExistsError):
        files.mkdir(path, 0o700)
    if not _is_private(path):  # somebody else was there first: go where nobody can have been
        path = f"{path}-{os.urandom(6).hex()}"
        files.mkdir(path, 0o700)
    return path


def _below_tmp() -> str:
    """Give the directory for sockets of who has no session."""
    return os.path.join(TEMPORARY, f"logstore-{os.geteuid()}")


def _is_private(path: str) -> bool:
    """Tell whether a path is a directory of this user, closed to all others."""
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

    It gets its name when it listens already, so a name with nobody behind it is always a stale one.
    """
    _sweep_all(os.path.dirname(path))
    temporary = path.removesuffix(SUFFIX) + NEW_SUFFIX
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the mode that bind gives to the file
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
    """Connect to an owner; raises OSError when nobody listens at `path`."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            client.connect(address)
    except BaseException:
        client.close()
        raise
    return client


def sweep(directory: str) -> None:
    """Remove the sockets that nobody listens on: their owners were killed.

    One that has no name yet (`*.new`) is about to be listened on, so it goes when it is old.
    """
    old_ns = time.time_ns() - NEW_SECONDS_MAX * 1_000_000_000
    for entry in files.entries(directory):
        path = os.path.join(directory, entry.name)
        is_new = entry.name.endswith(NEW_SUFFIX) and entry.mtime_ns < old_ns
        if (is_new or entry.name.endswith(SUFFIX)) and _is_stale(path):
            files.remove_if_there(path)


def _sweep_all(directory: str) -> None:
    """Sweep the directory of a new socket, and the other one that this user may have used."""
    sweep(directory)
    other = _below_tmp()
    if other != directory and _is_private(other):
        with suppress(OSError):
            sweep(other)


def _is_stale(path: str) -> bool:
    """Tell whether nobody listens on a socket; one that is too busy to answer is alive."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            with address_of(path) as address:
                client.connect(address)
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False


def remove(path: str) -> None:
    """Take a socket's name away; where that fails, the next owner sweeps it."""
    with suppress(OSError):
        files.remove_if_there(path)
