"""Compare KIP-112's claims about JBOD and RAID with the measured figures.

A claim is shown only if its layouts were measured. A figure is a ratio of two medians. Both medians
were measured in one run, on disks with the same speed limit. The figures do not cover seek times,
controllers or networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

Row = dict[str, Any]


class Claim(NamedTuple):
    """Hold one claim: its place in KIP-112, its text, and the measured result."""

    source: str
    says: str
    measured: str


class Figures:
    """Look up measured figures by layout."""

    def __init__(self, measurements: Sequence[Row], workers: Sequence[Row]) -> None:
        self._measurements = measurements
        self._workers = workers

    def rate(self, layout: str, phase: str, **facts: Any) -> float | None:
        """Return the largest median MB/s among a layout's cases of a phase."""
        rates = [
            row["mb_s"]
            for row in self._measurements
            if row["layout"] == layout
            and row["phase"] == phase
            and all(row.get(name) == value for name, value in facts.items())
        ]
        return max(rates) if rates else None

    def ratio(self, layout: str, other: str, phase: str, **facts: Any) -> float | None:
        """Divide the rate of a layout by the rate of another layout."""
        ours, theirs = self.rate(layout, phase, **facts), self.rate(other, phase, **facts)
        return ours / theirs if ours is not None and theirs else None

    def usable(self, layout: str) -> float | None:
        """Return a layout's usable bytes as a fraction of all bytes of its disks."""
        for row in self._measurements:
            if row["layout"] == layout and row["raw_bytes"]:
                return float(row["usable_bytes"] / row["raw_bytes"])
        return None

    def serving(self, layout: str) -> tuple[int, int] | None:
        """Return how many log dirs appended while a disk was dead, and how many log dirs exist.

        A log dir counts as appending if it got at least half of its bytes with healthy disks.
        """
        found: dict[str, dict[int, int]] = {"healthy": {}, "failed": {}}
        for row in self._workers:
            if row["layout"] == layout and row["phase"] == "beside" and row["detail"] in found:
                found[row["detail"]][row["worker"]] = row["operations"]
        well, beside = found["healthy"], found["failed"]
        if not well:
            return None
        return sum(beside.get(worker, 0) * 2 >= count for worker, count in well.items()), len(well)

    def pairs(self, layout: str, other: str, phase: str) -> list[float]:
        """Compute the ratio of two layouts' rates, for each case that both layouts have."""
        rates: dict[str, dict[str, float]] = {layout: {}, other: {}}
        for row in self._measurements:
            if row["layout"] in rates and row["phase"] == phase:
                rates[row["layout"]][row["measurement"].rsplit("/", 1)[-1]] = row["mb_s"]
        return [rate / rates[other][case] for case, rate in rates[layout].items()
                if rates[other].get(case)]  # fmt: skip


def claims(measurements: Sequence[Row], workers: Sequence[Row]) -> list[Claim]:
    """Return every claim for which there are figures."""
    figures = Figures(measurements, workers)
    found = [
        _space(figures),
        *(_parity(figures, raid) for raid in ("raid5", "raid6")),
        _failure(figures),
        _processes(figures),
    ]
    return [claim for claim in found if claim is not None]


def _space(figures: Figures) -> Claim | None:
    jbod, raid = figures.usable("jbod4-ext4"), figures.usable("raid10-btrfs")
    rate = figures.ratio("jbod4-ext4", "raid10-btrfs", "append", sync="none")
    if jbod is None or raid is None or rate is None:
        return None
    return Claim(
        "Motivation",
        "RAID-10 stores every byte of each replica twice; JBOD stores every byte once.",
        f"{jbod / raid:.2f} times the usable bytes of RAID-10 over the same four disks, "
        f"and {rate:.2f} times its append rate.",
    )


def _parity(figures: Figures, raid: str) -> Claim | None:
    layout = f"{raid}-btrfs"
    append = figures.ratio(layout, "raid0-btrfs", "append", sync="none")
    read = figures.ratio(layout, "raid0-btrfs", "read")
    if append is None or read is None:
        return None
    return Claim(
        "Rejected alternatives: RAID-5/6",
        "RAID-5 and RAID-6 lose some 30 to 50 % in normal operation.",
        f"{raid.upper().replace('RAID', 'RAID-')}: {append - 1:+.0%} against RAID-0 in appends, "
        f"{read - 1:+.0%} in reads in order.",
    )


def _failure(figures: Figures) -> Claim | None:
    jbod, raid = figures.serving("jbod4-ext4"), figures.serving("raid0-btrfs")
    if jbod is None or raid is None:
        return None
    return Claim(
        "Motivation",
        "RAID-0 stops with one failed disk; with JBOD the other disks continue.",
        f"JBOD-4: {jbod[0]} of {jbod[1]} log dirs continued to accept durable appends; RAID-0 "
        f"over four disks: {raid[0]} of {raid[1]}, within the seconds of the test (a file system "
        "may continue to run on a dead disk until it needs the disk).",
    )


def _processes(figures: Figures) -> Claim | None:
    ratios = figures.pairs("jbod4-ext4-processes", "jbod4-ext4", "append")
    if not ratios:
        return None
    return Claim(
        "Rejected alternatives: one broker per disk",
        "One broker per disk gave 15 % less throughput than one broker for all disks.",
        f"One process per disk appended {median(ratios) - 1:+.0%} against one process for all "
        f"disks with as many writers (median of {len(ratios)} case{'s' * (len(ratios) > 1)}, from "
        f"{min(ratios) - 1:+.0%} to {max(ratios) - 1:+.0%}). There is no network here, and one "
        "Python process has one interpreter lock, so this comparison differs from the claim's.",
    )
