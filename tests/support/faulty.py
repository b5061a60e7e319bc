"""Make the N-th call to the disk fail, as SQLite's test harness does.

`FaultyFiles` replaces the bare calls of `logstore.disk.files`, counts those that touch files under
one directory, and makes one of them (or all from there on) fail: with an errno, by reading or
writing only a part, or by writing a part and failing at the rest as a full disk does. A close that
fails has closed, as on Linux.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from logstore.disk import files

BY_FD = (
    "pread", "pwrite", "pwritev", "fstat", "fdatasync", "fsync", "ftruncate", "sendfile",
    "close", "flock", "fadvise", "sync_file_range",
)  # fmt: skip
BY_PATH = ("open_file", "stat", "lstat", "rename", "unlink", "rmdir", "mkdir", "scandir", "link")
CALLS = (*BY_FD, *BY_PATH, "statvfs")
INTERRUPTED = frozenset(CALLS) - {"close"}  # Python never says that a close was interrupted
LOCKS = frozenset(("flock",))
WRITES = frozenset(
    ("pwrite", "pwritev", "fdatasync", "fsync", "ftruncate", "sendfile", "rename", "unlink")
    + ("rmdir", "mkdir", "link", "open_file")
)
GROWS = frozenset(("pwrite", "pwritev", "sendfile", "mkdir", "link", "rename", "open_file"))
OPENS = frozenset(("open_file", "scandir"))
SYNCS = frozenset(("fsync", "fdatasync"))
NAMED = frozenset(BY_PATH)
TRANSFERS = frozenset(("pread", "pwrite", "pwritev", "sendfile"))


class Fault(NamedTuple):
    """One way in which the disk fails."""

    name: str
    errno: int | None  # None: the call does a part of its work
    calls: frozenset[str]
    is_sticky: bool = False


FAULTS = (
    Fault("EIO", errno.EIO, frozenset(CALLS)),
    Fault("EIO for good", errno.EIO, frozenset(CALLS), is_sticky=True),
    Fault("EROFS for good", errno.EROFS, WRITES, is_sticky=True),
    Fault("ENOSPC", errno.ENOSPC, GROWS),
    Fault("ENOSPC after a part", errno.ENOSPC, frozenset(("pwrite", "pwritev"))),
    Fault("ENOSPC at a sync", errno.ENOSPC, SYNCS),
    Fault("EMFILE", errno.EMFILE, OPENS),
    Fault("EMFILE for good", errno.EMFILE, OPENS, is_sticky=True),
    Fault("a part", None, TRANSFERS),
    Fault("parts for good", None, TRANSFERS, is_sticky=True),
)

# Every kind of error of the disk, once and for good: what is not among FAULTS.
MORE_FAULTS = (
    Fault("ENOSPC for good", errno.ENOSPC, GROWS, is_sticky=True),
    Fault("EROFS", errno.EROFS, WRITES),
    Fault("EACCES", errno.EACCES, NAMED),
    Fault("EACCES for good", errno.EACCES, NAMED, is_sticky=True),
    Fault("EINTR", errno.EINTR, INTERRUPTED),
    Fault("EINTR for good", errno.EINTR, INTERRUPTED, is_sticky=True),
    Fault("ENOSPC at a close", errno.ENOSPC, frozenset(("close",))),
    Fault("ENOLCK", errno.ENOLCK, LOCKS),
    Fault("ENOLCK for good", errno.ENOLCK, LOCKS, is_sticky=True),
)


class FaultyFiles:
    """Counts calls under a directory and makes the N-th fail.

    Attributes:
        calls: how many calls of the fault's kind were made.
        injected: what was made to fail, as (call, path).
    """

    def __init__(self, under: str, fault: Fault | None, nth: int) -> None:
        self.under, self.fault, self.nth = os.path.realpath(under), fault, nth
        self.calls = 0
        self.injected: list[tuple[str, str]] = []
        self._full: set[str] = set()
        self._lock = threading.RLock()  # a handle that is collected meanwhile closes its file
        self._originals: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> FaultyFiles:
        for name in CALLS:
            self._originals[name] = getattr(files, name)
            setattr(files, name, self._wrapper(name, self._originals[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(files, name, original)

    def _wrapper(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        by_fd = name in BY_FD

        def call(*args: Any, **kwargs: Any) -> Any:
            path = fd_path(args[0]) if by_fd else os.fspath(args[0])
            if self.fault is None or not path.startswith(self.under):
                return original(*args, **kwargs)
            with self._lock:
                is_hit = self._is_hit(name, args, path)
            if not is_hit:
                return original(*args, **kwargs)
            return self._fail(name, path, original, args, kwargs)

        return call

    def _is_hit(self, name: str, args: tuple[Any, ...], path: str) -> bool:
        fault = self.fault
        assert fault is not None
        if name not in fault.calls or (path in self._full and name in fault.calls):
            return path in self._full and name in fault.calls
        if name == "open_file" and not opens_for(fault, path, args[1]):
            return False
        if name == "rename" and fault.errno == errno.ENOSPC and self.nth % 2:
            return False  # a directory seldom has to grow
        self.calls += 1
        return self.calls == self.nth or (fault.is_sticky and self.calls > self.nth)

    def _fail(self, name: str, path: str, original: Any, args: Any, kwargs: Any) -> Any:
        fault = self.fault
        assert fault is not None
        self.injected.append((name, path))
        if name == "close":  # it fails, and the descriptor is gone all the same
            original(*args)
        is_partial = fault.errno is None or fault.name.endswith("a part")
        if is_partial and path not in self._full:
            if fault.errno is not None:
                self._full.add(path)
            return do_a_part(name, original, args)
        self._full.discard(path)
        raise OSError(fault.errno or errno.EIO, os.strerror(fault.errno or errno.EIO), path)


def opens_for(fault: Fault, path: str, flags: int) -> bool:
    """Tell whether opening a file so can meet this error: a full disk refuses new files only."""
    if fault.errno == errno.ENOSPC:
        return bool(flags & os.O_CREAT) and not os.path.lexists(path)
    if fault.errno == errno.EROFS:
        return bool(flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY))
    return True


def fd_path(fd: int) -> str:
    """Give the path that a descriptor was opened by."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def do_a_part(name: str, original: Any, args: Any) -> Any:
    """Do half of a read, a write or a copy; one byte at least."""
    if name == "pread":
        fd, size, position = args
        return original(fd, max(size // 2, 1), position)
    if name == "sendfile":
        target, source, position, size = args
        return original(target, source, position, max(size // 2, 1))
    fd, data, position = args
    whole = b"".join(data) if name == "pwritev" else bytes(data)
    return os.pwrite(fd, whole[: max(len(whole) // 2, 1)], position)


@contextlib.contextmanager
def no_thread_leaks(seconds_max: float = 30.0) -> Iterator[None]:
    """Check that every thread that was started within has ended, or ends by itself."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(seconds_max)
    assert not any(thread.is_alive() for thread in left), f"threads are left: {left}"


@contextlib.contextmanager
def no_descriptor_leaks(under: str) -> Iterator[None]:
    """Check that at the end as few descriptors are open below a directory as at the beginning."""
    before = len(open_below(under))
    yield
    gc.collect()  # an error's frames hold on to what they had open
    after = open_below(under)
    assert len(after) <= before, f"{len(after) - before} descriptors leaked: {after}"


def open_below(directory: str) -> list[str]:
    """Name the files below a directory that this process has open."""
    paths = [fd_path(int(fd)) for fd in os.listdir("/proc/self/fd")]
    return [path for path in paths if path.startswith(directory + "/")]
