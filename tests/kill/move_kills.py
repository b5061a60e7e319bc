"""Kill a process at the N-th system call of a move, and look what the next one makes of it.

Run as a program: a small process that forks each victim. The thread that moves is killed either by
strace, at any of its system calls on files, or by itself, before a call of `disk.files`. Prints
one JSON line: kills, calls of a whole move, moves that were ended by the next process.

    python tests/kill/move_kills.py --how strace --dir /dev/shm/x           # at every call
    python tests/kill/move_kills.py --how itself --at 1,7,30 --dir /dev/shm/x
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from logstore import LogConfig, LogStore, TopicPartition
from logstore.disk import files
from logstore.store.start.listing import purge_tree
from mover import MoveState, ReplicaMover
from mover import job as jobs
from mover.move import Move
from support.expectation import Expectation
from support.gate import SECONDS_MAX, Gate
from support.keepers import wait_for_keepers
from support.moving import Alone
from support.writer import value_of

CONFIG = LogConfig(segment_bytes=2048, index_interval_bytes=512)
KEY = TopicPartition("orders", 0)
# Those that a move makes on files; strace counts each of them by itself.
SYSCALLS = (
    "openat", "close", "pread64", "pwrite64", "pwritev", "fstat", "newfstatat", "lseek",
    "fdatasync", "fsync", "ftruncate", "rename", "unlink", "rmdir", "mkdir", "getdents64",
    "sendfile", "sync_file_range", "statfs", "write", "mmap", "munmap", "madvise",
)  # fmt: skip
CALLS = (
    "open_file", "close", "pread", "pwrite", "pwritev", "fstat", "stat", "lstat", "fdatasync",
    "fsync", "ftruncate", "rename", "unlink", "rmdir", "mkdir", "scandir", "sendfile",
)  # fmt: skip


def open_store(root: Path) -> LogStore:
    return LogStore.open([root / "a", root / "b"], admin_socket=False)


def prepare(root: Path, expected: Expectation) -> None:
    """Make a store with a log of some segments."""
    with open_store(root) as store:
        log = store.create(*KEY, log_dir=root / "a", config=CONFIG)
        for number in range(0, 60, 5):
            values = [value_of(9, n) for n in range(number, number + 5)]
            for offset, value in zip(log.extend(values), values, strict=True):
                expected.records[offset], expected.end = value, offset + 1


class Victim:
    """Moves the log in a thread of its own while it appends; says on a pipe what it does."""

    def __init__(self, root: Path, life: int, say: int, at: int | None) -> None:
        self.root, self.life, self.say_fd, self.at = root, life, say, at
        self.number = self.calls = 0
        self.may_begin = threading.Event()

    def say(self, text: str) -> None:
        os.write(self.say_fd, (text + "\n").encode())

    def run(self, wait: int) -> None:
        """Open the store, wait for a byte, then move and end."""
        self.store = open_store(self.root)
        thread = threading.Thread(target=self.move)
        thread.start()
        self.say(f"T {thread.native_id}")
        os.read(wait, 1)
        if self.at is not None:
            self.count_calls(thread)
        self.may_begin.set()
        thread.join()
        self.say(f"C {self.calls}")
        os._exit(0)

    def count_calls(self, thread: threading.Thread) -> None:
        """Have the thread kill the process before its N-th call to the disk."""
        for name in CALLS:
            original = getattr(files, name)

            def call(*args: Any, original: Any = original, **kwargs: Any) -> Any:
                if threading.current_thread() is thread:
                    self.calls += 1
                    if self.calls == self.at:
                        os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **kwargs)

            setattr(files, name, call)

    def extend(self) -> None:
        first, self.number = self.number, self.number + 2
        self.say(f"I extend {first} 2")
        values = [value_of(self.life, n) for n in (first, first + 1)]
        offsets = self.store.log(*KEY).extend(values)
        self.say(f"A extend {first} 2 {offsets[0]}")

    def move(self) -> None:
        self.may_begin.wait()
        target = self.store.host.replicas.find_dir(str(self.root / "b"))
        assert target is not None
        gate = Gate(1500)
        gate.before = lambda: self.extend() if gate.passed % 4 == 1 else None
        move = Move(Alone(), KEY, "", target.path, gate, 0)  # type: ignore[arg-type]
        job = jobs.Job(
            move,
            self.store.host.replicas,
            target,
            lambda _, path: purge_tree(path),
            is_verified=True,
        )
        move.try_begin()
        jobs.run(move, job, Move.go)
        assert move.state is MoveState.DONE, move.error
        self.extend()


def attach(thread_id: int, syscall: str, nth: int) -> subprocess.Popen[bytes]:
    """Have strace kill a thread's process at the N-th system call of a name."""
    tracer = subprocess.Popen(
        ["strace", "-p", str(thread_id), "-o", "/dev/null"]
        + ["-e", f"trace={syscall}", "-e", f"inject={syscall}:signal=KILL:when={nth}"],
        stderr=subprocess.PIPE,
    )
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if b"attached" not in line:
        raise SystemExit(f"strace cannot attach: {line.decode()}")
    return tracer


