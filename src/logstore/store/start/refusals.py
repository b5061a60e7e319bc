"""Word why a log dir is offline from the start, and what to do: one remedy each."""

from __future__ import annotations

from typing import NamedTuple

FORMAT_REMEDY = "mount the disk, or pass format_new=True (logstore format) to take it as a new one"
READER_REMEDY = "mount the disk, or correct the path"


def missing_remedy(directory_id: str, *, is_configured: bool = False) -> str:
    """Say what to do about a missing log dir of the store; every message uses these words.

    Args:
        is_configured: whether the path where the dir was last is among the given log dirs.
    """
    first = "mount it" if is_configured else "mount it and add it to --log-dirs"
    return f"{first}, or, if it is lost for good: logstore remove-dir --lost {directory_id}"


class Refused(NamedTuple):
    """A dir that is offline from the start, with the reason.

    Attributes:
        remedy: what the owner of the store can do; a reader formats nothing.
        missing_id: the id of the missing log dir that was last at this path, if it is known.
    """

    path: str
    reason: str
    is_identity: bool
    remedy: str = ""
    missing_id: str = ""

    @property
    def has_remedy(self) -> bool:
        """Check whether the explanation says what to do."""
        return bool(self.remedy or self.missing_id)

    def explained(self, *, to_reader: bool = False) -> str:
        """Give the reason with the one remedy that the owner, or a reader, can apply."""
        if self.missing_id:
            remedy = missing_remedy(self.missing_id, is_configured=True)
            return f"{self.reason}; log dir {self.missing_id} was last here: {remedy}"
        remedy = READER_REMEDY if self.remedy and to_reader else self.remedy
        return f"{self.reason}: {remedy}" if remedy else self.reason
