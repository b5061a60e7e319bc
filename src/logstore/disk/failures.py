"""Say what an error of the disk means for the log dir it came from.

    the disk is gone      EIO, EROFS, ENODEV, a damaged file system: the dir goes offline unasked,
                          because on a half-dead disk a probe still passes
    the disk is full      ENOSPC, EDQUOT: nothing is offline, the write is tried again later
    the process is full   EMFILE, ENFILE, ENOMEM: the disk is not to blame
    ask the probe         a missing file or permission, and all the rest: the disk, or this file?
"""

from __future__ import annotations

import enum
import errno

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
    """What an errno says about a log dir."""

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
    """Name an error as people look it up: `EIO: Input/output error (/disk1/orders-0/...log)`."""
    code = errno.errorcode.get(error.errno or 0, "OSError")
    where = f" ({error.filename})" if error.filename else ""
    return f"{code}: {error.strerror or error}{where}"