def kill_once(root: Path, life: int, how: str, nth: int, expected: Expectation) -> int | None:
    """Run a victim; give how many calls it made, or None when it was killed."""
    said, say = os.pipe()
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(said)
        os.close(go)
        Victim(root, life, say, nth if how == "itself" else None).run(wait)
    os.close(say)
    os.close(wait)
    calls: int | None = None
    tracer = None
    with open(said, "rb") as lines:
        for line in lines:
            if line.startswith(b"T"):
                tracer = None if how == "itself" else attach(int(line[2:]), how, nth)
                os.write(go, b"!")
            elif line.startswith(b"C"):
                calls = int(line[2:])
            else:
                expected.hear(line.rstrip())
    os.close(go)
    _, status = os.waitpid(pid, 0)
    if tracer is not None:
        tracer.communicate()
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0 and calls is not None, f"the victim ended with {status}"
    return calls


def check(root: Path, expected: Expectation) -> bool:
    """Open what is left, end the move; tells whether there was one to end."""
    with open_store(root) as store:
        with ReplicaMover(store) as mover:
            moves = mover.moves()
            for move in moves:
                assert move.wait(SECONDS_MAX) is MoveState.DONE, move.error
        wait_for_keepers(store)
        log = store.log(*KEY)
        found = [(r.offset, r.value or b"") for r in log]
        expected.settle(log.log_start_offset, log.log_end_offset, found)
        assert store.recovery_report.is_sound, str(store.recovery_report)
        names = sorted(p.name for d in "ab" for p in (root / d).glob("orders-0*"))
        assert names == ["orders-0"], names
        assert log.append(b"goes on", durable=True) == expected.end
    return bool(moves)


def main() -> None:
    """Kill at the given calls, or at every one until a victim outlives its move."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=("strace", "itself"), required=True)
    parser.add_argument("--at", default="")
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    tally = {"kills": 0, "resumed": 0}
    calls = None
    numbers = [int(word) for word in options.at.split(",") if word] or range(1, 100_000)
    for how in SYSCALLS if options.how == "strace" else ("itself",):
        for nth in numbers:
            calls = kill_and_check(options.dir / "work", how, nth, tally)
            if calls is not None and not options.at:
                break
    print(json.dumps({"kills": tally["kills"], "calls": calls, "resumed": tally["resumed"]}))


def kill_and_check(root: Path, how: str, nth: int, tally: dict[str, int]) -> int | None:
    """Kill one victim and look what is left; counts what came of it."""
    expected = Expectation()
    shutil.rmtree(root, ignore_errors=True)
    prepare(root, expected)
    expected.begin(nth)
    try:
        calls = kill_once(root, nth, how, nth, expected)
        tally["resumed"] += check(root, expected)
    except BaseException as error:
        error.add_note(f"{how}, call {nth}")
        raise
    tally["kills"] += calls is None
    return calls


if __name__ == "__main__":
    main()
