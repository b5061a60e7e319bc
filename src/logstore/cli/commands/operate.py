"""Implement the commands that operate log dirs: cordon, offline, reopen, add, remove, metrics.

If the store has an owner, the commands run in the owner, through its admin socket. If the store has
no owner, this process opens the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    note,
    one_partition,
    partition_arguments,
    store_for_reading,
    tell_offline_dirs,
    wrong_usage,
)
from logstore.cli.output import Column, Row, count_text, print_facts, print_rows, size_text
from logstore.cli.owner import absolute, administered
from logstore.disk.documents.meta_properties import is_id
from logstore.errors import LogDirError
from logstore.store.admin.client import AdminClient, find_owner
from logstore.units import format_count


def is_at_a_terminal() -> bool:
    """Report whether the command can ask a person at a terminal."""
    return sys.stdin.isatty()


def _seconds_text(seconds: Any) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


METRIC_COLUMNS = [
    Column("path", "log dir"),
    Column("state", "state"),
    Column("partition_count", "replicas", count_text, is_number=True),
    Column("size_bytes", "logs", size_text, is_number=True),
    Column("usable_bytes", "free", size_text, is_number=True),
    Column("longest_call_seconds", "oldest call", _seconds_text, is_number=True),
    Column("flush_count", "flushes", count_text, is_number=True),
    Column("flush_seconds", "flush time", _seconds_text, is_number=True),
    Column("scrubbed_bytes", "scrubbed", size_text, is_number=True),
    Column("corrupt_batches", "corrupt", count_text, is_number=True),
    Column("uncompacted_logs", "uncompacted", count_text, is_number=True),
]


Outcome = TypeVar("Outcome")


def unless_it_loses(path: str, yes: bool, run: Callable[[bool, bool], Outcome]) -> Outcome:
    """Run a command; if the command would give up replicas, first list them and ask the user.

    Args:
        path: the log dir that is given up, as the user named it.
        yes: whether to run the command without a question.
        run: a function that runs the command. The function's first argument says whether the
            command may lose replicas, and its second argument whether this is the first run.

    Raises:
        LogDirError: there is no terminal at which to ask; nothing was changed.
        click.ClickException: the answer was no; nothing was changed.
    """
    try:
        return run(yes, True)
    except LogDirError as error:
        lost = error.facts.get("lost")
        if lost is None or not is_at_a_terminal():
            raise
    for topic, partition in lost:
        note(f"  would be lost: {topic}-{partition}")
    what = format_count(len(lost), "replica") if lost else "all replicas (their number is unknown)"
    if not click.confirm(f"Give up {what} of {path}?", err=True):
        raise click.ClickException(
            "nothing was changed (--yes gives up replicas without a question)"
        )
    return run(True, False)


def operate(
    log_dirs: tuple[str, ...],
    command: str,
    arguments: dict[str, Any],
    output_format: str,
    *,
    is_told: bool = True,
) -> None:
    """Run one command on a log dir, then print the state of the log dir."""
    with administered(log_dirs, is_told=is_told) as operator, wrong_usage():
        row: Row = operator.call(command, arguments)
        (entry,) = operator.call("describe_dirs", {"log_dirs": [row["path"]]})["log_dirs"]
        if command == "take_offline" and not isinstance(operator, AdminClient):
            note(
                "no process has the store open: the next start uses the disk that is mounted at "
                "that time"
            )
    row |= {key: entry[key] for key in ("state", "reason", "since_ms", "directory_id")}
    reason = f": {row['reason']}" if row["reason"] else ""
    sentence = f"{row['path']} is {row['state']}{reason}"
    print_facts(row, output_format, "\n".join([*row.get("report", "").splitlines(), sentence]))


def dir_command(name: str, summary: str, explanation: str) -> click.Command:
    """Create the command `name`, which runs the operation of that name on one DIR."""

    def run(path: str, log_dirs: tuple[str, ...], output_format: str) -> None:
        operate(log_dirs, name.replace("-", "_"), {"path": absolute(path)}, output_format)

    example = f"\b\nExample:\n  logstore {name} /disk2/logs"
    run.__doc__ = f"{summary}\n\n{explanation}\n\n{example}"
    decorated = click.argument("path", metavar="DIR")(log_dirs_option(format_option()(run)))
    return click.command(name, short_help=summary)(decorated)


cordon = dir_command(
    "cordon",
    "Place no new replicas on a log dir.",
    "Its replicas are still served. The log dir stays cordoned, also after a restart, until "
    "`uncordon`.",
)
uncordon = dir_command("uncordon", "Allow new replicas on a log dir again.", "Undoes `cordon`.")
take_offline = dir_command(
    "take-offline",
    "Stop using a log dir, to unmount or replace its disk.",
    "Its replicas raise LogDirOfflineError, and its files are closed. `reopen` ends this state.",
)


@click.command(short_help="Use a log dir again.")
@click.argument("path", metavar="DIR")
@log_dirs_option
@format_option()
@click.option("--format-new", is_flag=True, help="Accept an empty disk that replaces the old one.")
@click.option("--yes", is_flag=True, help="Give up the old disk's replicas without asking.")
def reopen(
    path: str, log_dirs: tuple[str, ...], output_format: str, format_new: bool, yes: bool
) -> None:
    """Use a log dir again: check its identity, lock it, probe it, and recover its logs.

    With --format-new, an empty disk takes the place of the old disk. If the command would lose
    replicas, it first lists them and asks you. If you say no, or if there is no terminal, nothing
    is changed and the exit code is 1. With --yes the command does not ask.

    \b
    Examples:
      logstore reopen /disk2/logs
      logstore reopen /disk2/logs --format-new
    """
    arguments = {"path": absolute(path), "format_new": format_new}

    def run(may_lose: bool, is_first: bool) -> None:
        asked = {**arguments, "may_lose": may_lose}
        operate(log_dirs, "reopen_dir", asked, output_format, is_told=is_first)

    unless_it_loses(path, yes, run)


@click.command("add-dir", short_help="Add a log dir to the store.")
@click.argument("path", metavar="DIR")
@log_dirs_option
@format_option()
def add_dir(path: str, log_dirs: tuple[str, ...], output_format: str) -> None:
    """Add a log dir to the store; from the next start on, name the log dir in --log-dirs.

    \b
    Example:
      logstore add-dir /disk3/logs
    """
    operate(log_dirs, "add_dir", {"path": absolute(path)}, output_format)


@click.command("remove-dir", short_help="Remove a log dir from the store.")
@click.argument("path", metavar="DIR|ID")
@log_dirs_option
@format_option()
@click.option("--lost", is_flag=True, help="The disk is dead: give up its replicas.")
@click.option("--yes", is_flag=True, help="Give up replicas without asking.")
def remove_dir(
    path: str, log_dirs: tuple[str, ...], output_format: str, lost: bool, yes: bool
) -> None:
    """Remove a log dir from the store.

    The command refuses a log dir that has replicas: move the replicas first. With --lost, the disk
    is given up: the command lists the replicas that were on the disk, and asks you. If you say no,
    or if there is no terminal, nothing is changed and the exit code is 1. With --yes the command
    does not ask. If the log dir is missing, give its last path, or its id.

    \b
    Examples:
      logstore remove-dir /disk2/logs --lost
      logstore remove-dir 0123456789abcdef0123456789abcdef --lost --yes
    """
    name = path if is_id(path) else absolute(path)

    def run(may_lose: bool, is_first: bool) -> Row:
        arguments = {"path": name, "lost": lost, "may_lose": may_lose}
        with administered(log_dirs, is_told=is_first) as operator, wrong_usage():
            row: Row = operator.call("remove_dir", arguments)
        return row

    row = unless_it_loses(path, yes, run)
    sentences = [f"{row['path']} is no longer a log dir of this store"]
    sentences += [f"  lost: {topic}-{partition}" for topic, partition in row["lost"]]
    if lost and not is_id(path):
        sentences.append(f"now remove {row['path']} from your configuration (--log-dirs)")
    print_facts(row, output_format, "\n".join(sentences))


@click.command(short_help="Serve an incomplete replica in its present state.")
@partition_arguments
@log_dirs_option
@format_option()
def promote(
    topic: str, partition: int | None, log_dirs: tuple[str, ...], output_format: str
) -> None:
    """Accept an incomplete replica as the live replica; the records that it lacks are lost.

    A replica is incomplete if its complete copy is lost (for example, with its disk), and only the
    part that a move had copied remains. Until the replica is promoted, it can be read but not
    written.

    \b
    Example:
      logstore promote orders 0
    """
    with store_for_reading(log_dirs) as view:
        name = one_partition(view, topic, partition)
    with administered(log_dirs) as operator:
        row: Row = operator.call("promote", {"topic": name.topic, "partition": name.partition})
    done = "is live, with the records that it has"
    told = done if row["was_incomplete"] else "was already complete: nothing to do"
    print_facts(row, output_format, f"{name} {told}")


@click.command("prefer-dir", short_help="Choose the log dir of a future partition.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("path", metavar="DIR")
@log_dirs_option
@format_option()
def prefer_dir(
    topic: str, partition: int, path: str, log_dirs: tuple[str, ...], output_format: str
) -> None:
    """Choose the log dir in which a partition that does not exist yet will be created (KIP-113).

    \b
    Example:
      logstore prefer-dir orders 7 /disk2/logs
    """
    arguments = {"topic": topic, "partition": partition, "path": absolute(path)}
    with administered(log_dirs) as operator, wrong_usage():
        row: Row = operator.call("prefer_dir", arguments)
    print_facts(row, output_format, f"{topic}-{partition} will be created on {row['path']}")


def gauges_of(log_dirs: tuple[str, ...]) -> dict[str, Any]:
    """Ask the store's owner for the gauges; if there is no owner, read them from the files."""
    owner = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        return dict(owner.call("metrics"))
    with store_for_reading(log_dirs, is_overview=True) as view:
        tell_offline_dirs(view)
        return view.metrics().to_dict()


