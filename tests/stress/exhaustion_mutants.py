"""Changes to the engine that a program which runs short of something must notice."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.disk import log_dir
from logstore.disk.failures import Verdict, verdict_of
from logstore.disk.spare import Spare
from logstore.format import compression
from logstore.log.write import appender, batch_group
from logstore.store.dirs import watchdog
from logstore.store.upkeep import keeper
from mover import pool


class Mutant(NamedTuple):
    """A change, what it is called, and what a program must be short of to meet it."""

    name: str
    kind: str
    change: Callable[[], object]


def _blame_the_disk_for(*numbers: int) -> None:
    def verdict(error: OSError) -> Verdict:
        return Verdict.GONE if error.errno in numbers else verdict_of(error)

    log_dir.verdict_of = verdict  # type: ignore[attr-defined]


def _no_spare_descriptor() -> None:
    Spare.use = lambda self, work: work()  # type: ignore[method-assign]


def _no_thread_is_no_error_of_ours() -> None:
    for module in (keeper, appender, watchdog, pool):
        module.start_for = lambda path, thread: thread.start()  # type: ignore[attr-defined]


def _no_memory_is_damage() -> None:
    compression.refuse_shortage = lambda error: None


def _half_a_group_is_shown() -> None:
    real = batch_group.write

    def write_one_by_one(state: Any, batches: Any) -> None:
        for batch in batches:
            bytearray(2 * batch.size_bytes)  # as if each were copied
            real(state, [batch])

    batch_group.write = write_one_by_one


MUTANTS = (
    Mutant(
        "no descriptor: the disk is dead",
        "descriptors",
        lambda: _blame_the_disk_for(errno.EMFILE),
    ),
    Mutant(
        "a file that may not grow: the disk is dead",
        "file size",
        lambda: _blame_the_disk_for(errno.EFBIG),
    ),
    Mutant("the spare descriptor is not used", "descriptors", _no_spare_descriptor),
    Mutant("no thread: the bare error", "threads", _no_thread_is_no_error_of_ours),
    Mutant("no memory: the bytes are damaged", "memory", _no_memory_is_damage),
    Mutant("half of a group of batches is shown", "memory", _half_a_group_is_shown),
)
