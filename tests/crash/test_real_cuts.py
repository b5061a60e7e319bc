"""The harness of real power cuts copies a disk only while nothing else can write to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from support import real_cuts
from support.layers import demand
from support.loop_disk import LoopDisk, loop_disk, why_not
from support.real_cuts import copy_image, free


@pytest.fixture
def disks() -> Iterator[tuple[LoopDisk, LoopDisk]]:
    """Give two disks with file systems, both mounted."""
    demand("power cuts on real file systems", why_not())
    with loop_disk("ext4", 16 << 20) as source, loop_disk("ext4", 16 << 20) as target:
        yield source, target


def test_a_disk_that_another_namespace_has_mounted_is_not_written(
    disks: tuple[LoopDisk, LoopDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy waits for the last unmount, which would write over it, before its first byte."""
    source, target = disks
    words = ["unshare", "-m", "sh", "-c", "echo ready; read line"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        source.unmount()
        target.unmount()  # here; the other one has it still
        before = target.image.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(real_cuts, "UNMOUNT_SECONDS_MAX", 0.1)
            with pytest.raises(TimeoutError, match="another mount namespace"):
                copy_image(source, target)
        assert target.image.read_bytes() == before
        other.stdin.write("\n")
        other.stdin.flush()
        copy_image(source, target)
        assert other.wait() == 0
    assert target.image.read_bytes() == source.image.read_bytes() != before


def test_a_disk_is_held_while_it_is_copied(disks: tuple[LoopDisk, LoopDisk]) -> None:
    """Nobody can mount a disk whose bytes are just being changed."""
    _, target = disks
    target.unmount()
    with free(target.device), pytest.raises(OSError, match=r"already mounted|busy"):
        target.mount_at(target.mount)
    target.mount_at(target.mount)
