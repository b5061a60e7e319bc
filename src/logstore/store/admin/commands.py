"""Define the commands that every store has: the methods of `LogStore`, with values of JSON's types.

The keys of a request, except `command`, become the arguments of the command's function. An unknown
key causes a TypeError.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.config import LogConfig
from logstore.store.dirs import dir_changes
from logstore.store.partitions import Partitions
from logstore.store.topics import partition_changes

if TYPE_CHECKING:
    from logstore.store.admin.admin import Admin, Arguments, Request
    from logstore.store.state import OwnerState

Row = dict[str, Any]

# Maps a prefix to a module in another package, which registers the commands with this prefix.
# The module is imported when a client first requests a command with the prefix.
ELSEWHERE = {"move.": "mover.registration"}


def ping(state: OwnerState) -> Row:
    """Return the pid of the process that answers, and the log dirs of its store."""
    return {"pid": os.getpid(), "log_dirs": list(state.log_dirs)}


def describe_dirs(
    state: OwnerState, log_dirs: Sequence[str] = (), topics: Sequence[str] = ()
) -> Row:
    """Return the description of log dirs as a KIP-113 document."""
    return Partitions(state).describe_dirs(log_dirs, topics).to_dict()


def metrics(state: OwnerState) -> Row:
    """Return the store's gauges."""
    return Partitions(state).metrics().to_dict()


def create(
    state: OwnerState,
    topic: str,
    partition: int,
    log_dir: str | None = None,
    config: Row | None = None,
    is_new: bool = False,
    exist_ok: bool = False,
) -> Row:
    """Create a partition and return its log dir."""
    settings = None if config is None else LogConfig(**config)
    existed = (topic, partition) in state.replicas
    log = partition_changes.create(
        state,
        topic,
        partition,
        log_dir=log_dir,
        config=settings,
        is_new=is_new,
        exist_ok=exist_ok,
    )
    row: Row = {"topic": topic, "partition": partition, "log_dir": log.log_dir}
    return row | {"existed": True} if existed else row


def create_topic(
    state: OwnerState,
    topic: str,
    partitions: int,
    config: Row | None = None,
    exist_ok: bool = False,
) -> Row:
    """Create partitions 0 to `partitions` - 1 of a topic, and return the log dir of each."""
    settings = None if config is None else LogConfig(**config)
    known = {key.partition for key in state.replicas.names() if key.topic == topic}
    logs = partition_changes.create_topic(
        state, topic, partitions, config=settings, exist_ok=exist_ok
    )
    rows: list[Row] = []
    for log in logs:
        row: Row = {"topic": topic, "partition": log.partition, "log_dir": log.log_dir}
        rows.append(row | {"existed": True} if log.partition in known else row)
    return {"partitions": rows}


def set_config(state: OwnerState, topic: str, partition: int, changes: Row) -> Row:
    """Change the configuration of a partition; return the old and the new configuration."""
    old = state.replicas.lookup(topic, partition).log.config
    new = partition_changes.set_config(state, topic, partition, changes)
    return {"topic": topic, "partition": partition, "old": old.to_dict(), "new": new.to_dict()}


def delete(state: OwnerState, topic: str, partition: int) -> Row:
    """Delete a partition."""
    partition_changes.delete(state, topic, partition)
    return {"topic": topic, "partition": partition}


def repair(state: OwnerState, topic: str, partition: int) -> Row:
    """Repair a partition and return the report of the repair."""
    report = partition_changes.repair(state, topic, partition)
    return {
        "topic": topic,
        "partition": partition,
        "quarantined": report.quarantined,
        "lost": [[offsets.start, offsets.stop] for offsets in report.lost],
        "mended": report.mended,
    }


def compact(state: OwnerState, topic: str, partition: int) -> Row:
    """Compact a partition now and return the result of the compaction."""
    return state.replicas.lookup(topic, partition).log.compact()._asdict()


def add_dir(state: OwnerState, path: str, format_new: bool = True) -> Row:
    """Add a log dir to the store."""
    return {"path": path, "report": str(dir_changes.add(state, path, format_new=format_new))}


def reopen_dir(
    state: OwnerState, path: str, format_new: bool = False, may_lose: bool = False
) -> Row:
    """Bring an offline log dir back; return the replicas that a new, empty disk has lost."""
    report = dir_changes.reopen(state, path, format_new=format_new, may_lose=may_lose)
    return {"path": path, "report": str(report), "lost": [list(key) for key in report.lost]}


def take_offline(state: OwnerState, path: str) -> Row:
    """Flush a log dir and take it offline."""
    dir_changes.take_offline(state, path)
    return {"path": path}


def remove_dir(state: OwnerState, path: str, lost: bool = False, may_lose: bool = False) -> Row:
    """Remove a log dir from the store, and return the replicas that are lost with it."""
    gone = dir_changes.remove(state, path, lost=lost, may_lose=may_lose)
    return {"path": path, "lost": [list(key) for key in gone]}


def cordon(state: OwnerState, path: str) -> Row:
    """Stop placing new replicas on a log dir."""
    dir_changes.cordon(state, path, True)
    return {"path": path}


def uncordon(state: OwnerState, path: str) -> Row:
    """Allow new replicas on a log dir again."""
    dir_changes.cordon(state, path, False)
    return {"path": path}


def prefer_dir(state: OwnerState, topic: str, partition: int, path: str | None) -> Row:
    """Choose the log dir for a partition that is created later, or withdraw this choice."""
    dir_changes.prefer(state, topic, partition, path)
    return {"topic": topic, "partition": partition, "path": path}


def promote(state: OwnerState, topic: str, partition: int) -> Row:
    """Accept an incomplete replica as complete; return whether it was incomplete."""
    was_incomplete = partition_changes.promote(state, topic, partition)
    return {"topic": topic, "partition": partition, "was_incomplete": was_incomplete}


QUICK: tuple[Callable[..., Row], ...] = (ping, describe_dirs, metrics)
SLOW: tuple[Callable[..., Row], ...] = (
    create, delete, repair, add_dir, reopen_dir, take_offline, remove_dir, cordon, uncordon,
    prefer_dir, promote, set_config, create_topic, compact,
)  # fmt: skip


def register_all(admin: Admin, state: OwnerState, store: object) -> None:
    """Register the commands of a store.

    Args:
        store: the `LogStore`, which the commands of other packages need.
    """
    for function in (*QUICK, *SLOW):
        admin.register(
            function.__name__, partial(_call, function, state), is_quick=function in QUICK
        )
    for prefix, module in ELSEWHERE.items():
        admin.register_elsewhere(prefix, partial(_load, module, store))


def _load(module: str, store: object) -> None:
    importlib.import_module(module).commands_of(store)


def _call(
    function: Callable[..., Row], state: OwnerState, arguments: Arguments, request: Request
) -> Row:
    if function is not ping:  # `ping` works even while the store is being closed
        state.check()
    return function(state, **arguments)
