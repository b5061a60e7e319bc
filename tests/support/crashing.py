"""Let the process die at the n-th call that changes a disk: from there on no call reaches it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from logstore.disk import files

CHANGES = ("mkdir", "pwrite", "pwritev", "fsync", "fdatasync", "ftruncate") + (
    "rename", "unlink", "rmdir",
)  # fmt: skip


class CrashError(BaseException):
    """The process is dead; nobody who catches an Exception hears of it."""


def crash_at(patch: pytest.MonkeyPatch, number: int, names: Iterable[str] = CHANGES) -> list[str]:
    """Let the n-th of some calls and all behind it raise; give the list of calls made."""
    calls: list[str] = []
    for name in names:
        real = getattr(files, name)

        def call(*arguments: object, name: str = name, real: object = real) -> object:
            if len(calls) >= number:
                raise CrashError
            calls.append(name)
            return real(*arguments)  # type: ignore[operator]

        patch.setattr(files, name, call)
    return calls
