"""Append with one process per disk, to compare with one process for all disks (KIP-112).

`python -m benchmarks.layouts.processes DIR BYTES RECORD_BYTES BATCH_RECORDS SYNC WRITERS` runs one
such process. The process prints `ready`, waits for a line on stdin, appends with WRITERS threads,
flushes, prints `done`, and writes its samples to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from logstore.bench.bed import Bed
from logstore.bench.cases import Case
from logstore.bench.phases import Phase, fill, make_logs
from logstore.bench.samples import Sampler

SAMPLES_FILE = "samples.npy"
GO = b"go\n"


class AppendByProcesses(Phase):
    """Measure how fast records are appended with one process per disk."""

    def __init__(self, bed: Bed, case: Case) -> None:
        super().__init__(bed, case)
        self._children: list[subprocess.Popen[bytes]] = []
        self._is_done = False

    def prepare(self) -> None:
        """Start the processes, and wait until each process has opened its store."""
        self._is_done = False
        share = self.bed.budget_bytes(self.case) // len(self.bed.store_dirs)
        case = self.case
        writers = case.writers // len(self.bed.store_dirs)
        facts = [share, case.record_bytes, case.batch_records, case.sync, writers]
        self._children += [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.layouts.processes", path, *map(str, facts)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for path in self.bed.store_dirs
        ]
        for child in self._children:
            assert child.stdout is not None
            if child.stdout.readline() != b"ready\n":
                raise RuntimeError("a process of the benchmark did not start")

    def run(self) -> None:
        """Start the appends of all processes at the same time, and wait for all processes."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(GO)
            child.stdin.flush()
        for child in self._children:
            assert child.stdout is not None
            if child.stdout.readline() != b"done\n":
                raise RuntimeError("a process of the benchmark ended early")
        self._is_done = True

    def finish(self) -> None:
        """End the processes, collect the samples, remove the stores."""
        for child in self._children:
            if not self._is_done:
                child.kill()
            child.communicate()
        self._children.clear()
        samplers = []
        for number, path in enumerate(self.bed.store_dirs):
            file = os.path.join(path, SAMPLES_FILE)
            if os.path.exists(file):  # the file is missing if the process ended early
                sampler = Sampler(number)
                sampler.rows += [(*row, number) for row in np.load(file).tolist()]
                samplers.append(sampler)
        self._count(samplers)
        super().finish()


def main(path: str, size_bytes: int, case: Case) -> None:
    """Run the work of one process on one disk."""
    bed = Bed([os.path.dirname(path)], 1.0)
    bed.store_dirs = [path]
    with bed.open_store(case) as store:
        logs = make_logs(store, case)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if os.read(0, len(GO)) != GO:
            return  # the process that started this process has ended
        samplers = [Sampler(worker) for worker in range(case.writers)]
        fill(logs, case, size_bytes, samplers)
        store.flush()
        sys.stdout.write("done\n")
        sys.stdout.flush()
    rows = np.array([row[:4] for sampler in samplers for row in sampler.rows], np.int64)
    np.save(os.path.join(path, SAMPLES_FILE), rows)


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        Case("append", int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6])),
    )
