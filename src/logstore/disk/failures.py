"""Classify the errors of a disk by their meaning for its log dir.

    the disk is gone      EIO, EROFS, ENODEV, a damaged file system, and the rest of `DISK_IS_GONE`
    the disk is full      ENOSPC, EDQUOT, EFBIG
    the process is full   EMFILE, ENFILE, ENOMEM, EAGAIN
    ask the probe         a missing file or permission, and all other errors

If the disk is gone, the dir goes offline without a probe, because a probe of a half-dead disk may
succeed. If the disk is full, or the process has no free descriptors or memory, the operation can be
retried later. After any other error, the cause may be the disk or a single file. A probe of the
disk shows which of the two is the cause.
"""

from __future__ import annotations

import enum
import errno

from logstore.errors import LogDirError

DISK_IS_GONE = frozenset(
    {
        errno.EIO,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.EUCLEAN,
        errno.EBADMSG,
        errno.ESHUTDOWN,
        errno.ENOTCONN,
        errno.ENOMEDIUM,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
    }
)
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PROCESS_IS_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


class Verdict(enum.Enum):
    """Define the classes of errors: the meaning of an errno for a log dir."""

    GONE = "gone"
    FULL = "full"
    PROCESS = "process"
    ASK = "ask"


def verdict_of(error: OSError) -> Verdict:
    """Classify an error by its errno alone."""
    if error.errno in DISK_IS_GONE:
        return Verdict.GONE
    if error.errno in DISK_IS_FULL:
        return Verdict.FULL
    if error.errno in PROCESS_IS_FULL:
        return Verdict.PROCESS
    return Verdict.ASK


def reason_of(error: OSError) -> str:
    """Describe an error with name and file: `EIO: Input/output error (/disk1/orders-0/...log)`."""
    code = errno.errorcode.get(error.errno or 0, "OSError")
    where = f" ({error.filename})" if error.filename else ""
    return f"{code}: {error.strerror or error}{where}"


def refuse_shortage(error: OSError, path: str) -> None:
    """Raise a retriable LogDirError if the process lacks descriptors or memory.

    A lack of descriptors or memory does not mean that the disk of the log dir at `path` is bad.
    """
    if verdict_of(error) is Verdict.PROCESS:
        reason = (
            f"{reason_of(error)}: this process is short of descriptors or memory, and its disk is "
            "not at fault; raise the limit (ulimit -n) or close some files, then try again"
        )
        raise LogDirError(path=path, reason=reason, retriable=True) from error
