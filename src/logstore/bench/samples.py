"""Store the start and the latency of every operation in a logstore topic: the trace.

A record's key is the name of the measurement, `layout/phase/case`, as in pytest-benchmark's JSON.
The record's timestamp is the start of the operation. The record's value is 32 bytes, little-endian,
in this order:

    start_ns i64     since the epoch
    latency_ns i64
    size_bytes i64   bytes of the records' values
    records i32      0 for work that ran beside the operations, such as a whole move
    worker i32       number of the writer or reader; if each worker has its own disk, this is the
                     number of the disk
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from logstore import LogStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOPIC = "samples"
SAMPLE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("latency_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("records", "<i4"),
        ("worker", "<i4"),
    ]
)
assert SAMPLE.itemsize == 32
CHUNK = 10_000  # how many records a batch of the trace has


class Sampler:
    """Collect the samples of one worker; only the thread of this worker adds samples."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.rows: list[tuple[int, int, int, int, int]] = []

    def add(self, began_ns: int, size_bytes: int, records: int) -> int:
        """Remember an operation that began at `began_ns` of the monotonic clock and ends now."""
        now = time.perf_counter_ns()
        self.rows.append((began_ns, now - began_ns, size_bytes, records, self.worker))
        return now

    def __len__(self) -> int:
        """Count the operations."""
        return len(self.rows)

    def array(self) -> NDArray[np.void]:
        """Return the samples; their starts are times of the monotonic clock."""
        return np.array(self.rows, SAMPLE)


def joined(samplers: list[Sampler]) -> NDArray[np.void]:
    """Merge the samples of several workers, sorted by start; starts become ns since the epoch."""
    rows = np.concatenate([sampler.array() for sampler in samplers] or [np.empty(0, SAMPLE)])
    rows["start_ns"] += time.time_ns() - time.perf_counter_ns()
    return rows[np.argsort(rows["start_ns"], kind="stable")]


class Trace:
    """Write samples into the topic `samples` of a separate store."""

    def __init__(self, directory: str) -> None:
        self._store = LogStore.open([directory], admin_socket=False)
        if (TOPIC, 0) not in self._store:
            self._store.create(TOPIC, 0)
        self._log = self._store.log(TOPIC, 0)

    def write(self, measurement: str, samples: NDArray[np.void]) -> None:
        """Append the samples of a measurement."""
        key = measurement.encode()
        for start in range(0, len(samples), CHUNK):
            part = samples[start : start + CHUNK]
            self._log.extend(
                np.ascontiguousarray(part).view("V32").tolist(),
                keys=[key] * len(part),
                timestamps=(part["start_ns"] // 1_000_000).tolist(),
            )

    def close(self) -> None:
        """Flush and close the trace."""
        self._store.close()

    def __enter__(self) -> Self:
        """Return the trace itself."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Close the trace."""
        self.close()
