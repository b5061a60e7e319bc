"""Make the ballast of log dirs small: tests make thousands of log dirs, and copy them."""

from __future__ import annotations

from logstore.disk import ballast

REAL_BYTES, REAL_BLOCK_BYTES = ballast.BALLAST_BYTES, ballast.BLOCK_BYTES
SMALL_BYTES = 4096


def use_small_ballast() -> None:
    """Write 4 KiB instead of 1 MiB, in this process."""
    ballast.BALLAST_BYTES = ballast.BLOCK_BYTES = SMALL_BYTES
