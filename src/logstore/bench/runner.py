"""Run the cases of a plan on the directories under test, one by one, and write the results.

The results in a directory are `trace/` (a store with every operation, see `samples`) and
`<layout>.json` in pytest-benchmark's form. The `extra_info` in this JSON describes the disks.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from logstore.bench.bed import Bed
from logstore.bench.cases import Case
from logstore.bench.phases import PHASES, Phase
from logstore.bench.samples import Trace, joined
from logstore.disk import files


class Layout(NamedTuple):
    """Describe the disks on which a layout's log dirs are.

    Attributes:
        devices: the number of disks in total.
        raw_bytes: the size of all disks; 0 if the disks also have other files.
        usable_bytes: how many bytes can be stored on the disks; 0 if the disks also have other
            files.
        note: a remark that a reader of the figures needs.
        set_bytes_per_second: the speed limit of each disk; 0 if there is no limit.
    """

    name: str
    fs: str
    devices: int
    log_dirs: int
    raw_bytes: int
    usable_bytes: int
    note: str = ""
    set_bytes_per_second: int = 0


class Outcome(NamedTuple):
    """Hold the results of one case: seconds, bytes and records of every round."""

    case: Case
    seconds: list[float]
    size_bytes: list[int]
    records: list[int]
    latency_ns: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def bytes_per_second(self) -> float:
        """The median of the rounds' bytes per second."""
        rates = [size / took for size, took in zip(self.size_bytes, self.seconds, strict=True)]
        return float(np.median(rates))

    @property
    def records_per_second(self) -> float:
        """The median of the rounds' records per second."""
        rates = [count / took for count, took in zip(self.records, self.seconds, strict=True)]
        return float(np.median(rates))

    def latency_ms(self, percent: float) -> float:
        """Compute a percentile of the latencies, in ms; return 0.0 if there were no operations."""
        return float(np.percentile(self.latency_ns, percent)) / 1e6 if len(self.latency_ns) else 0.0


def measure(phase: Phase, trace: Trace, measurement: str) -> Outcome:
    """Run the rounds of a phase, and write its samples to the trace."""
    seconds: list[float] = []
    sizes: list[int] = []
    records: list[int] = []
    try:
        for _ in range(phase.case.rounds):
            try:
                phase.prepare()
                gc.collect()
                began = time.perf_counter()
                phase.run()
                took = time.perf_counter() - began
                seconds.append(took if phase.seconds is None else phase.seconds)
            finally:
                phase.finish()
            sizes.append(phase.size_bytes)
            records.append(phase.records)
    finally:
        phase.close()
    samples = joined(phase.samplers)
    trace.write(measurement, samples)
    operations = samples[samples["records"] > 0]
    return Outcome(phase.case, seconds, sizes, records, operations["latency_ns"])


def measurement_of(layout: Layout, case: Case) -> str:
    """Return the name of a measurement: the key of its samples, also used in the JSON."""
    return f"{layout.name}/{case.phase}/{case.name}"


def run_cases(
    layout: Layout,
    bed: Bed,
    cases: list[Case],
    trace: Trace,
    *,
    make: Callable[[Bed, Case], Phase] | None = None,
    own: Collection[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Outcome]:
    """Run cases in order.

    Args:
        make: returns the phase of a case for which this package has no class (move, beside).
        own: names of phases for which `make` is called, although this package has a class for the
            phase.
        progress: called before each case with its name, its number, and the number of cases.
    """
    outcomes = []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(f"{case.phase} {case.name}", number, len(cases))
        kind = None if case.phase in own else PHASES.get(case.phase, make)
        factory = kind or make
        if factory is None:
            raise ValueError(f"no phase is defined for {case.phase!r}")
        phase = factory(bed, case)
        outcomes.append(measure(phase, trace, measurement_of(layout, case)))
    return outcomes


# --- the JSON -------------------------------------------------------------------------------------


def stats_of(seconds: list[float]) -> dict[str, Any]:
    """Compute the figures of some rounds as pytest-benchmark does."""
    data = np.array(seconds)
    low, median, high = (float(q) for q in np.percentile(data, (25, 50, 75)))
    return {
        "min": float(data.min()),
        "max": float(data.max()),
        "mean": float(data.mean()),
        "stddev": float(data.std(ddof=1)) if len(data) > 1 else 0.0,
        "rounds": len(data),
        "median": median,
        "iqr": high - low,
        "q1": low,
        "q3": high,
        "ops": 1 / float(data.mean()),
        "total": float(data.sum()),
        "data": seconds,
        "iterations": 1,
    }


def document(layout: Layout, bed: Bed, outcomes: list[Outcome]) -> dict[str, Any]:
    """Build a document in pytest-benchmark's form from the results of one layout."""
    facts = layout._asdict() | {"calibrated_bytes_per_second": int(bed.bytes_per_second)}
    facts["layout"] = facts.pop("name")
    facts["disks"] = facts.pop("devices")
    return {
        "machine_info": {
            "machine": platform.machine(),
            "system": platform.system(),
            "release": platform.release(),
            "python_version": platform.python_version(),
            "cpu": {"brand_raw": processor(), "count": os.cpu_count()},
        },
        "commit_info": {"id": metadata.version("logstore"), "dirty": False},
        "benchmarks": [
            {
                "group": outcome.case.phase,
                "name": measurement_of(layout, outcome.case),
                "fullname": measurement_of(layout, outcome.case),
                "params": {key: str(part) for key, part in outcome.case._asdict().items()},
                "extra_info": facts
                | {
                    "sync": outcome.case.sync,
                    "writers": outcome.case.writers,
                    "record_bytes": outcome.case.record_bytes,
                    "detail": outcome.case.detail,
                    "bytes": int(np.median(outcome.size_bytes)),
                    "records": int(np.median(outcome.records)),
                    "round_bytes": outcome.size_bytes,
                },
                "stats": stats_of(outcome.seconds),
            }
            for outcome in outcomes
        ],
        "datetime": datetime.now(UTC).isoformat(),
        "version": "logstore-bench-1",
    }


def write_document(directory: str, layout: Layout, bed: Bed, outcomes: list[Outcome]) -> str:
    """Write the document of a layout, and return its path."""
    path = os.path.join(directory, f"{layout.name}.json")
    text = json.dumps(document(layout, bed, outcomes), indent=1)
    files.write_atomically(path, text.encode())
    return path


def processor() -> str:
    """Return the name of the processor."""
    try:
        fd = files.open_file("/proc/cpuinfo", files.READ)
    except OSError:
        return platform.machine()
    try:
        facts = files.read_up_to(fd, 4096, 0).decode(errors="replace")
    finally:
        files.close(fd)
    names = [line for line in facts.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()
