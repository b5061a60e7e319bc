"""Implement the commands `logstore cluster` of the program `logstore.cli`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import IO, Any

import click

from broker.wire.error_codes import ErrorCode
from cluster.tools import proposal
from cluster.tools.asking import Asked, Place, Refusal
from cluster.tools.drain_command import drain
from cluster.tools.grow_command import grow
from cluster.tools.parts import EXIT_PROBLEM, connected, ids_text, place_text, servers_option
from cluster.tools.reassignment_file import Wanted, parse_reassignment
from cluster.tools.status import (
    CONTROLLER,
    GONE,
    GOOD,
    MIN_ISR,
    broker_rows,
    partition_rows,
    summary,
)
from cluster.tools.verify_command import verify
from cluster.tools.wanted_dirs import (
    Copy,
    ask_for_dirs,
    cancel_moves,
    copies_on,
    state_of_dirs,
    wishes_of,
)
from logstore.cli.options import format_option, note, wrong_usage
from logstore.cli.output import Column, optional_text, print_rows, to_json
from logstore.names import validate_partition, validate_topic

PREFERRED, UNCLEAN = 0, 1
# An error code of this set means that there was nothing to do.
NOTHING_TO_DO = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


STATUS_COLUMNS = [
    Column("kind", "what"),
    Column("name", "name"),
    Column("state", "state"),
    Column("leader", "leader", optional_text),
    Column("replicas", "replicas", ids_text),
    Column("isr", "in sync", ids_text),
    Column("min", "min", optional_text),
    Column("address", "address", optional_text),
    Column("rack", "rack", optional_text),
]
OUTCOME_COLUMNS = [Column("name", "partition"), Column("state", "state")]
VERIFY_COLUMNS = [
    Column("name", "partition"),
    Column("wanted", "wanted", ids_text),
    Column("replicas", "replicas", ids_text),
    Column("state", "state"),
]


@click.group(short_help="See a cluster, elect leaders, move replicas between brokers.")
def cluster() -> None:
    """Show and change the brokers of a cluster.

    These commands send Kafka's own requests to the brokers, from any machine.

    \b
    Example:
      logstore cluster status --bootstrap-servers b1:9092,b2:9092
    """


cluster.add_command(drain)
cluster.add_command(verify)
cluster.add_command(grow)


@cluster.command()
@servers_option
@click.option("--all", "is_all", is_flag=True, help="Also list the partitions that are good.")
@format_option()
def status(
    bootstrap_servers: str, command_config: str | None, is_all: bool, output_format: str
) -> None:
    """List the brokers, and each partition that is not good.

    A partition is "offline" if no broker leads it, "below min" if too few replicas are in sync for
    acks=all, and "under-replicated" if a replica is not in sync. A broker is "gone" if it is not
    registered, but has replicas. The exit code is 1 if a partition or a broker is in one of these
    states, or if there is no controller.

    \b
    Example:
      logstore cluster status --bootstrap-servers b1:9092,b2:9092
    """
    with connected(bootstrap_servers, command_config) as asked:
        metadata = asked.metadata()
        partitions = [*partition_rows(metadata, asked.setting(metadata, MIN_ISR))]
    brokers = [*broker_rows(metadata)]
    bad = [row for row in partitions if row["state"] != GOOD]
    note(summary(brokers, partitions))
    print_rows([*brokers, *(partitions if is_all else bad)], STATUS_COLUMNS, output_format)
    found = {row["state"] for row in brokers}
    is_good = not bad and GONE not in found and CONTROLLER in found
    click.get_current_context().exit(0 if is_good else EXIT_PROBLEM)


@cluster.command()
@servers_option
@click.argument("partitions", nargs=-1, metavar="[TOPIC-PARTITION]...")
@click.option(
    "--unclean",
    is_flag=True,
    help="If no other replica can lead, elect one that may lack records. Name the partitions.",
)
@format_option()
def elect(
    bootstrap_servers: str,
    command_config: str | None,
    partitions: tuple[str, ...],
    unclean: bool,
    output_format: str,
) -> None:
    """Let the first replica of each partition lead, if it is in sync.

    Without partitions, the command does this for all partitions. The exit code is 1 if an election
    failed.

    \b
    Examples:
      logstore cluster elect --bootstrap-servers b1:9092
      logstore cluster elect --bootstrap-servers b1:9092 --unclean orders-0
    """
    if unclean and not partitions:
        raise click.UsageError("--unclean needs the names of the partitions")
    with wrong_usage():
        places = [_place(one) for one in partitions] or None
    with connected(bootstrap_servers, command_config) as asked:
        kind = UNCLEAN if unclean else PREFERRED
        found = asked.elect(asked.metadata(), places, kind)
    _print_outcomes(found, "elected", output_format)


@cluster.command()
@servers_option
@click.option("--file", type=click.File("r"), required=True, help="The reassignment, as JSON.")
@click.option("--generate", is_flag=True, help="Propose a reassignment.")
@click.option("--execute", is_flag=True, help="Begin the reassignments.")
@click.option("--verify", is_flag=True, help="Show which reassignments are complete.")
@click.option("--cancel", is_flag=True, help="Cancel running reassignments.")
@click.option("--brokers", metavar="ID[,ID...]", help="For --generate: the brokers to use.")
@format_option()
def reassign(
    bootstrap_servers: str,
    command_config: str | None,
    file: IO[str],
    brokers: str | None,
    output_format: str,
    **actions: bool,
) -> None:
    """Move replicas between brokers and log dirs, as a file in Kafka's JSON format says.

    The exit code is 1 if a partition was refused. With --verify, the exit code is 1 if a partition
    does not have the wanted brokers or log dirs. The command does not change throttles.

    With --generate, the file names topics. The command prints the present brokers of the topics'
    partitions, and a proposal. The proposal places all replicas as if the topics were new.

    \b
    Examples of FILE, and for --generate:
      {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 4],
                       "log_dirs": ["any", "/disk2/logs", "any"]}]}
      {"topics": [{"topic": "orders"}]}
    """
    named = [name for name, is_given in actions.items() if is_given]
    if len(named) != 1:
        raise click.UsageError("give exactly one of --generate, --execute, --verify and --cancel")
    (action,) = named
    if action == "generate" and brokers is None:
        raise click.UsageError("--generate needs --brokers, such as --brokers 1,2,3")
    if action != "generate" and brokers is not None:
        raise click.UsageError("only --generate has --brokers")
    if brokers is not None:
        _generate(connected(bootstrap_servers, command_config), file, brokers, output_format)
        return
    with wrong_usage(f" ({file.name})"):
        wanted = parse_reassignment(file.read())
    with connected(bootstrap_servers, command_config) as asked:
        metadata = asked.metadata()
        if action == "verify":
            copies = copies_on(asked, metadata, wishes_of(wanted))
            rows = verified(metadata, wanted, asked.reassignments(metadata), copies)
            print_rows(rows, VERIFY_COLUMNS, output_format)
            is_done = all(row["state"] == "complete" for row in rows)
            click.get_current_context().exit(0 if is_done else EXIT_PROBLEM)
        found = (_begin if action == "execute" else _cancel)(asked, metadata, wanted)
    _print_outcomes(found, "begun" if action == "execute" else "cancelled", output_format)


def _begin(asked: Asked, metadata: Any, wanted: Mapping[Place, Wanted]) -> dict[Place, Refusal]:
    """Ask for the log dirs. Then change the brokers of each partition that was not refused."""
    refused = ask_for_dirs(asked, metadata, wishes_of(wanted))
    present = replicas_of(metadata)
    found = {place: refused.get(place, Refusal(ErrorCode.NONE, None)) for place in wanted}
    asks = {
        place: one.replicas
        for place, one in wanted.items()
        if place not in refused and not (one.dirs and present.get(place) == one.replicas)
    }
    return found | (asked.reassign(metadata, asks) if asks else {})


def _cancel(asked: Asked, metadata: Any, wanted: Mapping[Place, Wanted]) -> dict[Place, Refusal]:
    """Cancel the reassignments, and also the moves to the wanted log dirs."""
    found = asked.reassign(metadata, dict.fromkeys(wanted))
    for place, answer in cancel_moves(asked, metadata, wanted).items():
        if answer.code or found[place].code in NOTHING_TO_DO:
            found[place] = answer
    return found


def _generate(asked: Asked, file: IO[str], brokers: str, output_format: str) -> None:
    with wrong_usage():
        ids = proposal.parse_brokers(brokers)
    with wrong_usage(f" ({file.name})"):
        names = proposal.parse_topics(file.read())
    with asked:
        metadata = asked.metadata()
    with wrong_usage():
        now = proposal.assignment_json(proposal.current(metadata, names))
        found = proposal.assignment_json(proposal.proposed(metadata, names, ids, Random()))
    if output_format == "table":
        click.echo(f"Current partition replica assignment\n{to_json(now)}\n")
        click.echo(f"Proposed partition reassignment configuration\n{to_json(found)}")
    else:
        click.echo(to_json({"current": now, "proposed": found}))


def replicas_of(metadata: Any) -> dict[Place, list[int]]:
    """Return the brokers of each partition."""
    return {
        (topic.name, one.partition_index): list(one.replica_nodes)
        for topic in metadata.topics
        for one in topic.partitions
    }


def verified(
    metadata: Any,
    wanted: Mapping[Place, Wanted],
    running: Collection[Place],
    copies: Sequence[Copy],
) -> list[dict[str, Any]]:
    """Report for each partition whether its replicas are where they should be."""
    present = replicas_of(metadata)
    rows = []
    for place, one in wanted.items():
        found = present.get(place)
        state = "in progress" if place in running else "different"
        if found is None:
            state = "no such partition"
        elif place not in running and found == one.replicas:
            state = state_of_dirs(place, one, copies)
        rows.append(
            {"name": place_text(place), "wanted": one.replicas, "replicas": found, "state": state}
        )
    return rows


def _place(text: str) -> Place:
    """Read TOPIC-PARTITION."""
    name, _, number = text.rpartition("-")
    if not name or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not of the form TOPIC-PARTITION")
    return validate_topic(name), validate_partition(int(number))


def _print_outcomes(found: Mapping[Place, Refusal], done: str, output_format: str) -> None:
    """Print the result for each partition. If a partition was refused, exit with 1."""
    rows = [
        {"name": place_text(place), "state": str(one) if one.code else done}
        for place, one in sorted(found.items())
    ]
    if not rows:
        note("there was nothing to do: no partition needs this")
    if rows or output_format != "table":
        print_rows(rows, OUTCOME_COLUMNS, output_format)
    is_refused = any(one.code and one.code not in NOTHING_TO_DO for one in found.values())
    click.get_current_context().exit(EXIT_PROBLEM if is_refused else 0)
