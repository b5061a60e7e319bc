"""Move replicas through the process that has the store open (its owner), or in this process.

If this process opens the store, Ctrl-C pauses the running moves, and the next mover resumes them.
If an owner has the store open, Ctrl-C only ends the display, and the moves continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from logstore.cli.interrupts import held
from logstore.cli.options import named_log_dirs, note, store_as_owner, wrong_usage
from logstore.cli.output import Row
from logstore.store.admin.client import AdminClient, find_owner
from mover.cli.live import live_view

EXIT_PROBLEM = 1


class Caller:
    """Run commands of the mover, and show their progress."""

    def __init__(self, admin: Any, owner: AdminClient | None) -> None:
        self.admin = admin
        self.owner = owner

    def call(self, command: str, **arguments: Any) -> Row:
        """Run the command `move.<command>`; report a wrong argument as wrong usage."""
        with wrong_usage(), live_view() as show:
            answer: Row = self.admin.call(f"move.{command}", arguments, show)
        return answer


@contextmanager
def moves_of(log_dirs: tuple[str, ...]) -> Iterator[Caller]:
    """Yield a `Caller`; if no other process has the store open, open the store in this process."""
    import mover.errors  # noqa: F401 - registers the classes of the errors that an owner sends

    owner = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        try:
            yield Caller(owner, owner)
        except KeyboardInterrupt:
            note(f"process {owner.pid} continues the moves: see `logstore move status` or `cancel`")
            raise
        return
    with (
        held() as interrupts,
        store_as_owner(log_dirs, must_exist=True, interrupts=interrupts) as s,
    ):
        try:
            with interrupts.allowed():
                yield Caller(s.admin, None)
        except KeyboardInterrupt:
            note("the copies are kept: continue with `logstore move resume`, or cancel the moves")
            raise


def text_of(file: IO[str]) -> str:
    """Read a document; if the document is not text, report wrong usage."""
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not text in UTF-8: {error}") from None


def exit_code_of(facts: Row) -> int:
    """Return the exit code: 0 if all moves are done or planned, 1 otherwise.

    If a log dir stays far from its share, this does not count as a failure.
    """
    is_left_out = any(
        one["topic"] is not None and not one["is_unasked"] for one in facts.get("skipped", ())
    )
    has_failed = any(row["state"] != "done" for row in facts.get("moves", ()))
    return EXIT_PROBLEM if is_left_out or has_failed else 0


def finish(code: int) -> None:
    """End the command with an exit code; if the code is 0, just return."""
    if code:
        click.get_current_context().exit(code)
