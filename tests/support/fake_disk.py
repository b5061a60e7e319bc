"""Run the code that lists, renames and marks on pyfakefs, and let no call slip past it.

pyfakefs knows names and small files, but not the calls by descriptor and position: those go to the
real kernel, with a descriptor that is somebody else's there. Here they are done by seek and read on
the fake one, and the real ones raise and are counted as long as the fake is active.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.fake_filesystem_unittest import Patcher

from logstore.disk import files, mapped

RAW = (
    "pread", "preadv", "pwrite", "pwritev", "readv", "writev", "posix_fallocate", "posix_fadvise",
    "copy_file_range", "splice", "sendfile", "statvfs", "fstatvfs",
)  # fmt: skip
FAKED = (
    "open", "close", "fstat", "stat", "lstat", "fdatasync", "fsync", "ftruncate", "rename",
    "unlink", "rmdir", "mkdir", "scandir", "link",
)  # fmt: skip
REAL = [os]  # pyfakefs replaces modules by name, and does not look into lists


class RawCallError(AssertionError):
    """Says that a call would have reached the real kernel."""


@contextlib.contextmanager
def fake_disk() -> Iterator[tuple[FakeFilesystem, list[str]]]:
    """Give a fake file system, and the list of raw calls that were tried on it."""
    tried: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in RAW:
            patch.setattr(REAL[0], name, refusing(name, tried))
        for name, function in list(vars(mapped).items()):
            if callable(function) and getattr(function, "__module__", "") == mapped.__name__:
                patch.setattr(mapped, name, refusing(f"mapped.{name}", tried))
        # What is replaced while pyfakefs is at work is put back before it puts back its own.
        with Patcher() as patcher, pytest.MonkeyPatch.context() as inner:
            assert patcher.fs is not None
            fake: Any = vars(files)["os"]
            for name in FAKED:
                inner.setattr(files, "open_file" if name == "open" else name, getattr(fake, name))
            inner.setattr(files, "pread", lambda fd, size, at: seek_and_read(fake, fd, size, at))
            inner.setattr(
                files, "pwritev", lambda fd, parts, at: seek_and_write(fake, fd, parts, at)
            )
            inner.setattr(
                files, "pwrite", lambda fd, data, at: seek_and_write(fake, fd, [data], at)
            )
            for name in ("sendfile", "statvfs", "flock"):
                inner.setattr(files, name, refusing(name, tried))
            yield patcher.fs, tried


def refusing(name: str, tried: list[str]) -> Any:
    """Make a function that notes and refuses its call."""

    def refuse(*_: Any, **__: Any) -> Any:
        tried.append(name)
        raise RawCallError(name)

    return refuse


def seek_and_read(fake: Any, fd: int, size: int, position: int) -> bytes:
    """Read at a position of a fake file."""
    fake.lseek(fd, position, 0)
    data: bytes = fake.read(fd, size)
    return data


def seek_and_write(fake: Any, fd: int, parts: Sequence[bytes], position: int) -> int:
    """Write at a position of a fake file."""
    fake.lseek(fd, position, 0)
    return sum(fake.write(fd, bytes(part)) for part in parts)
