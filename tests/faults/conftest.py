"""Name the file systems that the scenarios of this directory are played on."""

from __future__ import annotations

import pytest

from support.layers import demand
from support.loop_disk import kinds, why_not


@pytest.fixture(params=["ext4", "xfs"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name a file system that can be made here."""
    name = str(request.param)
    reason = why_not() or (None if name in kinds() else f"mkfs.{name} is not installed")
    demand(f"disks that fail, {name}", reason)
    return name
