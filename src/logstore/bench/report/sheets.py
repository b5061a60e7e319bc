"""Define the questions that the page answers, and choose the rows that answer each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from logstore.bench.cases import BASE, GRID, MOVES, TROUBLES
from logstore.bench.report.plots import Album, Plot, Row, Scale, Word

MB_S = Scale(
    "mb_s", "mb_s_p05", "mb_s_p95",
    "MB/s of record values, all disks together\n(dot: median of the rounds; bar: 5th to 95th "
    "percentile)",
)  # fmt: skip
MB_S_BY_WRITERS = MB_S._replace(unit="MB/s of record values, all disks together, logarithmic")
MS = Scale(
    "ms_p50", "ms_p50", "ms_p99",
    "milliseconds, logarithmic (dot: median; bar: to the 99th percentile)", is_log=True,
)  # fmt: skip
KEPT = Scale(
    "kept", "kept", "kept", "records accepted durably (1 = as many as with all disks healthy)"
)
MOVED = Scale("moved_mb_s", "moved_mb_s", "moved_mb_s", "MB/s of the log that is moved")
COST = Scale(
    "paid",
    "paid",
    "paid",
    "bytes of disk that are needed for each byte that can be used (1.0 is best)",
)
FLUSHES = {
    "none": "one flush at the end",
    "interval": "flush every 100 ms",
    "durable": "durable",
}
GRID_APPENDS = {case.name for case in GRID}
BASE_APPENDS = [case.name for case in BASE if case.phase == "append"]
MOVE = 2  # in the trace of a case with a move, the worker number of the move
# With four disks: the fraction of the stored bytes that are data, and not copies or parity.
WRITTEN_SHARE = {"raid1": 0.5, "raid10": 0.5, "raid5": 0.75, "raid6": 0.5}


class Sheet(NamedTuple):
    """Choose the rows of a plot, and say how to draw them.

    Attributes:
        rows: a function that gets the rows of all measurements and of all workers, and returns the
            rows of the plot.
        label: a function that returns the series of a row; each series has a colour.
        line: a function that returns the line of the plot on which a row is drawn.
        is_by_writers: whether each layout has its own panel, with values by number of writers.
    """

    plot: Plot
    scale: Scale
    rows: Callable[[Sequence[Row], Sequence[Row]], list[Row]]
    label: Word
    line: Word = lambda row: str(row["layout"])
    is_by_writers: bool = False


def case_of(row: Row) -> str:
    """Return the name of a row's case."""
    return str(row["measurement"]).rsplit("/", 1)[-1]


def size_and_flush(row: Row) -> str:
    """Describe the record size and the flush policy."""
    return f"{row['record_bytes']:,} B, {FLUSHES.get(row['sync'], row['sync'])}"


def whole_case(row: Row) -> str:
    """Describe a case's appends: record size, flush policy, writers."""
    return f"{size_and_flush(row)}, {row['writers']} writer{'s' * (row['writers'] > 1)}"


def batch_of(row: Row) -> str:
    """Return the number of records in a batch of a row's case."""
    return case_of(row).split("-")[1].removeprefix("batch")


def limited(row: Row, share: float = 1.0) -> Row:
    """Add `limit_mb_s`: the MB/s of values that the speed limit of the layout's disks allows."""
    rate = row.get("set_bytes_per_second") or 0
    return row | {"limit_mb_s": rate * row["disks"] * share / 1e6}


def appends(rows: Sequence[Row]) -> list[Row]:
    """Return the appends, each with its limit: the disks' speed limit without copies and parity."""
    return [
        limited(row, WRITTEN_SHARE.get(row["layout"].partition("-")[0], 1.0))
        for row in rows
        if row["phase"] == "append"
    ]


