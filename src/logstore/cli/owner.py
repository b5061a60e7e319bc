"""Find the process that runs the commands on a store: the store's owner, or this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import click

from logstore.cli.options import named_log_dirs, store_as_owner
from logstore.errors import LogDirOfflineError, LogStoreError
from logstore.names import TopicPartition
from logstore.store.admin.client import AdminClient, find_owner

ANSWER_SECONDS_MAX = 30.0


class Operator(Protocol):
    """Run commands on a store, through its owner's socket or in this process."""

    def call(
        self,
        command: str,
        arguments: dict[str, Any] | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Run a command and return its result."""


@contextmanager
def administered(
    log_dirs: tuple[str, ...], *, must_exist: bool = True, is_told: bool = True
) -> Iterator[Operator]:
    """Yield the owner of a store; if the store has no owner, open the store in this process.

    Args:
        must_exist: see `store_as_owner`.
        is_told: see `store_as_owner`.

    Raises:
        LogDirLockedError: a process owns the store, but serves no admin socket.
    """
    owner = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        yield owner
        return
    with store_as_owner(log_dirs, must_exist=must_exist, is_told=is_told) as store:
        yield store.admin


def refuse_beside_owner(log_dirs: tuple[str, ...], advice: str) -> None:
    """End the command with an error if a process has the store open."""
    owner: AdminClient | None = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        raise click.ClickException(f"process {owner.pid} has the store open; {advice}")


def absolute(path: str | None) -> str | None:
    """Make a path absolute, because the owner may have another working directory."""
    return None if path is None else os.path.abspath(path)


def offline_with_owner(log_dirs: tuple[str, ...]) -> dict[TopicPartition, LogDirOfflineError]:
    """Return the partitions on the log dirs that the owner of the store has taken offline.

    A process that only reads the store's files may overlook that a partition is offline. For
    example, the failed disk may be readable again, or the disk may have failed before the other log
    dirs recorded its partitions.
    """
    owner = find_owner(named_log_dirs(log_dirs))
    found: dict[TopicPartition, LogDirOfflineError] = {}
    if owner is None:
        return found
    with suppress(LogStoreError):  # if the owner ended or hangs, only the files can be used
        answer = owner.call("describe_dirs", {}, timeout=ANSWER_SECONDS_MAX)
        for entry in answer["log_dirs"]:
            if not entry["is_live"]:
                error = LogDirOfflineError(path=entry["path"], reason=entry["reason"])
                for each in entry["partitions"]:
                    if not each["is_temporary"]:
                        found[TopicPartition(each["topic"], each["partition"])] = error
    return found
