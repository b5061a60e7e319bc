"""Implement the command that measures the user's disks."""

from __future__ import annotations

import os

import click

from logstore.cli.options import ENVIRONMENT_NAME, format_option, named_log_dirs, note
from logstore.cli.output import Column, count_text, print_rows, progress_bar, rate_text

COLUMNS = (
    Column("phase", "phase"),
    Column("case", "case"),
    Column("bytes_per_second", "rate", rate_text, True),
    Column("records_per_second", "records/s", lambda rate: count_text(round(rate)), True),
    Column("ms_p50", "p50 ms", "{:.3f}".format, True),
    Column("ms_p99", "p99 ms", "{:.3f}".format, True),
)
CAVEATS = (
    "Other users of these disks were not stopped during the measurement.",
    "Questions about cost and about bad disks need disks of a known size that may be disturbed: "
    "`make bench-layouts` makes these disks.",
)


@click.command(short_help="Measure how fast logs on these directories are.")
@click.option(
    "--log-dirs",
    "log_dirs",
    multiple=True,
    metavar="DIR[,DIR...]",
    help=f"Directories to measure, one per disk; can be repeated.  [env var: {ENVIRONMENT_NAME}]",
)
@click.option(
    "--plan",
    type=click.Choice(("quick", "short", "full")),
    default="short",
    show_default=True,
    help="How long to measure: some seconds (to try it out), a minute, or some minutes.",
)
@click.option(
    "--out", metavar="DIR", help="Write the results to a new directory: JSON, trace, page."
)
@click.option("--page", "with_page", is_flag=True, help="Make plots and a page (extra bench).")
@format_option()
def bench(
    log_dirs: tuple[str, ...], plan: str, out: str | None, with_page: bool, output_format: str
) -> None:  # fmt: skip
    """Measure appends, reads, recovery and moves on directories, one per disk.

    In each directory, the command makes a new directory `logstore-bench-PID`. At the end, the
    command removes the new directory, even after an error or Ctrl-C, and changes nothing else. The
    command does not need root. The command writes more bytes on faster disks, but at most 1.25 GiB
    at a time in each directory.

    \b
    append      appends until all records are on the disks, by flush policy
                (none: once at the end; interval: every 100 ms; durable: each
                append) and writers (8w: eight threads)
    read        reads all logs in order from the disks
    point-read  reads one record at random
    recover     opens a store after its process died
    move        appends during a move

    In the rows of a move, the rate is the rate of the copying, and the milliseconds are the latency
    of the appends during the move.

    \b
    Examples:
      logstore bench --log-dirs /disk1,/disk2
      logstore bench --log-dirs /disk1,/disk2 --plan full --out results --page
    """
    from logstore.bench.report import check_extra
    from logstore.cli.bench_rows import measure

    paths = named_log_dirs(log_dirs)
    if with_page and out is None:
        raise click.UsageError("--page needs --out DIR", click.get_current_context())
    if with_page:
        check_extra()
    with progress_bar("measuring", None, is_bytes=False) as show:
        rows = measure(paths, plan, out, show)
    print_rows(rows, COLUMNS, output_format)
    if with_page and out is not None:
        from logstore.bench.report.page import make_page
        from logstore.spark import session

        path = make_page(session(), out, os.path.join(out, "trace"), "These disks", CAVEATS)
        note(f"page: {path}")


COMMANDS: list[click.Command] = [bench]
