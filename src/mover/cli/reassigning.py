"""Implement the command `logstore reassign`, modelled on kafka-reassign-partitions."""

from __future__ import annotations

from typing import IO, Any

import click

from logstore import LogStore, TopicPartition
from logstore.cli.options import (
    format_option,
    log_dirs_option,
    note,
    store_for_reading,
    wrong_usage,
)
from logstore.cli.output import Column, Row, optional_text, print_rows
from logstore.disk import files
from logstore.errors import LogStoreError, UnknownPartitionError
from logstore.store.creation import wished_dir
from mover.cli.live import name_of
from mover.cli.moving import THROTTLE_HELP
from mover.cli.operating import EXIT_PROBLEM, exit_code_of, finish, moves_of, text_of
from mover.cli.rates import checked_rate
from mover.cli.tables import print_outcome, print_plan
from mover.planning.plan import MovePlan

VERIFY_COLUMNS = [
    Column("name", "partition"),
    Column("wanted", "wanted", optional_text),
    Column("log_dir", "is in", optional_text),
    Column("state", "state"),
]


@click.command(short_help="Run, check or cancel the moves of a reassignment file.")
@log_dirs_option
@click.argument("file", type=click.File("r"))
@click.option("--execute", is_flag=True, help="Move the replicas and show progress.")
@click.option("--verify", is_flag=True, help="Show which replicas have arrived.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of this file.")
@click.option(
    "--throttle", callback=checked_rate, metavar="RATE", help=f"{THROTTLE_HELP} With --execute."
)
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="With --execute: show what would be moved, but move nothing.",
)
@format_option()
def reassign(
    log_dirs: tuple[str, ...],
    file: IO[str],
    throttle: str | None,
    is_dry: bool,
    output_format: str,
    **actions: bool,
) -> None:
    """Run, check or cancel the moves in FILE, which has kafka-reassign-partitions' JSON format.

    Only entries with this store's broker id are used. The log dir "any" requests no move. If a
    partition does not exist yet, the store remembers the log dir in which to create the partition.

    Before it moves a replica, --execute prints the present log dirs in the same JSON. To move the
    replicas back, execute the printed JSON. The exit code of --verify is 1 while a replica has not
    arrived or is not created. --verify leaves every throttle unchanged. --cancel cancels the
    running moves, and withdraws the log dirs that were chosen for new partitions.

    \b
    Examples:
      logstore reassign --execute plan.json --throttle 50MB/s
      logstore reassign --verify plan.json
      logstore reassign --cancel plan.json
    """
    asked = [f"--{name}" for name, is_asked in actions.items() if is_asked]
    if len(asked) != 1:
        instead = f", not {' and '.join(asked)}" if asked else ""
        raise click.UsageError(f"give one of --execute, --verify and --cancel{instead}")
    if not actions["execute"] and (is_dry or throttle is not None):
        raise click.UsageError(
            f"--dry-run and --throttle can be used only with --execute, not with {asked[0]}"
        )
    text = text_of(file)
    if actions["verify"]:
        verify(log_dirs, text, output_format)
    elif actions["cancel"]:
        cancel(log_dirs, text, output_format)
    else:
        execute(log_dirs, text, throttle, is_dry, output_format)


def execute(
    log_dirs: tuple[str, ...],
    text: str,
    throttle: str | None,
    is_dry: bool,
    output_format: str,
) -> None:
    """Run the moves of a reassignment."""
    with moves_of(log_dirs) as caller:
        made = caller.call("run", reassignment=text, is_dry=True)
        if is_dry:
            print_plan(made, output_format)
            finish(exit_code_of(made))
            return
        note("current replica assignment, to which you can return:")
        note(current_assignment(made))
        facts = caller.call("run", reassignment=text, throttle=throttle)
    print_outcome(facts, output_format)
    finish(exit_code_of(facts))


def current_assignment(made: Row) -> str:
    """Write the present log dirs of a plan's replicas as JSON."""
    import json

    document = json.loads(made["reassignment"])
    for entry, move in zip(document["partitions"], made["planned"], strict=True):
        entry["log_dirs"] = [move["source"]]
    return json.dumps(document)


def verify(log_dirs: tuple[str, ...], text: str, output_format: str) -> None:
    """Report for each replica whether it is in the wanted log dir; change nothing."""
    with store_for_reading(log_dirs) as store, wrong_usage():
        plan = MovePlan.from_json(text, broker_id=store.broker_id)
        rows = [verified(store, *move[:3]) for move in plan.moves]
    rows += [
        {"topic": one.topic, "partition": one.partition, "wanted": None, "log_dir": None,
         "state": f"skipped: {one.reason}"}
        for one in plan.skipped
    ]  # fmt: skip
    rows = [{"name": name_of(row), **row} for row in rows]
    print_rows(rows, VERIFY_COLUMNS, output_format)
    is_done = all(row["state"] == "complete" for row in rows if row["wanted"] is not None)
    finish(0 if is_done else EXIT_PROBLEM)


def verified(store: LogStore, topic: str, partition: int, wanted: str) -> Row:
    """Report one of three facts: a replica is in the wanted log dir, is being moved, or neither."""
    row: Row = {"topic": topic, "partition": partition, "wanted": wanted, "log_dir": None}
    target = files.real_path(wanted)
    try:
        row["log_dir"] = store.log(topic, partition).log_dir
    except UnknownPartitionError:
        is_to_come = is_wished(store, topic, partition, wanted)
        state = "to be created there" if is_to_come else "not created, not requested"
        return row | {"state": state}
    except LogStoreError as error:
        return row | {"state": f"unknown: {error}"}
    if row["log_dir"] == target:
        return row | {"state": "complete"}
    is_on_its_way = any(
        each.is_temporary and (each.topic, each.partition) == (topic, partition)
        for one in store.describe_dirs().log_dirs
        if one.path == target
        for each in one.partitions
    )
    return row | {"state": "in progress" if is_on_its_way else "not there"}


def is_wished(store: LogStore, topic: str, partition: int, wanted: str) -> bool:
    """Report whether the store will create a missing partition in the wanted log dir."""
    wished = wished_dir(store.host.log_dirs, TopicPartition(topic, partition))
    return wished is not None and wished.path == files.real_path(wanted)


def cancel(log_dirs: tuple[str, ...], text: str, output_format: str) -> None:
    """Cancel the running moves of a reassignment; moves that have ended are unchanged.

    The store also forgets the wanted log dirs of partitions that do not exist yet.
    """
    with store_for_reading(log_dirs) as store, wrong_usage():
        plan = MovePlan.from_json(text, broker_id=store.broker_id)
        wishes = [one for one in plan.moves if is_wished(store, *one[:3])]
    wanted = {(one.topic, one.partition): one.target for one in plan.moves}
    with moves_of(log_dirs) as caller:
        moves: list[dict[str, Any]] = caller.call("status")["moves"]
        chosen = [
            [row["topic"], row["partition"]]
            for row in moves
            if row["state"] not in ("done", "cancelled")
            and files.real_path(wanted.get((row["topic"], row["partition"]), "/")) == row["target"]
        ]
        facts = caller.call("cancel", partitions=chosen)
        facts["wishes"] = []
        for topic, partition, target, *_ in wishes:
            name = {"topic": topic, "partition": partition}
            caller.admin.call("prefer_dir", {**name, "path": None})
            row = {**name, "target": files.real_path(target), "state": "withdrawn"}
            facts["wishes"].append(row)
    print_outcome(facts, output_format)
