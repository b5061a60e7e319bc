"""Errors are classified by what they mean for the disk."""

from __future__ import annotations

import errno
import os

import pytest

from logstore.disk.failures import Verdict, reason_of, verdict_of


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (errno.EIO, Verdict.GONE),
        (errno.EROFS, Verdict.GONE),
        (errno.ENODEV, Verdict.GONE),
        (errno.EUCLEAN, Verdict.GONE),
        (errno.ENOTCONN, Verdict.GONE),
        (errno.ENOSPC, Verdict.FULL),
        (errno.EDQUOT, Verdict.FULL),
        (errno.EMFILE, Verdict.PROCESS),
        (errno.ENFILE, Verdict.PROCESS),
        (errno.ENOENT, Verdict.ASK),
        (errno.EACCES, Verdict.ASK),
        (errno.ESTALE, Verdict.ASK),
        (errno.EPERM, Verdict.ASK),
        (errno.ENOTDIR, Verdict.ASK),
    ],
)
def test_each_errno_has_its_verdict(code: int, verdict: Verdict) -> None:
    """Each errno has the verdict in the module's table."""
    assert verdict_of(OSError(code, os.strerror(code))) is verdict


def test_a_reason_names_errno_text_and_file() -> None:
    """A person can look up the reason."""
    error = OSError(errno.EIO, os.strerror(errno.EIO), "/disk1/x.log")
    assert reason_of(error) == "EIO: Input/output error (/disk1/x.log)"
    assert "strange" in reason_of(OSError("strange"))
