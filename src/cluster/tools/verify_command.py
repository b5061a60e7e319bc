"""Implement the command `logstore cluster verify`."""

from __future__ import annotations

import time
from typing import Any

import click

from cluster.tools.asking import Place
from cluster.tools.parts import EXIT_PROBLEM, connected, ids_text, place_text, servers_option
from cluster.tools.verify import CLEANUP, COMPACT, SAME, Finding, Pace, Verification
from logstore.cli.options import format_option, note
from logstore.cli.output import Column, optional_text, print_rows, size_text
from logstore.units import parse_rate

UNLIMITED = "none"
SHOW_SECONDS = 10.0
COLUMNS = [
    Column("name", "partition"),
    Column("state", "state"),
    Column("offset", "offset", optional_text),
    Column("end_offset", "end", optional_text),
    Column("brokers", "brokers", ids_text),
    Column("detail", "what they have"),
]


def rate_of(ctx: click.Context, param: click.Parameter, text: str) -> int | None:
    """Parse the limit of the read rate; "none" means no limit."""
    if text.strip().lower() == UNLIMITED:
        return None
    try:
        rate = parse_rate(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    if rate <= 0:
        raise click.BadParameter("the rate must be above 0", ctx, param)
    return rate


@click.command(short_help="Compare the replicas of partitions across brokers.")
@servers_option
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--throttle", "rate", default="10MB/s", show_default=True, callback=rate_of, metavar="RATE",
    help="Bytes per second that are read from all brokers together, or none (no limit).",
)  # fmt: skip
@click.option("--all", "is_all", is_flag=True, help="Also list the partitions that are the same.")
@format_option()
def verify(
    bootstrap_servers: str,
    command_config: str | None,
    topics: tuple[str, ...],
    rate: int | None,
    is_all: bool,
    output_format: str,
) -> None:
    """Compare all replicas of each partition, batch by batch, below the high watermark.

    Two batches are the same if their base offset, last offset, checksum and leader epoch are the
    same. Each checksum is computed again from the bytes. Replicas of a compacted topic may lack
    different records, because each replica compacts its own log. In a compacted topic, records with
    the same offset must be the same.

    The exit code is 1 if replicas differ, or if a replica could not be compared. At most 100
    differences of a partition are listed.

    \b
    Examples:
      logstore cluster verify --bootstrap-servers b1:9092
      logstore cluster verify --bootstrap-servers b1:9092 --throttle 50MB/s orders
    """
    with connected(bootstrap_servers, command_config) as asked:
        metadata = asked.metadata()
        _check_known(metadata, topics)
        policies = asked.setting(metadata, CLEANUP)
        pace = Pace(rate)
        work = Verification(asked, metadata, pace)
        found: list[Finding] = []
        shown = Shown(pace)
        places = [*work.places(topics)]
        for number, (place, replicas) in enumerate(places):
            shown.begin(place, number, len(places))
            is_compacted = COMPACT in policies.get(place[0], "")
            findings = work.compare(place, replicas, is_compacted=is_compacted, show=shown.show)
            found += (one for one in findings if is_all or one.state != SAME)
    bad = sum(one.state != SAME for one in found)
    note(f"{len(places)} partitions, {size_text(pace.size_bytes)} read, {bad} problems")
    print_rows([row_of(one) for one in found], COLUMNS, output_format)
    click.get_current_context().exit(EXIT_PROBLEM if bad else 0)


class Shown:
    """Show the progress of the comparison from time to time."""

    def __init__(self, pace: Pace) -> None:
        """Show nothing for the first seconds."""
        self._pace, self._at, self._where = pace, time.monotonic(), ""

    def begin(self, place: Place, number: int, count: int) -> None:
        """Store which partition is compared now."""
        self._where = f"{place_text(place)}, partition {number + 1} of {count}"

    def show(self, offset: int, end: int) -> None:
        """Show the offset that was reached."""
        if time.monotonic() >= self._at + SHOW_SECONDS:
            self._at = time.monotonic()
            note(
                f"{self._where}: offset {offset} of {end}, {size_text(self._pace.size_bytes)} read"
            )


def _check_known(metadata: Any, topics: tuple[str, ...]) -> None:
    known = {topic.name for topic in metadata.topics}
    for name in topics:
        if name not in known:
            raise click.ClickException(f"there is no topic {name}")


def row_of(one: Finding) -> dict[str, Any]:
    """Describe a finding. Brokers with the same data are named together."""
    groups: dict[str, list[int]] = {}
    for broker, words in sorted(one.found.items()):
        groups.setdefault(words, []).append(broker)
    detail = "; ".join(f"{ids_text(brokers)}: {words}" for words, brokers in groups.items())
    return {
        "name": place_text(one.place),
        "topic": one.place[0],
        "partition": one.place[1],
        "state": one.state,
        "offset": one.offset,
        "end_offset": one.end_offset,
        "brokers": sorted(one.found),
        "detail": detail,
    }
