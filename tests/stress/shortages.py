"""Take from a process for a while what it may run out of.

descriptors     as many as are open, and up to 5 more
threads         none from the n-th on; in half of the programs by RLIMIT_NPROC
memory          the address space that is in use, and up to 16 MiB more
file size       no file may grow beyond a size: EFBIG, also after a part of a write
"""

from __future__ import annotations

import contextlib
import glob
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from logstore import LogConfig
from support.shortage import no_descriptors, no_threads, small_files

KIB, MIB = 1 << 10, 1 << 20


class Size(NamedTuple):
    """How large what a program writes is.

    Attributes:
        value_bytes_max: of a record's value.
        configs: of the partitions.
        root: where the log dirs are.
    """

    value_bytes_max: int
    configs: tuple[LogConfig, ...]
    root: Path = Path()


SMALL = Size(
    400,
    (
        LogConfig(segment_bytes=1024, max_message_bytes=2048),
        LogConfig(segment_bytes=2048, max_message_bytes=2048, record_format="kafka"),
        LogConfig(segment_bytes=4096, max_message_bytes=4096, compression_type="zstd"),
    ),
)
LARGE = Size(
    2 * MIB,
    (
        LogConfig(segment_bytes=4 * MIB, max_message_bytes=32 * MIB),
        LogConfig(segment_bytes=8 * MIB, max_message_bytes=32 * MIB, record_format="kafka"),
        LogConfig(segment_bytes=4 * MIB, max_message_bytes=32 * MIB, compression_type="zstd"),
    ),
)

Shortage = Callable[[random.Random, Size], AbstractContextManager[object]]


def _descriptors(chance: random.Random, size: Size) -> AbstractContextManager[object]:
    return no_descriptors(chance.randrange(6))


def _threads(chance: random.Random, size: Size) -> AbstractContextManager[object]:
    if os.geteuid() == 0:
        return no_threads(chance.choice([1, 1, 1, 2, 3, 4, 6]))
    return no_more_tasks(chance.choice([0, 0, 0, 1, 2, 3, 5]))


def _memory(chance: random.Random, size: Size) -> AbstractContextManager[object]:
    return no_memory(chance.choice([0, 0, 32, 64, 128, 512, 4096, 16384]))


def _file_size(chance: random.Random, size: Size) -> AbstractContextManager[object]:
    """Often a little above what a segment has: so a part of a batch is written."""
    written = [0]
    for name in glob.glob(f"{size.root}/*/*/*.log"):
        with contextlib.suppress(FileNotFoundError):  # a keeper removes a deleted partition
            written.append(os.stat(name).st_size)
    near = chance.choice(written) + chance.randrange(size.value_bytes_max)
    return small_files(chance.choice([0, 100, chance.randrange(2048), near, near, near]))


KINDS: dict[str, Shortage] = {
    "descriptors": _descriptors,
    "threads": _threads,
    "memory": _memory,
    "file size": _file_size,
}


@contextlib.contextmanager
def no_memory(left_kib: int) -> Iterator[None]:
    """Let this process have so much memory besides what it uses.

    What the allocator keeps of memory that was freed is taken first: else it would serve for long.
    """
    with open("/proc/self/statm", encoding="ascii") as statm:
        size_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes, hard))
    limits = (size_bytes + max(0, left_kib - 256) * KIB, hard)
    taken: list[bytearray] = []
    try:
        for each_bytes in (MIB, 64 * KIB, KIB):
            with contextlib.suppress(MemoryError):
                while True:
                    taken.append(bytearray(each_bytes))
        for _ in range(min(left_kib, 256, len(taken))):
            taken.pop()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        taken.clear()


@contextlib.contextmanager
def no_more_tasks(left: int) -> Iterator[None]:
    """Let this process's user have so many threads besides those that run."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    count = threading.active_count()
    resource.setrlimit(resource.RLIMIT_NPROC, (count + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def become_another_user(paths: list[str]) -> None:
    """Give up root's rights, for which there is no limit of threads; takes some paths along."""
    user = 50_000 + os.getpid() % 10_000
    for path in paths:
        os.chown(path, user, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
