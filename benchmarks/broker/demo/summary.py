"""Print the page of the demo: the figures of each step, with a mark where a fact was checked."""

from __future__ import annotations

import os

from benchmarks.broker.demo.group import Group
from benchmarks.broker.demo.ledger import Ledger
from benchmarks.broker.demo.steps import Checked, Killed, Loaded, Moved
from benchmarks.broker.server import Usage
from logstore.cli.demo.flights import AIRPORTS
from logstore.cli.demo.summary import Page, rate
from logstore.cli.output import bar, rate_text, size_text

BAR_CELLS = 30


def show_start(page: Page, seconds: float, used: Usage) -> None:
    """Print how long the first start took."""
    page.head("The broker, a process of its own")
    page.fact("first record", f"acknowledged {seconds:.2f} s after the start")
    page.fact("memory", f"{used.resident_mib:.0f} MiB resident")


def show_load(page: Page, loaded: Loaded) -> None:
    """Print the figures of the first load."""
    page.head("Produced with confluent-kafka (idempotent, lz4), consumed by a group of two")
    throughput = rate_text(loaded.value_bytes / loaded.seconds)
    page.fact("records", f"{loaded.records:,} acknowledged in {loaded.seconds:.2f} s")
    page.fact("produced", f"{rate(loaded.records, loaded.seconds)}, {throughput} of values")
    page.fact(
        "consumed",
        f"{rate(loaded.records, loaded.consumed_seconds)}, compared and committed, by two members: "
        + " + ".join(f"{share:,}" for share in loaded.shares),
        is_good=sum(loaded.shares) == loaded.records and all(loaded.shares),
    )
    page.fact(
        "the broker",
        f"{loaded.used.cpu_seconds:.2f} s of processor time for both "
        f"({loaded.used.cpu_seconds / loaded.consumed_seconds:.0%} of a core), "
        f"{loaded.used.resident_mib:.0f} MiB resident",
    )


def show_move_line(page: Page, part: float, copied_bytes: int, lag: int) -> None:
    """Print the progress of the move."""
    drawn = bar(min(part, 1.0), cells=BAR_CELLS)
    page.say(f"  {drawn}  {size_text(copied_bytes)}, {lag:,} records behind", "dim")


def show_move(page: Page, moved: Moved) -> bool:
    """Print the result of the move; return whether it is good."""
    names = f"{os.path.basename(moved.source)} to {os.path.basename(moved.target)}"
    page.fact(
        "moved",
        f"{AIRPORTS[moved.partition]}, {names}: {size_text(moved.size_bytes)} in "
        f"{moved.seconds:.2f} s, throttled to {rate_text(moved.rate)}",
        is_good=moved.is_done,
    )
    is_grown = moved.appended_meanwhile > 0
    page.fact(
        "meanwhile",
        f"{moved.appended_meanwhile:,} flights acknowledged in {AIRPORTS[moved.partition]} itself",
        is_good=is_grown,
    )
    return moved.is_done and is_grown


def show_kill(page: Page, killed: Killed) -> bool:
    """Print the figures of the kill; return whether they are good."""
    page.head("SIGKILL of the broker under load; the clients stay")
    is_killed = killed.exit_code == -9
    page.fact(
        "killed",
        f"after {killed.acknowledged:,} acknowledged flights, with "
        f"{killed.unanswered:,} sent and not answered",
        is_good=is_killed,
    )
    page.fact(
        "started again",
        f"a record acknowledged {killed.first_record_seconds:.2f} s after the start; "
        f"the producer waited {killed.producer_seconds:.2f} s from the kill",
    )
    page.fact(
        "commits",
        "the broker has every offset that the group had committed: "
        + ", ".join(f"{known:,}" for known in killed.commits),
        is_good=killed.has_commits,
    )
    page.fact("rebalances", f"{killed.rebalances} after the kill")
    return is_killed and killed.has_commits


def show_group(page: Page, group: Group, last: int, expected: int) -> bool:
    """Print what the group got; return whether it got each flight once."""
    received = group.received
    page.head("The group goes on from its commits")
    page.fact(
        "a new member",
        f"after both had left: read the {last:,} flights that were produced since, no other",
        is_good=last == expected,
    )
    page.fact(
        "group in all",
        f"{received.records:,} records, {received.repeated} repeated, {received.skipped} skipped, "
        f"{received.wrong} wrong",
        is_good=received.is_good,
    )
    return last == expected and received.is_good


def show_check(page: Page, ledger: Ledger, checked: Checked) -> bool:
    """Print the comparison of every record; return whether all are good."""
    received = checked.received
    lost = sum(
        max(acknowledged - place, 0)
        for acknowledged, place in zip(ledger.acknowledged, received.places, strict=True)
    )
    extra = max(received.records - ledger.total, 0)
    page.head("Every acknowledged record read again and compared with its flight")
    page.fact(
        "checked",
        f"{received.records:,} records (offset, time, key, value), "
        f"{rate(received.records, checked.seconds)}",
    )
    page.fact("lost", f"{lost:,} of {ledger.total:,} acknowledged", is_good=lost == 0)
    page.fact("doubled", f"{extra + received.repeated:,}", is_good=extra + received.repeated == 0)
    wrong = received.wrong + received.skipped + ledger.misplaced
    page.fact("wrong", f"{wrong:,}", is_good=wrong == 0)
    page.fact(
        "checksums",
        f"{checked.keys - checked.wrong_sums:,} of {checked.keys:,} keys (carrier + flight) agree",
        is_good=checked.wrong_sums == 0,
    )
    for error in ledger.errors[:3]:
        page.fact("refused", error, is_good=False)
    page.fact("verify", f"{checked.problems} problems", is_good=checked.problems == 0)
    show_dirs(page, checked)
    return not (lost or extra or wrong or received.repeated or checked.wrong_sums) and not (
        checked.problems or ledger.errors
    )


def show_dirs(page: Page, checked: Checked) -> None:
    """Draw the bytes of each log dir as a bar."""
    page.head("Log dirs")
    largest = max(size for _, _, size in checked.dirs) or 1
    for path, partitions, size in checked.dirs:
        names = ", ".join(AIRPORTS[partition] for partition in partitions)
        drawn = bar(size / largest, cells=BAR_CELLS)
        page.say(f"  {os.path.basename(path):<7}{drawn}  {size_text(size):>10}  {names or 'empty'}")


def show_costs(page: Page, value_bytes: int, usages: list[Usage], seconds: float) -> None:
    """Print what all processes of the broker used together."""
    page.head("What it cost")
    cpu_seconds = sum(used.cpu_seconds for used in usages)
    page.fact(
        "processor",
        f"{cpu_seconds:.1f} s of the broker in {seconds:.1f} s, two starts included, for "
        f"{size_text(value_bytes)} of values in, and twice out",
    )
    peak = max(used.peak_mib for used in usages)
    page.fact("memory", f"{peak:.0f} MiB resident at most")
