"""Kill a writing process again and again and hold what is left against what it acknowledged.

Run as a program: a small process that forks each writer, because a fresh interpreter costs ten
times as much. Prints one JSON line: kills, records checked, operations acknowledged, seed.

    python tests/kill/kill_loop.py --kills 1000 --seed 7 --dir /dev/shm/x
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import LogConfig, LogStore
from support.expectation import Expectation, Violation
from support.reader import read_partition
from support.writer import Writer

LIVES_PER_STORE = 25
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=512)


def write_until_killed(root: Path, life: int, seed: int, fd: int) -> None:
    """Open the store, which recovers it, and write."""
    rng = random.Random(seed)
    store = LogStore.open([root / "a", root / "b"])
    if ("orders", 0) in store:
        log = store.log("orders", 0)
    else:
        log = store.create("orders", 0, config=CONFIG)
    os.write(fd, b"O %d %d\n" % (log.log_start_offset, log.log_end_offset))
    writer = Writer(log, life, rng, fd)
    if life % 5 == 4:
        writer.run_threads(4)
    writer.run()


class KillLoop:
    """One store after the other, each written to and killed some tens of times."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.rng = base, random.Random(seed)
        self.kills = self.records = self.operations = self.early = self.cut = 0
        self.next_store = 0
        self.root = base
        self.expected = Expectation()

    def run(self, kills: int) -> None:
        """Kill writers one after another; raises Violation at the first broken promise."""
        while self.kills < kills:
            if self.kills >= self.next_store:
                self.next_store = self.kills + LIVES_PER_STORE
                shutil.rmtree(self.root, ignore_errors=True)
                self.root = self.base / f"store{self.kills}"
                self.root.mkdir(parents=True)
                self.expected = Expectation()
            self.one_life(self.kills)
            self.kills += 1
            while self.rng.random() < 0.25:
                self.kill_in_recovery()
                self.kills += 1
            self.check()

    def one_life(self, life: int) -> None:
        """Fork a writer, listen, and kill it at a random moment."""
        read_fd, write_fd = os.pipe()
        seed = self.rng.getrandbits(32)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read_fd)
                write_until_killed(self.root, life, seed, write_fd)
            except BaseException as error:  # noqa: BLE001 - the parent must hear of everything
                os.write(write_fd, f"E {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(3)
        os.close(write_fd)
        heard = self.listen(read_fd, pid)
        os.close(read_fd)
        _, status = os.waitpid(pid, 0)
        lines = heard.split(b"\n")[:-1]
        errors = [line for line in lines if line.startswith(b"E ")]
        if errors or not os.WIFSIGNALED(status):
            raise Violation(f"the writer of life {life} failed: {errors} {lines[-3:]}")
        self.follow(life, lines)

    def listen(self, fd: int, pid: int) -> bytes:
        """Wait for a random moment of the writer's life, kill it, and give all it said."""
        heard = b""
        if self.rng.random() < 0.1:
            self.pause(0.02)
        else:
            lines = 1 + int(self.rng.expovariate(1 / 120))
            while heard.count(b"\n") < lines:
                data = os.read(fd, 65536)
                heard += data
                if not data:
                    break
            self.pause(0.001)
        os.kill(pid, signal.SIGKILL)
        while data := os.read(fd, 65536):
            heard += data
        return heard

    def pause(self, seconds_max: float) -> None:
        """Let the writer go on for a random while."""
        select.select([], [], [], self.rng.random() * seconds_max)

    def kill_in_recovery(self) -> None:
        """Fork a process that only opens and closes the store, and kill it meanwhile."""
        pid = os.fork()
        if pid == 0:
            try:
                LogStore.open([self.root / "a", self.root / "b"]).close()
                signal.pause()
            finally:
                os._exit(3)
        self.pause(0.015)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            raise Violation("a store could not be opened again")

    def follow(self, life: int, lines: list[bytes]) -> None:
        """Take in what a writer said; its first line says what its recovery found."""
        if not lines:
            self.early += 1
            return
        _, start, end = lines[0].split()
        expected = self.expected
        if (int(start), int(end)) != (expected.start, expected.end):
            raise Violation(f"{lines[0]!r} right after a check of {expected.start, expected.end}")
        expected.begin(life)
        for line in lines[1:]:
            expected.hear(line)
            self.operations += line.startswith(b"A")

    def read_files(self) -> list[tuple[int, bytes]]:
        (path,) = [p for p in self.root.glob("*/orders-0") if p.is_dir()]
        found = read_partition(path)
        return [(r.offset, r.value or b"") for batch in found for r in batch.records]

    def check(self) -> None:
        """Open the store, which recovers it, and hold every record against the acknowledged."""
        with LogStore.open([self.root / "a", self.root / "b"]) as store:
            if ("orders", 0) not in store:
                if self.expected.end or self.expected.pending:
                    raise Violation("an acknowledged partition is gone")
                return
            log = store.log("orders", 0)
            entries = [e for e in store.recovery_report.entries if e.topic == "orders"]
            if any(e.state == "corrupt" for e in entries):
                raise Violation(f"a kill is no corruption: {store.recovery_report}")
            self.cut += sum(e.cut_bytes > 0 for e in entries)
            start, end = log.log_start_offset, log.log_end_offset
            found = [(r.offset, r.value or b"") for r in log]
            if [r for r in self.read_files() if start <= r[0] < end] != found:
                raise Violation("the engine and the independent reader disagree")
            self.expected.settle(start, end, found)
            self.records += len(found)


def main() -> int:
    """Run the loop and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    loop = KillLoop(options.dir, options.seed)
    figures: dict[str, object] = {"seed": options.seed}
    try:
        loop.run(options.kills)
    except Violation as violation:
        figures["violation"] = f"life {loop.kills} in {loop.root}: {violation}"
    names = ("kills", "records", "operations", "early", "cut")
    figures.update({name: getattr(loop, name) for name in names})
    print(json.dumps(figures))
    if "violation" not in figures:
        shutil.rmtree(options.dir, ignore_errors=True)
    return int("violation" in figures)


if __name__ == "__main__":
    sys.exit(main())
