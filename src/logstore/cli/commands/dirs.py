"""Implement the commands about log dirs: `format`, `dirs`, `log-dirs`."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    store_as_owner,
    store_for_reading,
)
from logstore.cli.output import (
    Column,
    Row,
    bar,
    count_text,
    optional_text,
    print_facts,
    print_rows,
    size_text,
)
from logstore.cli.owner import ANSWER_SECONDS_MAX, refuse_beside_owner
from logstore.store.admin.client import find_owner
from logstore.store.start.identity import resolve
from logstore.store.start.open_dirs import PATIENCE_SECONDS, look

DIR_COLUMNS = [
    Column("path", "log dir"),
    Column("state", "state"),
    Column("replicas", "replicas", count_text, is_number=True),
    Column("log_bytes", "logs", size_text, is_number=True),
    Column("used_bytes", "used", size_text, is_number=True),
    Column("usable_bytes", "free", size_text, is_number=True),
    Column("bar", "disk"),
]
REASON_COLUMN = Column("reason", "reason", optional_text)


@click.command("format", short_help="Write the identity of new log dirs.")
@log_dirs_option
@format_option()
def format_dirs(log_dirs: tuple[str, ...], output_format: str) -> None:
    """Write the identity of new log dirs.

    Directories that do not exist are created. If a log dir already belongs to this store, it is not
    changed. A log dir that was removed from the store becomes part of the store again. The command
    refuses a dir, with exit code 1, if the dir belongs to another store, or if its disk does not
    work. If the store is completely new, the command `create` also formats its log dirs. But
    `create` does not accept an empty directory at the path of a known log dir; `format` accepts it.
    The command asks no question, because it deletes nothing: other files stay, and a missing log
    dir still counts as missing.

    \b
    Example:
      logstore format --log-dirs /disk1/logs,/disk2/logs
    """
    refuse_beside_owner(log_dirs, "add a new log dir with `logstore add-dir`")
    named = resolve(named_log_dirs(log_dirs), PATIENCE_SECONDS)
    before = {fact.path: fact.meta for fact in look(named, PATIENCE_SECONDS)}
    with store_as_owner(log_dirs, format_new=True) as store:
        entries = store.describe_dirs().log_dirs
    metas = sorted((meta for meta in before.values() if meta), key=lambda meta: meta.roster_epoch)
    rosters = {meta.cluster_id: meta.roster for meta in metas}  # the newest roster of each store
    outcomes = ("formatted", "taken_back", "refused", "left_as_it_is")
    facts: Row = {name: [] for name in ("log_dirs", *outcomes)}
    sentences = []
    for path, _, error, *_, directory_id in entries:
        outcome = "taken_back" if before[path] else "formatted"
        if error is not None:
            outcome = "refused"
        elif any(directory_id in roster for roster in rosters.values()):
            outcome = "left_as_it_is"
        facts["log_dirs"].append(path)
        facts[outcome].append(path)
        reason = f": {error}" if error is not None else ""
        sentences.append(f"{outcome.replace('_', ' ')}: {path}{reason}")
    print_facts(facts, output_format, "\n".join(sentences))
    click.get_current_context().exit(1 if facts["refused"] else 0)


@click.command(short_help="Show each log dir: state, replicas, space.")
@log_dirs_option
@format_option()
@click.pass_context
def dirs(ctx: click.Context, log_dirs: tuple[str, ...], output_format: str) -> None:
    """Show each log dir: state, replicas, space.

    The bar shows the whole disk: logs are solid, other files are hatched, free space is light. The
    exit code is 1 if a log dir is offline.

    \b
    Examples:
      logstore dirs --log-dirs /disk1/logs,/disk2/logs
      logstore dirs --format json | jq '.[] | select(.state != "online")'
    """
    rows = [dir_row(entry, output_format) for entry in description(log_dirs)["log_dirs"]]
    has_reason = any(row["reason"] for row in rows)
    print_rows(rows, [*DIR_COLUMNS, REASON_COLUMN] if has_reason else DIR_COLUMNS, output_format)
    ctx.exit(1 if any(row["state"] == "offline" for row in rows) else 0)


def description(
    log_dirs: tuple[str, ...], only: tuple[str, ...] = (), topics: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Describe the store: ask its owner, or read the store's files if no owner can be asked."""
    wanted = [path if os.path.isabs(path) else os.path.abspath(path) for path in only]
    owner = find_owner(named_log_dirs(log_dirs))
    if owner is not None:
        answer = owner.call(
            "describe_dirs", {"log_dirs": wanted, "topics": topics}, timeout=ANSWER_SECONDS_MAX
        )
        return dict(answer)
    with store_for_reading(log_dirs, is_overview=True) as store:
        return store.describe_dirs(log_dirs=wanted, topics=topics).to_dict()


def dir_row(entry: dict[str, Any], output_format: str) -> Row:
    """Build the row of one log dir."""
    log_bytes: int = sum(each["size"] for each in entry["partitions"])
    total, usable = entry["total_bytes"], entry["usable_bytes"]
    is_known = entry["is_live"] and total > 0
    # Whether the replicas in the log dir are known.
    is_seen = entry["is_live"] or bool(entry["partitions"])
    row: Row = {
        "path": entry["path"],
        "state": entry["state"],
        "replicas": len(entry["partitions"]) if is_seen else None,
        "log_bytes": log_bytes if is_seen else None,
        "used_bytes": total - usable if is_known else None,
        "usable_bytes": usable if is_known else None,
        "total_bytes": total if is_known else None,
        "reason": entry["reason"],
        "since_ms": entry["since_ms"],
        "error": entry["error"],
    }
    if output_format == "table":
        row["bar"] = disk_bar(log_bytes, total, usable) if is_known else "?"
    return row


def disk_bar(log_bytes: int, total_bytes: int, usable_bytes: int) -> str:
    """Draw a disk as a bar of logs, other files and free space, with the percentage in use."""
    used = (total_bytes - usable_bytes) / total_bytes
    logs = min(log_bytes / total_bytes, used)
    return f"{bar(logs, used - logs)} {used:4.0%}"


@click.command("log-dirs", short_help="Describe the log dirs as KIP-113's JSON.")
@log_dirs_option
@click.option("--describe", is_flag=True, help="Describe the log dirs (the only action).")
@click.option(
    "--topics", "--topic-list", default="", metavar="TOPIC[,TOPIC...]", help="Only these topics."
)
@click.option("--only", multiple=True, metavar="DIR", help="Only this log dir; can be repeated.")
def log_dirs(log_dirs: tuple[str, ...], describe: bool, topics: str, only: tuple[str, ...]) -> None:
    """Print the log dirs and their replicas on one line, in the JSON format of KIP-113.

    Only JSON is printed, so that a program can read the output. In addition to the fields of the
    KIP, each log dir has its state, and the total and the usable bytes of its disk.

    \b
    Example:
      logstore log-dirs --describe --topics orders | jq .
    """
    if not describe:
        raise click.UsageError("give --describe", click.get_current_context())
    names = tuple(name.strip() for name in topics.split(",") if name.strip())
    click.echo(json.dumps(description(log_dirs, only, names)))


COMMANDS: list[click.Command] = [format_dirs, dirs, log_dirs]
