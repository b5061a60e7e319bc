"""Implement the commands `logstore move plan|run|status|cancel|pause|resume|retry|throttle`."""

from __future__ import annotations

from typing import IO, Any

import click

from logstore.cli.options import (
    format_option,
    log_dirs_option,
    named_log_dirs,
    store_for_reading,
)
from logstore.cli.owner import absolute
from logstore.store.admin.client import find_owner
from mover.cli.operating import exit_code_of, finish, moves_of, text_of
from mover.cli.rates import checked_rate
from mover.cli.tables import print_outcome, print_plan

PLAN_OPTIONS = [
    click.option(
        "--tolerance", type=click.FloatRange(min=0), default=0.05, show_default=True,
        help="How far a log dir may be from its share, as a fraction of the share.",
    ),
    click.option("--evacuate", multiple=True, metavar="DIR", help="Empty this log dir; can be "
                                                                  "given several times."),
]  # fmt: skip
THROTTLE_HELP = "Rate of all moves of the store: 50MB/s, 64KiB/s, auto, or none (no limit)."


def plan_options(function: Any) -> Any:
    """Add the options that decide how a plan is made."""
    for option in reversed(PLAN_OPTIONS):
        function = option(function)
    return function


@click.group(short_help="Move replicas between log dirs: plan, run, watch, cancel.")
def move() -> None:
    """Move replicas between the log dirs of a store, while the store is being written.

    If a process has the store open, the moves run in that process. If no process has the store
    open, the moves run in this command. If the moves run in this command, Ctrl-C pauses the moves,
    and `move resume` continues them.

    \b
    Examples:
      logstore move plan
      logstore move run --throttle 50MB/s
      logstore move run orders 0 /disk2/logs
      logstore move run --evacuate /disk1/logs --dry-run
      logstore move status
    """


@move.command(short_help="Show which moves would even the log dirs out.")
@log_dirs_option
@plan_options
@click.option(
    "--output",
    type=click.File("w"),
    metavar="FILE",
    help="Write the plan to this file, as JSON for kafka-reassign-partitions.",
)
@format_option()
def plan(
    log_dirs: tuple[str, ...],
    tolerance: float,
    evacuate: tuple[str, ...],
    output: IO[str] | None,
    output_format: str,
) -> None:  # fmt: skip
    """Show moves that bring every log dir near its share, with as few bytes as possible.

    A log dir's share is its part of all bytes, in proportion to its disk's capacity. Moves that
    cannot be done are shown with the reason. The exit code is 1 if a replica cannot leave a log
    dir that is to be emptied.

    \b
    Examples:
      logstore move plan --tolerance 0.1
      logstore move plan --evacuate /disk1/logs --output plan.json
    """
    paths = [absolute(path) for path in evacuate]
    with moves_of(log_dirs) as caller:
        facts = caller.call("plan", tolerance=tolerance, evacuate=paths)
    print_plan(facts, output_format)
    if output is not None:
        output.write(facts["reassignment"] + "\n")
    finish(exit_code_of(facts))


@move.command(short_help="Move one replica, run a plan from a file, or plan and run.")
@log_dirs_option
@click.argument("topic", required=False)
@click.argument("partition", required=False, type=click.IntRange(min=0))
@click.argument("target", required=False)
@plan_options
@click.option("--plan", "plan_file", type=click.File("r"), metavar="FILE", help="Run this plan.")
@click.option("--throttle", callback=checked_rate, metavar="RATE", help=THROTTLE_HELP)
@click.option("--threads", type=click.IntRange(min=1), help="How many moves run at the same time.")
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Show what would be moved, but move nothing."
)
@format_option()
def run(
    log_dirs: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    target: str | None,
    tolerance: float,
    evacuate: tuple[str, ...],
    plan_file: IO[str] | None,
    throttle: str | None,
    threads: int | None,
    is_dry: bool,
    output_format: str,
) -> None:
    """Move replicas and show progress. The exit code is 1 if a move was not done.

    \b
    Examples:
      logstore move run orders 0 /disk2/logs
      logstore move run --plan plan.json --throttle auto
      logstore move run --evacuate /disk1/logs
    """
    if topic is not None and (target is None or plan_file is not None):
        raise click.UsageError(
            "give either TOPIC PARTITION TARGET, or --plan FILE, or none of these"
        )
    if evacuate and (topic is not None or plan_file is not None):
        raise click.UsageError("give --evacuate or the moves to run, not both")
    skipped: list[Any] = []
    with moves_of(log_dirs) as caller:
        asked: dict[str, Any] = {}
        if topic is not None:
            asked["moves"] = [[topic, partition, absolute(target)]]
        elif plan_file is not None:
            asked["reassignment"] = text_of(plan_file)
        else:
            paths = [absolute(path) for path in evacuate]
            made = caller.call("plan", tolerance=tolerance, evacuate=paths)
            if is_dry:
                print_plan(made, output_format)
                return
            skipped = made["skipped"]
            asked["moves"] = [
                [each["topic"], each["partition"], each["target"]] for each in made["planned"]
            ]
        facts = caller.call("run", throttle=throttle, threads=threads, is_dry=is_dry, **asked)
    facts["skipped"] = skipped + facts["skipped"]
    if is_dry:
        print_plan(facts, output_format)
        return
    print_outcome(facts, output_format)
    finish(exit_code_of(facts))


