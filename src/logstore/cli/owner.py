"""Reach whoever operates a store: the process that owns it, or else this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

from logstore.cli.options import named_log_dirs, store_as_owner
from logstore.store.admin_client import AdminClient, find_owner


class Operator(Protocol):
    """Whoever runs commands on a store: its owner through the socket, or a store opened here."""

    def call(
        self,
        command: str,
        arguments: dict[str, Any] | None = None,
        progress: Callable[[Any], object] | None = None,
    ) -> Any:
        """Run a command and give its result."""


@contextmanager
def administered(log_dirs: tuple[str, ...], *, must_exist: bool = True) -> Iterator[Operator]:
    """Give the owner of a store, or open the store here when nobody has it open.

    Raises:
        LogDirLockedError: a process owns it, and serves no admin socket.
    """
    owner = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        yield owner
        return
    with store_as_owner(log_dirs, must_exist=must_exist) as store:
        yield store.admin


def refuse_beside_owner(log_dirs: tuple[str, ...], advice: str) -> None:
    """End the command with a line when a process has the store open."""
    owner: AdminClient | None = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        raise click.ClickException(f"process {owner.pid} has the store open; {advice}")


def absolute(path: str | None) -> str | None:
    """Make a path one that the owner, who stands in another directory, understands."""
    return None if path is None else os.path.abspath(path)