def base_appends(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
    """Return the appends that every plan measures."""
    found = [row for row in appends(rows) if case_of(row) in BASE_APPENDS]
    return sorted(found, key=lambda row: BASE_APPENDS.index(case_of(row)))


def by_writers(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
    """Return the appends that differ only in size, flush policy and writers."""
    found = [row for row in appends(rows) if case_of(row) in GRID_APPENDS]
    return [row for row in found if "processes" not in row["layout"]]


def phase_rows(phase: str, *, is_limited: bool = False) -> Callable[..., list[Row]]:
    """Create the function that chooses the rows of a phase."""

    def choose(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
        found = [row for row in rows if row["phase"] == phase]
        return [limited(row) for row in found] if is_limited else found

    return choose


def by_process(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
    """Return the cases that were measured both with one process and with one process per disk."""
    pair = {name: [row for row in rows if row["layout"] == name and row["phase"] == "append"]
            for name in ("jbod4-ext4", "jbod4-ext4-processes")}  # fmt: skip
    common = set.intersection(*({case_of(row) for row in found} for found in pair.values()))
    return [row for found in pair.values() for row in found if case_of(row) in common]


def beside_moves(_rows: Sequence[Row], workers: Sequence[Row]) -> list[Row]:
    """Return the rows of appends: without a move, and during each kind of move."""
    found = [row for row in workers if row["phase"] == "move" and row["worker"] != MOVE]
    return sorted(
        (row for row in found if row["worker"] or row["detail"] == MOVES[0]),
        key=lambda row: (row["worker"], MOVES.index(row["detail"])),
    )


def moves_done(_rows: Sequence[Row], workers: Sequence[Row]) -> list[Row]:
    """Return the moves, with their rates."""
    return [
        row | {"moved_mb_s": row["size_bytes"] / row["ms_p50"] / 1e3}
        for row in workers
        if row["phase"] == "move" and row["worker"] == MOVE
    ]


def other_disks(_rows: Sequence[Row], workers: Sequence[Row]) -> list[Row]:
    """Merge the rows of all disks except the first into their median p50 and largest p99."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in workers:
        if row["phase"] == "beside" and row["worker"] > 0:
            found.setdefault((row["layout"], row["detail"]), []).append(row)
    return [
        members[0]
        | {"ms_p50": median(row["ms_p50"] for row in members)}
        | {"ms_p99": max(row["ms_p99"] for row in members)}
        for _, members in sorted(found.items(), key=lambda pair: TROUBLES.index(pair[0][1]))
    ]


def kept_in_trouble(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
    """Divide a layout's bytes with trouble on a disk by its bytes with healthy disks."""
    beside = sorted(
        (row for row in rows if row["phase"] == "beside"),
        key=lambda row: TROUBLES.index(row["detail"]),
    )
    healthy = {row["layout"]: row["bytes"] for row in beside if row["detail"] == "healthy"}
    return [
        row | {"kept": row["bytes"] / healthy[row["layout"]]}
        for row in beside
        if row["detail"] != "healthy" and healthy.get(row["layout"])
    ]


def costs(rows: Sequence[Row], _workers: Sequence[Row]) -> list[Row]:
    """Return one row per layout whose sizes are known."""
    first: dict[str, Row] = {}
    for row in rows:
        if row["raw_bytes"] and row["usable_bytes"]:
            first.setdefault(row["layout"], row | {"paid": row["raw_bytes"] / row["usable_bytes"]})
    return list(first.values())


def only(text: str) -> Word:
    """Create a function that gives all rows the same label."""
    return lambda _row: text


def trouble_of(row: Row) -> str:
    """Describe the disks in a row's case: all healthy, or one slow, full or failed."""
    return "all disks healthy" if row["detail"] == "healthy" else f"one disk {row['detail']}"


def beside_of(row: Row) -> str:
    """Describe the move that ran during a row's appends; return "alone" if no move ran."""
    return f"beside a move, {row['detail']}" if row["worker"] else "alone"


SHEETS = (
    Sheet(
        Plot(
            "How many MB/s does each layout append, until everything is on its disks?",
            "Further right is better. Bytes in the page cache count only after they are flushed.",
            "append",
        ),
        MB_S, base_appends, whole_case,
    ),
    Sheet(
        Plot(
            "How long does one append wait?",
            "Further left is better. Without a flush, an append returns when its bytes are in the "
            "page cache.",
            "append-latency",
        ),
        MS, base_appends, whole_case,
    ),
    Sheet(
        Plot(
            "What do more writers, larger records and each flush policy change?",
            "One panel per layout; higher is better. Writers share the log dirs, one log each.",
            "append-writers",
        ),
        MB_S_BY_WRITERS,
        by_writers, size_and_flush, is_by_writers=True,
    ),
    Sheet(
        Plot(
            "What changes if each disk has its own process, instead of one process for all disks?",
            "Four disks, ext4; the total number of writing threads is the same on both sides.",
            "processes",
        ),
        MB_S, by_process,
        lambda row: "one process per disk" if "processes" in row["layout"] else "one for all",
        lambda row: f"{whole_case(row)}, {batch_of(row)} records per batch",
    ),
    Sheet(
        Plot(
            "How many MB/s does each layout read, in order and checked?",
            "Further right is better. The cache was emptied first; one reading thread per log dir.",
            "read",
        ),
        MB_S, phase_rows("read", is_limited=True), only("read in order"),
    ),
    Sheet(
        Plot(
            "How long does it take to read one record at random, from the disks?",
            "Further left is better. The log's pages are dropped from the cache before each read, "
            "and no decoded batch is cached: each read takes a batch of 100 records from a disk.",
            "point-read",
        ),
        MS, phase_rows("point-read"), only("one record"),
    ),
    Sheet(
        Plot(
            "How fast is a store open again after its process died without any flush?",
            "Further right is better. Bytes of log checked per second, from the disks, over the "
            "whole opening.",
            "recover",
        ),
        MB_S, phase_rows("recover", is_limited=True), only("recovery"),
    ),
    Sheet(
        Plot(
            "How much does a move in the background slow appends down?",
            "Further left is better. One append every 5 ms, flushed every 100 ms, on the disk from "
            "which the replica is moved.",
            "move",
        ),
        MS, beside_moves, beside_of,
    ),
    Sheet(
        Plot(
            "How fast is the move during the appends?",
            "Throttled: limited to half of the measured write rate of one disk.",
            "move-rate",
        ),
        MOVED, moves_done, lambda row: str(row["detail"]),
    ),
    Sheet(
        Plot(
            "How are the other disks affected while one disk is slow, full or dead?",
            "Further left is better. Durable appends, one thread per disk: the median of the other "
            "disks, and the worst 99th percentile of them. Layouts with one log dir are left out.",
            "beside",
        ),
        MS, other_disks, trouble_of,
    ),
    Sheet(
        Plot(
            "How many records does a layout still accept while one of its disks is slow, full or "
            "dead?",
            "Further right is better. A figure above 1 is possible, because the other disks can "
            "use more of the processor. A RAID is one file system, so a full RAID accepts nothing.",
            "kept",
        ),
        KEPT, kept_in_trouble, trouble_of,
    ),
    Sheet(
        Plot(
            "How many bytes of disk are needed for each byte that can be used?",
            "Further left is better. Mirrors cost 2, and a file system uses some bytes itself.",
            "cost",
        ),
        COST, costs, only("bytes bought"),
    ),
)  # fmt: skip


def draw_all(directory: str, measurements: Sequence[Row], workers: Sequence[Row]) -> list[Plot]:
    """Draw every plot for which there are figures."""
    album = Album(directory)
    for sheet in SHEETS:
        chosen = sheet.rows(measurements, workers)
        rows = [row for row in chosen if row[sheet.scale.middle] is not None]
        if sheet.is_by_writers:
            album.draw_panels(sheet.plot, rows, sheet.scale, sheet.label)
        else:
            album.draw(sheet.plot, rows, sheet.scale, sheet.label, sheet.line)
    return album.plots
