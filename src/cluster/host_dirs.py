"""Define the facts that a broker has about its log dirs, and the facts that a log dir stores."""

from __future__ import annotations

from typing import NamedTuple

from cluster.requests import NEVER


class DirEntry(NamedTuple):
    """The facts that a log dir stores about itself and about the other log dirs of its broker.

    Attributes: failed: the other log dirs that failed, if the broker does not know their new
        `whole_since` yet.
    """

    boot_id: str
    mount_id: str
    whole_since: int
    flushed_since: int
    is_stopped_cleanly: bool = False
    failed: frozenset[str] = frozenset()


class LogDir:
    """The facts that a broker has about one of its log dirs.

    Attributes:
        epoch: the registration epoch of the write that last put the log dir into the registration.
        is_awaited: whether the broker waits for a write of its registration, because the log dir
            returned or was removed.
        removed_as: "" while the store has the log dir. If the log dir was removed, this is its
            directory id, until the registration is written without the log dir.
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
        """Return the entry that the log dir stores while the broker runs, or after a clean stop."""
        return DirEntry(
            self.boot_id,
            self.mount_id,
            self.whole_since,
            self.flushed_since,
            is_stopped_cleanly,
            self.failed,
        )

    def rename_failed(self, name: str, new: str) -> None:
        """Change the name of a failed log dir in the notes of this log dir."""
        if name in self.failed:
            self.failed = self.failed - {name} | {new}


class LogDirs(dict[str, LogDir]):
    """The log dirs of a broker. A log dir that is not in this dict counts as failed.

    A replica may be on a log dir that is not in this dict, because the store adds or removes a log
    dir a moment before the broker learns of the change.
    """

    def __missing__(self, dir_id: str) -> LogDir:
        """Return a log dir that does not work."""
        return LogDir()
