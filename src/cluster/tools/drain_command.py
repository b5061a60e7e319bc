"""Implement the command `logstore cluster drain`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from cluster.tools.asking import Asked
from cluster.tools.drain import (
    Drain,
    DrainError,
    DrainSettings,
    Look,
    faults_text,
    look,
    plan_now,
)
from cluster.tools.drain_plan import Plan, Reassigning
from cluster.tools.parts import connected, ids_text, place_text, servers_option
from logstore.cli.options import format_option, note
from logstore.cli.output import Column, Row, optional_text, print_rows, size_text

COLUMNS = [
    Column("name", "partition"),
    Column("replicas", "replicas", ids_text),
    Column("wanted", "wanted", ids_text),
    Column("bytes_to_copy", "to copy", size_text, is_number=True),
    Column("state", "state", optional_text),
]
NARROWER = "planned, in fewer racks"
NOT_THROTTLED = "This command does not throttle the copying."


@click.command(short_help="Move all replicas off brokers that are to be removed.")
@servers_option
@click.argument("brokers", nargs=-1, required=True, type=click.IntRange(min=0), metavar="BROKER...")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the plan, and begin nothing.")
@click.option(
    "--at-once", type=click.IntRange(min=1), default=5, show_default=True,
    help="How many partitions are reassigned at the same time.",
)  # fmt: skip
@click.option(
    "--keep-free", type=click.FloatRange(0, 100), default=5.0, show_default=True,
    metavar="PERCENT", help="The part of each disk that must stay free.",
)  # fmt: skip
@format_option()
def drain(
    bootstrap_servers: str,
    command_config: str | None,
    brokers: tuple[int, ...],
    is_dry: bool,
    at_once: int,
    keep_free: float,
    output_format: str,
) -> None:
    """Move all replicas of BROKER to other brokers, so that BROKER can be removed.

    Each replica is copied once, from the leader of its partition, to a live broker. The replicas of
    a partition stay in as many racks as possible. If a partition cannot leave, the command begins
    nothing. The copies are not throttled: use --at-once to copy less at the same time.

    Ctrl-C ends the command. The reassignments that the command has begun continue. To reassign the
    other partitions, run the same command again. The exit code is 1 if a replica stays. New topics
    may still get replicas on BROKER, so run the command again right before you remove it.

    \b
    Examples:
      logstore cluster drain --bootstrap-servers b1:9092 --dry-run 3
      logstore cluster drain --bootstrap-servers b1:9092 3
    """
    settings = DrainSettings(frozenset(brokers), at_once, keep_free / 100)
    with connected(bootstrap_servers, command_config) as asked:
        seen = look(asked, settings.drained)
        _check_known(seen, settings.drained)
        plan = plan_now(asked, seen, settings)
        if is_dry or plan.faults:
            print_rows([*plan_rows(plan)], COLUMNS, output_format)
        if plan.faults:
            raise DrainError(reason=f"nothing was begun: {faults_text(plan)}")
        if not is_dry:
            _run(asked, settings, seen, plan, output_format)


def _run(asked: Asked, settings: DrainSettings, seen: Look, plan: Plan, output_format: str) -> None:
    count, size = len(plan.moves), sum(one.bytes_to_copy for one in plan.moves)
    note(f"{count} partitions to reassign, {size_text(size)} to copy. {NOT_THROTTLED}")
    if seen.running:
        note(f"{len(seen.running)} reassignments are under way already.")
    work = Drain(asked, settings, note)
    try:
        work.run()
    except KeyboardInterrupt:
        note("Reassignments that were begun go on. Run the same command to continue.")
        raise
    names = ", ".join(map(str, sorted(settings.drained)))
    note(f"No partition has a replica on these brokers: {names}.")
    print_rows([*_rows(work.begun.values(), "done")], COLUMNS, output_format)


def _check_known(seen: Look, drained: Iterable[int]) -> None:
    """Refuse a broker that does not exist, because it may be a typing error."""
    alive = {one.node_id for one in seen.metadata.brokers}
    held = {
        broker
        for topic in seen.metadata.topics
        for one in topic.partitions
        for broker in one.replica_nodes
    }
    for broker in drained:
        if broker not in alive and broker not in held:
            raise DrainError(
                reason=f"broker {broker} is not registered, and no partition has a replica on it"
            )


def plan_rows(plan: Plan) -> Iterable[Row]:
    """Return a row for each partition: first partitions that cannot leave, then the moves."""
    for place, fault in sorted(plan.faults.items()):
        yield {"name": place_text(place), "state": fault.split(": ", 1)[1]}
    yield from _rows(plan.moves, None)


def _rows(moves: Iterable[Reassigning], state: str | None) -> Iterable[dict[str, Any]]:
    for one in moves:
        yield {
            "name": place_text(one.place),
            "topic": one.place[0],
            "partition": one.place[1],
            "replicas": list(one.replicas),
            "wanted": list(one.wanted),
            "bytes_to_copy": one.bytes_to_copy,
            "state": state or (NARROWER if one.is_narrower else "planned"),
        }