@move.command(short_help="Show the moves, or follow them.")
@log_dirs_option
@click.option("--follow", is_flag=True, help="Show progress until the moves end.")
@format_option()
def status(log_dirs: tuple[str, ...], follow: bool, output_format: str) -> None:
    """Show the moves of the process that has the store open, or the moves left unfinished.

    \b
    Examples:
      logstore move status
      logstore move status --follow
      logstore move status --format json | jq '.moves[].state'
    """
    if find_owner(named_log_dirs(log_dirs)) is None:
        from mover.administration import left_moves

        with store_for_reading(log_dirs) as store:
            facts = {"pid": None, "moves": left_moves(store), "throttled_rate": None}
    else:
        with moves_of(log_dirs) as caller:
            facts = caller.call("status", is_followed=follow)
    print_outcome(facts, output_format)


def asking(verb: str, short: str, text: str, *, is_followed: bool) -> click.Command:
    """Create a command that acts on one move, on the moves of a topic, or on all moves."""

    @log_dirs_option
    @click.argument("topic", required=False)
    @click.argument("partition", required=False, type=click.IntRange(min=0))
    @format_option()
    def ask(
        log_dirs: tuple[str, ...], topic: str | None, partition: int | None, output_format: str
    ) -> None:
        with moves_of(log_dirs) as caller:
            facts = caller.call(
                verb,
                partitions=None if topic is None else named(caller, topic, partition),
                is_followed=is_followed,
            )
        print_outcome(facts, output_format)
        finish(exit_code_of(facts) if is_followed else 0)

    ask.__doc__ = f"{text}\n\n\b\nExample:\n  logstore move {verb} orders 0"
    return click.command(verb, short_help=short)(ask)


def named(caller: Any, topic: str, partition: int | None) -> list[list[Any]]:
    """List the partitions that the arguments `TOPIC [PARTITION]` mean."""
    if partition is not None:
        return [[topic, partition]]
    moves = caller.call("status")["moves"]
    found = sorted({row["partition"] for row in moves if row["topic"] == topic})
    if not found:
        raise click.ClickException(f"no partition of {topic} is being moved")
    return [[topic, each] for each in found]


for word in (
    asking(
        "cancel", "Give up moves and free their space.",
        "Give up all moves, or the named moves, and remove their copies at once.",
        is_followed=False,
    ),
    asking(
        "pause", "Pause moves and keep what was copied.",
        "Pause all moves, or the named moves, and keep their copies.", is_followed=False,
    ),
    asking(
        "resume", "Continue moves that were paused or left unfinished.",
        "Continue moves that were paused, or that an earlier process left unfinished, until they "
        "end.",
        is_followed=True,
    ),
    asking(
        "retry", "Start failed moves again.", "Start failed moves again.", is_followed=True
    ),
):  # fmt: skip
    move.add_command(word)


@move.command(short_help="Change the rate while moves run.")
@log_dirs_option
@click.argument("rate", callback=checked_rate)
@click.option("--dir", "path", metavar="DIR", help="Only moves from and to this log dir.")
@format_option()
def throttle(log_dirs: tuple[str, ...], rate: str, path: str | None, output_format: str) -> None:
    """Limit all moves to RATE: 50MB/s, 64KiB/s, `auto`, or `none` for no limit.

    A rate must have a unit. To stop moves, use `logstore move pause`.

    \b
    Example:
      logstore move throttle 50MB/s
    """
    if find_owner(named_log_dirs(log_dirs)) is None:
        raise click.ClickException("no process has the store open, so nothing is being moved")
    with moves_of(log_dirs) as caller:
        facts = caller.call("throttle", rate=rate, log_dir=absolute(path))
    print_outcome(facts, output_format)
