"""Help the tests of the command line: an owner in another process, damage, where files are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from click.testing import Result

Run = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]

HOLD_STORE = """
import sys
from logstore import LogStore
with LogStore.open(sys.argv[2:], admin_socket=sys.argv[1] == "True") as store:
    log = store.log("orders", 0)
    print("open", flush=True)
    for line in sys.stdin.buffer:
        print(log.append(line.rstrip(b"\\n")), flush=True)
"""


class Owner:
    """A process that has the store open and appends what it is told."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until the store is open."""
        self.child = child
        assert child.stdin is not None and child.stdout is not None
        self.stdin, self.stdout = child.stdin, child.stdout
        assert self.stdout.readline() == b"open\n"

    @property
    def pid(self) -> int:
        """Return the process's number."""
        return self.child.pid

    def append(self, value: bytes) -> int:
        """Let the owner append a value; returns its offset."""
        self.stdin.write(value + b"\n")
        self.stdin.flush()
        return int(self.stdout.readline())


@contextmanager
def owner_of(log_dirs: list[str], *, admin_socket: bool = True) -> Iterator[Owner]:
    """Run a process that owns the store inside this block."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD_STORE, str(admin_socket), *log_dirs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield Owner(child)
    finally:
        child.kill()
        child.communicate()


def damage(path: str, position: int) -> None:
    """Flip the bits of one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


def segment_path(log_dirs: list[str], topic: str = "orders", partition: int = 0) -> str:
    """Find the first segment of a partition, whichever log dir it is in."""
    for log_dir in log_dirs:
        path = os.path.join(log_dir, f"{topic}-{partition}", f"{0:020}.log")
        if os.path.exists(path):
            return path
    raise AssertionError(f"{topic}-{partition} has no segment")
