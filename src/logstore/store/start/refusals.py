"""Explain why a log dir is offline from the start, and what to do in each case."""

from __future__ import annotations

from typing import NamedTuple

FORMAT_REMEDY = (
    "mount the disk, or pass format_new=True (logstore format) to use it as a new log dir"
)
TAKE_BACK = (
    "if none of its partitions was created again since, pass format_new=True to take the log dir "
    "back with its partitions"
)
LAST_HERE = "; log dir "
READER_REMEDY = "mount the disk, correct the path, or remove the path from the configuration"


def last_at(path: str | None) -> str:
    """Return the text that follows the id of a missing log dir: its last path, or "" if unknown."""
    return "" if path is None else f" (last at {path})"


def missing_remedy(directory_id: str, *, is_configured: bool = False) -> str:
    """Explain what to do about a missing log dir of the store, in the same words everywhere.

    Args:
        is_configured: whether the last path of the missing log dir is a configured path.
    """
    first = "mount it" if is_configured else "mount it and add it to --log-dirs"
    return f"{first}, or, if the disk is lost for good: logstore remove-dir --lost {directory_id}"


def replaced_remedy(path: str) -> str:
    """Explain what to do about an empty directory at the path of a log dir of the store."""
    command = f"logstore reopen {path} --format-new"
    return f"mount the disk, or, if this empty disk replaces it: {command}"


def without_remedy(reason: str) -> str:
    """Remove the remedy from a reason, because a Spark executor must not repair a store."""
    for begin in (LAST_HERE, ": mount ", ": leave "):
        reason = reason.partition(begin)[0]
    return reason


class Refused(NamedTuple):
    """A dir that is offline from the start, with the reason.

    Attributes:
        remedy: advice for the owner of the store. A reader formats nothing, and gets the advice
            `READER_REMEDY`.
        missing_id: the id of the missing log dir that was last at this path; "" if the id is
            unknown.
        is_empty: whether the directory at this path is empty, so that it may be a new disk.
    """

    path: str
    reason: str
    is_identity: bool
    remedy: str = ""
    missing_id: str = ""
    is_empty: bool = False

    @property
    def has_remedy(self) -> bool:
        """Check whether the explanation says what to do."""
        return bool(self.remedy or self.missing_id)

    def explained(self, *, to_reader: bool = False) -> str:
        """Return the reason, with the remedy for the owner or for a reader."""
        if self.missing_id:
            remedy = missing_remedy(self.missing_id, is_configured=True)
            if self.is_empty:
                remedy = replaced_remedy(self.path)
            return f"{self.reason}{LAST_HERE}{self.missing_id} was last here: {remedy}"
        remedy = READER_REMEDY if self.remedy and to_reader else self.remedy
        return f"{self.reason}: {remedy}" if remedy else self.reason
