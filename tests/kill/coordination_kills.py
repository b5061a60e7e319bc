"""Kill a process that writes to an embedded coordination store, and check what it acknowledged.

Run as a program: it forks each writer, kills it at a random moment, and opens the store itself.
Prints one JSON line: kills, changes acknowledged, seed.

    python tests/kill/coordination_kills.py --kills 20 --seed 7 --dir /dev/shm/x
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import Create, Session, Set

SETTINGS = EmbeddedSettings(rewrite_bytes_min=3000)


class Violation(Exception):
    """The store has lost a change, or invented one."""


def number_of(session: Session) -> int:
    """Read the number of the last change from two znodes that one change writes."""
    try:
        first, second = session.get("/first").data, session.get("/second").data
    except NoNodeError:
        return 0
    if first[:10] != second:
        raise Violation(f"half a change: {first!r} and {second!r}")
    return int(second)


def write_until_killed(paths: list[str], seed: int, fd: int) -> None:
    """Open the store and change it for ever; say each number before and after its change."""
    rng = random.Random(seed)
    session = EmbeddedStore(paths, SETTINGS).connect()
    number = number_of(session)
    for place in range(3):
        session.create(f"/mine-{place}", ephemeral=True)
    while True:
        number += 1
        data = b"%010d" % number
        os.write(fd, b"S %d 0\n" % number)
        padded = data + b"x" * rng.choice((0, 10, 2000))
        if number == 1:
            session.multi([Create("/first", padded), Create("/second", data)])
        else:
            session.multi([Set("/first", padded), Set("/second", data)])
        os.write(fd, b"A %d %d\n" % (number, session.zxid()))


class Loop:
    """One store, and the writers that are killed."""

    def __init__(self, base: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.paths = [str(base / name) for name in ("a", "b")]
        for path in self.paths:
            os.makedirs(path)
        self.sent = self.acknowledged = self.zxid = self.kills = 0

    def run(self, kills: int) -> None:
        """Kill writers one after another; raises Violation at the first broken promise."""
        while self.kills < kills:
            self.one_life()
            self.kills += 1
            self.check()

    def one_life(self) -> None:
        """Fork a writer, listen, and kill it at a random moment."""
        read_fd, write_fd = os.pipe()
        seed = self.rng.getrandbits(32)
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read_fd)
                write_until_killed(self.paths, seed, write_fd)
            except BaseException as error:  # noqa: BLE001 - the parent must hear of everything
                os.write(write_fd, f"E {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(3)
        os.close(write_fd)
        heard, lines = b"", int(self.rng.expovariate(1 / 60))
        while heard.count(b"\n") < lines and (data := os.read(read_fd, 65536)):
            heard += data
        select.select([], [], [], self.rng.random() * 0.004)
        os.kill(pid, signal.SIGKILL)
        while data := os.read(read_fd, 65536):
            heard += data
        os.close(read_fd)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            raise Violation(f"the writer failed: {heard[-500:]!r}")
        self.follow(heard)

    def follow(self, heard: bytes) -> None:
        """Take in what a writer said."""
        for line in heard.split(b"\n")[:-1]:
            kind, number, zxid = line.split()
            if kind == b"S":
                self.sent = int(number)
            else:
                self.acknowledged, self.zxid = int(number), int(zxid)

    def check(self) -> None:
        """Open the store, and hold it to what was said."""
        with EmbeddedStore(self.paths, SETTINGS) as store, store.connect() as session:
            found = number_of(session)
            if not self.acknowledged <= found <= self.sent:
                raise Violation(f"{found} is not from {self.acknowledged} to {self.sent}")
            if session.zxid() < self.zxid:
                raise Violation(f"the zxid fell from {self.zxid} to {session.zxid()}")
            left = [name for name in session.children("/") if name.startswith("mine")]
            if left:
                raise Violation(f"ephemeral znodes of a dead process: {left}")
            self.zxid = session.zxid()
            self.acknowledged = found


def main() -> None:
    """Run the loop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()
    loop = Loop(arguments.dir, arguments.seed)
    loop.run(arguments.kills)
    print(json.dumps({"kills": loop.kills, "changes": loop.acknowledged, "seed": arguments.seed}))


if __name__ == "__main__":
    main()
