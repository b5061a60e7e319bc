"""Hold what a broker knows about its log dirs, and what each log dir durably holds about itself."""

from __future__ import annotations

from typing import NamedTuple

from cluster.requests import NEVER


class DirEntry(NamedTuple):
    """What a log dir durably holds about itself, and about the others of its broker.

    Attributes:
        failed: the other log dirs that have failed, and have not been attested since.
    """

    boot_id: str
    mount_id: str
    whole_since: int
    flushed_since: int
    is_stopped_cleanly: bool = False
    failed: frozenset[str] = frozenset()


class LogDir:
    """What a broker knows about one of its log dirs.

    Attributes:
        epoch: the registration epoch at which the dir was last entered in the registration.
        is_awaited: whether the registration is being written because the dir returned.
        removed_as: the directory id of a dir that was removed, until the registration is written
            without it; "" for a dir of the store.
    """

    __slots__ = (
        "boot_id",
        "epoch",
        "failed",
        "flushed_since",
        "is_awaited",
        "is_good",
        "mount_id",
        "removed_as",
        "whole_since",
    )

    def __init__(self) -> None:
        self.is_good = self.is_awaited = False
        self.epoch = 0
        self.whole_since = self.flushed_since = NEVER
        self.boot_id = self.mount_id = self.removed_as = ""
        self.failed: frozenset[str] = frozenset()

    def entry(self, *, is_stopped_cleanly: bool = False) -> DirEntry:
        """Give the entry that the dir holds while the broker runs, or after a clean stop."""
        return DirEntry(
            self.boot_id,
            self.mount_id,
            self.whole_since,
            self.flushed_since,
            is_stopped_cleanly,
            self.failed,
        )

    def rename_failed(self, name: str, new: str) -> None:
        """Give a log dir of which this one notes a failure another name."""
        if name in self.failed:
            self.failed = self.failed - {name} | {new}


class LogDirs(dict[str, LogDir]):
    """The log dirs of a broker; any other dir does not work, and is whole since never.

    A replica may be on a dir that the broker does not know: the store has taken it in, or removed
    it, and the broker hears of this a moment later.
    """

    def __missing__(self, dir_id: str) -> LogDir:
        """Give a log dir that does not work."""
        return LogDir()