@click.command(short_help="Show the gauges.")
@log_dirs_option
@format_option(("table", "json"))
def metrics(log_dirs: tuple[str, ...], output_format: str) -> None:
    """Show the gauges: offline log dirs and replicas, and the activity of each log dir.

    For each log dir, the command shows its state, its bytes, and the age of the oldest call that
    still runs on its disk. The command also shows the number of flushes and their seconds, the
    scrubbed bytes, and the corrupt batches that the scrubber found. Only the process that owns the
    store has all of the figures. If the store has no owner, only states and bytes are shown.

    \b
    Example:
      logstore metrics --format json
    """
    gauges = gauges_of(log_dirs)
    if output_format == "json":
        print_facts(gauges, output_format, "")
        return
    for name, value in gauges.items():
        if name != "log_dirs":
            click.echo(f"{name} {value}")
    for row in gauges["log_dirs"]:
        # If a log dir is offline and lists no replica, its contents are unknown.
        if row["state"] == "offline" and not row["partition_count"]:
            row.update(dict.fromkeys(row.keys() - {"path", "state"}))
    print_rows(gauges["log_dirs"], METRIC_COLUMNS, output_format)


COMMANDS: list[click.Command] = [
    cordon,
    uncordon,
    take_offline,
    reopen,
    add_dir,
    remove_dir,
    promote,
    prefer_dir,
    metrics,
]
