"""Load a store from many threads, and do as told on stdin: the program that the faults happen to.

    python load.py SETTINGS        SETTINGS: JSON, see `Settings`

A line of JSON on stdin is a command, its answer a line on stdout. Every acknowledged record is
written to the file of acknowledgements, outside the disks, before anything else happens:
`<dir> <partition> <offset> <number> <is_durable>`. `value_of(dir, number)` is its value.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import LogConfig, LogStore, LogStoreError, StoreConfig
from support.writer import value_of


class Settings(NamedTuple):
    """What to load: a topic for each log dir, its threads append; odd partitions durably."""

    log_dirs: list[str]
    threads: list[int]
    acknowledged: str
    shared: int = 100  # at most so many partitions for the threads of a log dir
    pool: int = 0
    partitions: int = 0  # idle ones, made besides
    segment_bytes: int = 1 << 20
    first: int = 0  # number of each writer's first record
    suspect_ms: int = 1000
    pause_seconds: float = 0.002  # between two calls of a thread


class Writer:
    """One thread that appends to one partition, time after time, whatever happens."""

    def __init__(self, load: Load, place: int, partition: int) -> None:
        self.load, self.place, self.partition = load, place, partition % load.settings.shared
        self.is_durable = self.partition % 2 == 1
        self.number = load.settings.first + partition
        self.inside: str | None = None  # the phase in which the call began that it is in
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as waits:
            while not self.load.stopped.wait(self.load.settings.pause_seconds):
                self.append(waits)

    def append(self, waits: Any) -> None:
        """Append once; what a busy machine takes from the time is taken off."""
        number, self.number = self.number, self.number + len(self.load.writers)
        value = value_of(self.place, number)
        phase, waited = self.load.phase, waited_seconds(waits)
        self.inside = phase
        begun = time.perf_counter()
        try:
            log = self.load.store.log(f"dir{self.place}", self.partition)
            offset = log.append(value, durable=self.is_durable)
            self.inside = None
        except LogStoreError as error:
            self.inside = None
            took = time.perf_counter() - begun - (waited_seconds(waits) - waited)
            self.load.refused(phase, self.place, error, took)
            return
        self.load.acknowledge(self.place, self.partition, offset, number, self.is_durable)
        took = time.perf_counter() - begun - (waited_seconds(waits) - waited)
        self.load.took[phase, self.place].append(took)


def waited_seconds(waits: Any) -> float:
    """Give how long this thread stood ready to run and was not let run."""
    return int(os.pread(waits.fileno(), 100, 0).split()[1]) / 1e9


class Load:
    """The store, its writers, and what became of every call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counts_before = self.do_counts()
        self.stopped = threading.Event()
        self.phase = "start"
        self.took: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.refusals: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.served: dict[tuple[str, int], int] = defaultdict(int)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.acknowledged = os.open(settings.acknowledged, flags)
        config = StoreConfig(
            log_config=LogConfig(segment_bytes=settings.segment_bytes),
            log_dir_suspect_ms=settings.suspect_ms,
        )
        self.store = LogStore.open(settings.log_dirs, config=config)
        self.writers = [
            Writer(self, place, partition)
            for place, count in enumerate(settings.threads)
            for partition in range(count)
        ]
        for writer in self.writers:
            self.create(writer.place, writer.partition)
        self.create_idle()
        for writer in self.writers:
            writer.thread.start()
        self.pool = [threading.Thread(target=self.serve, daemon=True) for _ in range(settings.pool)]
        for thread in self.pool:
            thread.start()

    def create(self, place: int, partition: int) -> None:
        """Make a partition that is not there, also while its disk is bad at the start."""
        name = (f"dir{place}", partition)
        if name not in self.store and not self.is_offline(place):
            self.store.create(*name, log_dir=self.settings.log_dirs[place], is_new=True)

    def create_idle(self) -> None:
        """Make the partitions that nobody writes to, one record in each."""
        count = self.settings.partitions
        for number in range(count):
            place = number % len(self.settings.log_dirs)
            self.create(place, 100 + number)
            self.store.log(f"dir{place}", 100 + number).append(value_of(place, number))
        self.store.flush()
        for number in range(count):
            self.acknowledge(number % len(self.settings.log_dirs), 100 + number, 0, number, True)

    def is_offline(self, place: int) -> bool:
        (row,) = self.store.describe_dirs([self.settings.log_dirs[place]]).log_dirs
        return not row.is_live

    def acknowledge(
        self, place: int, partition: int, offset: int, number: int, is_durable: bool
    ) -> None:
        line = b"%d %d %d %d %d\n" % (place, partition, offset, number, is_durable)
        os.write(self.acknowledged, line)

    def refused(self, phase: str, place: int, error: LogStoreError, took: float) -> None:
        self.refusals[phase, place][type(error).__name__].append(took)

    def serve(self) -> None:
        """Be one thread of a service's pool: requests for all disks in turn, reads and appends."""
        turn = threading.get_ident()
        count = len(self.settings.threads)
        while not self.stopped.wait(self.settings.pause_seconds):
            turn += 1
            place, phase = turn % count, self.phase
            begun = time.perf_counter()
            try:
                log = self.store.log(f"dir{place}", 0)
                log[max(0, log.log_end_offset - 1)]
                if turn // count % 2:
                    self.store.log(f"dir{place}", 2).append(b"service", durable=True)
                self.served[phase, place] += 1
            except LogStoreError as error:
                self.refused(phase, place, error, time.perf_counter() - begun)

    # --- commands ---------------------------------------------------------------------------------

    def do_phase(self, name: str) -> None:
        """Begin a phase: what is called from now on counts for it."""
        self.phase = name

    def do_states(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.store.describe_dirs().to_dict()["log_dirs"]]

    def do_metrics(self) -> dict[str, Any]:
        return self.store.metrics().to_dict()

    def do_appended(self, phase: str) -> list[int]:
        """Count the appends of a phase by log dir."""
        return [len(self.took[phase, place]) for place in range(len(self.settings.threads))]

    def do_figures(self, phase: str) -> list[dict[str, Any]]:
        """Give the appends of a phase by log dir, times in ms, and what was refused."""
        figures = []
        # All are taken before the first is sorted: what the sorting holds up is not of the phase.
        all_took = [list(self.took[phase, place]) for place in range(len(self.settings.threads))]
        for place, of_place in enumerate(all_took):
            took = sorted(of_place) or [0.0]
            refusals = self.refusals[phase, place]
            figures.append(
                {
                    "count": len(of_place),
                    "p50": statistics.median(took) * 1e3,
                    "p99": took[len(took) * 99 // 100] * 1e3,
                    "max": took[-1] * 1e3,
                    "took": [round(seconds * 1e3, 3) for seconds in took],
                    "served": self.served[phase, place],
                    "refused": {name: len(times) for name, times in refusals.items()},
                    "refused_ms_max": {name: max(t) * 1e3 for name, t in refusals.items()},
                }
            )
        return figures

    def do_call(self, name: str, path: str) -> None:
        """Call a method of the store with a log dir."""
        getattr(self.store, name)(path)

    def do_held(self, under: str) -> list[str]:
        """List the files and maps that this process has open below a directory."""
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        paths = []
        for link in links:
            try:
                paths.append(os.readlink(link))
            except FileNotFoundError:
                continue
        maps = Path("/proc/self/maps").read_text().splitlines()
        paths += [line.split(maxsplit=5)[-1] for line in maps]
        return sorted(path for path in set(paths) if path.startswith(under + "/"))

    def do_inside(self, place: int, phases: list[str]) -> int:
        """Count the writers to a log dir that are in a call which began in one of some phases."""
        return sum(w.place == place and w.inside in phases for w in self.writers)

    def do_counts(self) -> dict[str, int]:
        return {"fds": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}

    def do_check(self, durable_only: list[int]) -> dict[str, Any]:
        """Read every acknowledged record; of some log dirs only the durable ones must be there."""
        checked, lost, wrong = 0, [], []
        for line in Path(self.settings.acknowledged).read_text().splitlines():
            place, partition, offset, number, is_durable = map(int, line.split())
            if place in durable_only and not is_durable:
                continue
            checked += 1
            try:
                value = self.store.log(f"dir{place}", partition)[offset].value
            except LogStoreError as error:
                lost.append(f"{line}: {error}")
                continue
            if value != value_of(place, number):
                wrong.append(f"{line}: {value!r:.60}")
        return {"checked": checked, "lost": lost[:9], "wrong": wrong[:9]}

    def do_counts_before(self) -> dict[str, int]:
        """Give the counts before the store was opened, with the file of acknowledgements."""
        return {**self.counts_before, "fds": self.counts_before["fds"] + 1}

    def do_stop(self) -> None:
        """Let the writers end."""
        self.stopped.set()
        for thread in [*(writer.thread for writer in self.writers), *self.pool]:
            thread.join()

    def do_close(self) -> list[str]:
        self.stopped.set()
        return list(self.store.close(timeout=10))


def main() -> None:
    load = Load(Settings(**json.loads(sys.argv[1])))
    print(json.dumps("open"), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        command: Callable[..., object] = getattr(load, f"do_{name}")
        try:
            answer = {"result": command(*arguments)}
        except LogStoreError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
