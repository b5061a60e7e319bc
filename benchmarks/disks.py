"""Provide two file systems to a benchmark: one for the source, and one for the target of a move.

`LOGSTORE_MOVE_TARGET` names a directory on another file system. If it is not set, root gets a new
XFS or ext4 file system on a loop device, whose image is inside the benchmark's directory. Any other
user gets a directory on the same file system, and the report says that it is the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.report import file_system

ENVIRONMENT_NAME = "LOGSTORE_MOVE_TARGET"
SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
MAKE = {
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
}
ZEROS = bytes(8 << 20)
IMAGE_BYTES_MIN = 400 << 20  # XFS needs 300 MiB


class Disks(NamedTuple):
    """Hold the source and target directories of moves, and describe their file systems."""

    source: str
    target: str
    words: str


@contextmanager
def two_images(bench_dir: str, size_bytes: int) -> Iterator[Disks]:
    """Provide two new file systems of the same kind; without root, call `two_disks`."""
    kind = _kind()
    if ENVIRONMENT_NAME in os.environ or os.geteuid() != 0 or kind is None:
        with two_disks(bench_dir, size_bytes) as disks:
            yield disks
        return
    with (
        loop_image(bench_dir, kind, size_bytes) as source,
        loop_image(bench_dir, kind, size_bytes) as target,
    ):
        yield Disks(source, target, f"{kind} to {kind}, each on a loop device")


@contextmanager
def two_disks(bench_dir: str, size_bytes: int) -> Iterator[Disks]:
    """Provide two directories, and remove them at the end; the second has room for `size_bytes`."""
    source = tempfile.mkdtemp(prefix="source-", dir=bench_dir)
    try:
        with _target(bench_dir, size_bytes) as (target, words):
            yield Disks(source, target, f"{file_system(bench_dir)} to {words}")
    finally:
        shutil.rmtree(source, ignore_errors=True)


@contextmanager
def _target(bench_dir: str, size_bytes: int) -> Iterator[tuple[str, str]]:
    named = os.environ.get(ENVIRONMENT_NAME)
    if named is None and os.geteuid() == 0 and (kind := _kind()) is not None:
        with loop_image(bench_dir, kind, size_bytes) as mount:
            yield mount, f"{kind} on a loop device"
        return
    target = tempfile.mkdtemp(prefix="logstore-bench-target-", dir=named or bench_dir)
    try:
        yield target, file_system(target) if named else "the same file system: no root, no loop"
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _kind() -> str | None:
    """Choose the kind of file system to create; return None if this machine cannot create it."""
    if shutil.which("losetup", path=SEARCH_PATH) is None:
        return None
    return next(
        (kind for kind, make in MAKE.items() if shutil.which(make[0], path=SEARCH_PATH)), None
    )


@contextmanager
def loop_image(directory: str, kind: str, size_bytes: int) -> Iterator[str]:
    """Create a file system in a new image, and mount it."""
    base = tempfile.mkdtemp(prefix="image-", dir=directory)
    image, mount = os.path.join(base, "image"), os.path.join(base, "mount")
    os.mkdir(mount)
    try:
        with open(image, "wb") as file:
            # Write the whole image once, because the first write to a block may be slow.
            for _ in range(0, max(size_bytes * 5 // 4, IMAGE_BYTES_MIN), len(ZEROS)):
                file.write(ZEROS)
            os.fsync(file.fileno())
        _do(*MAKE[kind], image)
        device = _do("losetup", "-f", "--show", image)
        try:
            _do("mount", "-t", kind, device, mount)
            try:
                yield mount
            finally:
                _do("umount", "-l", mount)
        finally:
            _do("losetup", "-d", device)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _do(*words: str) -> str:
    environment = {**os.environ, "PATH": SEARCH_PATH}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
