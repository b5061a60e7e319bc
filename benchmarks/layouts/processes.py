"""Append with one process a disk: what one for all is compared with (KIP-112).

Run as `python -m benchmarks.layouts.processes DIR BYTES RECORD_BYTES BATCH_RECORDS SYNC`, this file
is one such process: it says `ready`, waits for a line, appends and flushes, and leaves its samples.
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


class AppendByProcesses(Phase):
    """How fast can be appended with a process a disk?"""

    def prepare(self) -> None:
        """Start the processes, and wait until each has its store open."""
        share = self.bed.budget_bytes(self.case) // len(self.bed.store_dirs)
        case = self.case
        sizes = [str(share), str(case.record_bytes), str(case.batch_records), case.sync]
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.layouts.processes", path, *sizes],
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
        """Let all of them go at once, and wait for all of them."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        for child in self._children:
            assert child.stdout is not None
            child.stdout.readline()

    def finish(self) -> None:
        """Collect the samples, end the processes, remove the stores."""
        samplers = []
        for number, (child, path) in enumerate(
            zip(self._children, self.bed.store_dirs, strict=True)
        ):
            child.communicate()
            sampler = Sampler(number)
            for row in np.load(os.path.join(path, SAMPLES_FILE)).tolist():
                sampler.rows.append((*row, number))
            samplers.append(sampler)
        self._count(samplers)
        super().finish()


def main(path: str, size_bytes: int, case: Case) -> None:
    """Be one process with one disk."""
    bed = Bed([os.path.dirname(path)], 1.0)
    bed.store_dirs = [path]
    with bed.open_store(case) as store:
        logs = make_logs(store, case)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        samplers = [Sampler(0)]
        fill(logs, case, size_bytes, samplers)
        store.flush()
        sys.stdout.write("done\n")
        sys.stdout.flush()
    rows = np.array([row[:4] for row in samplers[0].rows], np.int64)
    np.save(os.path.join(path, SAMPLES_FILE), rows)


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        Case("append", int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]),
    )
