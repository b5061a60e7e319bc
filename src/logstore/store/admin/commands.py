"""Define the commands that every store has: its methods, with JSON's types.

A request's keys, other than the command's name, are the arguments of the function; an unknown key
is a TypeError.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.config import LogConfig

if TYPE_CHECKING:
    from logstore.store.admin.admin import Admin, Arguments, Request
    from logstore.store.partitions import StorePartitions

Row = dict[str, Any]

# Commands of other packages, by the module that registers them when one is first requested.
ELSEWHERE = {"move.": "mover.registration"}


def ping(store: StorePartitions) -> Row:
    """Give the identity of the process that answers."""
    return {"pid": os.getpid(), "log_dirs": list(store.log_dirs)}


def describe_dirs(
    store: StorePartitions, log_dirs: Sequence[str] = (), topics: Sequence[str] = ()
) -> Row:
    """Give KIP-113's document."""
    return store.describe_dirs(log_dirs, topics).to_dict()


def metrics(store: StorePartitions) -> Row:
    """Give the gauges."""
    return store.metrics().to_dict()


def create(
    store: StorePartitions,
    topic: str,
    partition: int,
    log_dir: str | None = None,
    config: Row | None = None,
    is_new: bool = False,
    exist_ok: bool = False,
) -> Row:
    """Create a partition and say where it is."""
    settings = None if config is None else LogConfig(**config)
    existed = (topic, partition) in store
    log = store.create(
        topic, partition, log_dir=log_dir, config=settings, is_new=is_new, exist_ok=exist_ok
    )
    row: Row = {"topic": topic, "partition": partition, "log_dir": log.log_dir}
    return row | {"existed": True} if existed else row


def create_topic(
    store: StorePartitions,
    topic: str,
    partitions: int,
    config: Row | None = None,
    exist_ok: bool = False,
) -> Row:
    """Create partitions 0 to `partitions` - 1 of a topic and say where they are."""
    settings = None if config is None else LogConfig(**config)
    known = {key.partition for key in store if key.topic == topic}
    logs = store.create_topic(topic, partitions, config=settings, exist_ok=exist_ok)
    rows: list[Row] = []
    for log in logs:
        row: Row = {"topic": topic, "partition": log.partition, "log_dir": log.log_dir}
        rows.append(row | {"existed": True} if log.partition in known else row)
    return {"partitions": rows}


def set_config(store: StorePartitions, topic: str, partition: int, changes: Row) -> Row:
    """Change the configuration of a partition and give the old one and the new one."""
    old = store.log(topic, partition).config
    new = store.set_config(topic, partition, changes)
    return {"topic": topic, "partition": partition, "old": old.to_dict(), "new": new.to_dict()}


def delete(store: StorePartitions, topic: str, partition: int) -> Row:
    """Delete a partition."""
    store.delete(topic, partition)
    return {"topic": topic, "partition": partition}


def repair(store: StorePartitions, topic: str, partition: int) -> Row:
    """Repair a partition and say what was taken out of it."""
    report = store.repair(topic, partition)
    return {
        "topic": topic,
        "partition": partition,
        "quarantined": report.quarantined,
        "lost": [[offsets.start, offsets.stop] for offsets in report.lost],
        "mended": report.mended,
    }


def add_dir(store: StorePartitions, path: str, format_new: bool = True) -> Row:
    """Take a further log dir into the store."""
    return {"path": path, "report": str(store.add_dir(path, format_new=format_new))}


def reopen_dir(
    store: StorePartitions, path: str, format_new: bool = False, may_lose: bool = False
) -> Row:
    """Bring an offline log dir back; name the replicas that are lost if its disk was replaced."""
    report = store._reopen_dir(path, format_new=format_new, may_lose=may_lose)
    return {"path": path, "report": str(report), "lost": [list(key) for key in report.lost]}


def take_offline(store: StorePartitions, path: str) -> Row:
    """Flush a log dir and release it."""
    store.take_offline(path)
    return {"path": path}


def remove_dir(
    store: StorePartitions, path: str, lost: bool = False, may_lose: bool = False
) -> Row:
    """Take a log dir out of the store and name the replicas that are lost with it."""
    gone = store._remove_dir(path, lost=lost, may_lose=may_lose)
    return {"path": path, "lost": [list(key) for key in gone]}


def cordon(store: StorePartitions, path: str) -> Row:
    """Place no new replicas on a log dir."""
    store.cordon(path)
    return {"path": path}


def uncordon(store: StorePartitions, path: str) -> Row:
    """Allow new replicas on a log dir again."""
    store.uncordon(path)
    return {"path": path}


def prefer_dir(store: StorePartitions, topic: str, partition: int, path: str | None) -> Row:
    """Remember where a partition is to be created, or withdraw that."""
    store.prefer_dir(topic, partition, path)
    return {"topic": topic, "partition": partition, "path": path}


def promote(store: StorePartitions, topic: str, partition: int) -> Row:
    """Make an incomplete replica the live one, and say whether it was incomplete."""
    was_incomplete = store.promote(topic, partition)
    return {"topic": topic, "partition": partition, "was_incomplete": was_incomplete}


QUICK: tuple[Callable[..., Row], ...] = (ping, describe_dirs, metrics)
SLOW: tuple[Callable[..., Row], ...] = (
    create, delete, repair, add_dir, reopen_dir, take_offline, remove_dir, cordon, uncordon,
    prefer_dir, promote, set_config, create_topic,
)  # fmt: skip


def register_all(admin: Admin, store: StorePartitions) -> None:
    """Give a store its commands."""
    for function in (*QUICK, *SLOW):
        admin.register(
            function.__name__, partial(_call, function, store), is_quick=function in QUICK
        )
    for prefix, module in ELSEWHERE.items():
        admin.register_elsewhere(prefix, partial(_load, module, store))


def _load(module: str, store: StorePartitions) -> None:
    importlib.import_module(module).commands_of(store)


def _call(
    function: Callable[..., Row], store: StorePartitions, arguments: Arguments, request: Request
) -> Row:
    return function(store, **arguments)
