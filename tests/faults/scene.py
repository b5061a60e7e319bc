"""Put a loaded store on four real disks, make one of them fail, and hold the store to its promises.

The store runs in a process of its own (`load.py`). What it acknowledged is in a file outside the
disks, whose length before the fault says which records must survive it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.loop_disk import LoopDisk, loop_disk
from support.places import environment

PROGRAM = Path(__file__).with_name("load.py")
IS_FULL = os.environ.get("LOGSTORE_FAULTS") == "full"
BASELINE_SECONDS, DURING_SECONDS = (5.0, 8.0) if IS_FULL else (0.2, 0.3)
ATTEMPTS = 3 if IS_FULL else 1
PATIENCE_SECONDS = 100.0
SICK = 0  # the log dir that fails; the others are to notice nothing


class Worker:
    """The process with the loaded store."""

    def __init__(self, log_dirs: list[str], base: Path, **settings: Any) -> None:
        self.acknowledged = base / "acknowledged"
        self.errors = base / "stderr"
        settings = {
            "log_dirs": log_dirs,
            "threads": [2] * len(log_dirs),
            "acknowledged": str(self.acknowledged),
            **settings,
        }
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self.command(), sys.executable, str(PROGRAM), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
            )
        self._rest = b""
        assert self._line() == "open"

    @staticmethod
    def command() -> list[str]:
        """Begin the command: root's right to override permissions is dropped, as services do."""
        dropped = "-dac_override,-dac_read_search"
        return ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]

    def _line(self) -> Any:
        """Read an answer, with patience."""
        assert self.process.stdout is not None
        fd, deadline = self.process.stdout.fileno(), time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._rest:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(fd, 1 << 20) if ready else b""
            assert data, f"no answer from the store's process:\n{self.errors.read_text()[-3000:]}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def ask(self, *words: Any) -> Any:
        """Send a command and give its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        answer = self._line()
        assert "error" not in answer, f"{words}: {answer['error']}"
        return answer["result"]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Stop all its threads, none of them inside a call to a disk.

        A machine without power calls nothing any more. A process that runs on while ext4 gives up
        its journal is told by `fdatasync` that a transaction is on the disk which the journal just
        threw away (Linux 6.18: in 13 of 50 tries of a bare loop of write and fdatasync).
        """
        self.process.send_signal(signal.SIGSTOP)
        try:
            self.wait_for(self._is_stopped, "stopped")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _is_stopped(self) -> bool:
        """Tell whether every thread is; one in a call to a disk stops when it is back."""
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if stat.read_text().rpartition(")")[2].split()[0] != "T":
                    return False
        return True

    def wait_for(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until something is so; gives how long that took."""
        begun = time.monotonic()
        while not condition():
            took = time.monotonic() - begun
            assert took < PATIENCE_SECONDS, f"not {what} in {took:.0f} s"
            select.select([], [], [], 0.01)
        return time.monotonic() - begun

    def state(self, place: int = SICK) -> dict[str, Any]:
        """Describe one log dir."""
        return dict(self.ask("states")[place])

    def wait_for_state(self, state: str, place: int = SICK) -> float:
        """Wait until a log dir is in a state."""
        return self.wait_for(lambda: self.state(place)["state"] == state, f"{place} {state}")

    def wait_for_appends(
        self, phase: str, places: list[int], count: int, seconds: float | None = None
    ) -> list[dict[str, Any]]:
        """Begin a phase; wait for so many appends in each of some log dirs, and so long."""
        self.ask("phase", phase)
        if seconds is None:
            seconds = BASELINE_SECONDS if phase == "before" else DURING_SECONDS
        # Nothing is asked meanwhile: an answer holds up the very threads that are measured.
        select.select([], [], [], seconds)

        def is_done() -> bool:
            counts = self.ask("appended", phase)
            return bool(min(counts[place] for place in places) >= count)

        self.wait_for(is_done, f"{count} appends in {places} in phase {phase!r}")
        return list(self.ask("figures", phase))

    def end(self) -> None:
        """End the process, whatever it hangs in."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.wait(timeout=PATIENCE_SECONDS)
        self.process.stdin.close()
        self.process.stdout.close()


class Scene:
    """Four disks, a directory beside them, and the process on them."""

    def __init__(self, disks: list[LoopDisk], base: Path) -> None:
        self.disks, self.base = disks, base
        self.sick = disks[SICK]
        self.others = list(range(1, len(disks)))
        self.log_dirs = [str(disk.mount / "logs") for disk in disks]
        self.worker: Worker

    def start(self, **settings: Any) -> None:
        """Start the loaded store."""
        self.worker = Worker(self.log_dirs, self.base, **settings)

    def reopen(self) -> None:
        """Have the log dir taken into use again, in the running store."""
        self.worker.ask("call", "reopen_dir", self.log_dirs[SICK])

    def end(self) -> None:
        """Thaw, then end the process, so that nothing holds the disks."""
        for disk in self.disks:
            disk.thaw()
        if hasattr(self, "worker"):
            self.worker.end()

    def check_nothing_lost(self, *, was_cut: bool) -> None:
        """Have every acknowledged record read; where a disk died, those that were durable.

        A death of the disk takes what was in its cache; a full, hung or closed one takes nothing.
        """
        self.worker.ask("stop")
        counts = self.worker.ask("check", [SICK] if was_cut else [])
        assert counts["checked"] > 0
        assert (counts["lost"], counts["wrong"]) == ([], []), counts

    def check_others(self, before: list[dict[str, Any]], during: list[dict[str, Any]]) -> None:
        """Nobody else noticed: no error, and in the full form no stall and no slower appends."""
        for place in self.others:
            assert during[place]["refused"] == {}, (place, during[place])
            assert during[place]["count"] > 0
        if IS_FULL:
            rows = [(before[p], during[p]) for p in self.others]
            print(
                "faults: others' append p99 ms",
                " ".join(f"{b['p99']:.2f}->{d['p99']:.2f}" for b, d in rows),
                "max ms",
                " ".join(f"{d['max']:.1f}" for _, d in rows),
            )

    def is_quiet(self, before: list[dict[str, Any]], during: list[dict[str, Any]]) -> bool:
        """Tell whether the others kept their latency: p99 at most twice as long, no stall.

        A p99 below 1 ms passes whatever it was before: down there a "twice" is the noise of the
        machine. No append of the whole phase took over 50 ms. The time in which a busy machine did
        not let a thread run though it was ready is taken off (`load.Writer.append`); the time it
        waited for another thread of the process is not. A phase too short for a hundred appends on
        each of the others is judged by all of theirs together: a p99 of fewer is the maximum.
        """
        if max(during[p]["max"] for p in self.others) > STALL_MS_MAX:
            return False
        if min(during[p]["count"] for p in self.others) >= 100:
            pairs = [(before[p]["p99"], during[p]["p99"]) for p in self.others]
        else:
            pairs = [(self._p99_of_all(before), self._p99_of_all(during))]
            print("faults: p99 ms of all others together {:.2f}->{:.2f}".format(*pairs[0]))
        return all(now <= max(2 * then, P99_MS_MIN) for then, now in pairs)

    def _p99_of_all(self, rows: list[dict[str, Any]]) -> float:
        took = sorted(ms for place in self.others for ms in rows[place]["took"])
        return float(took[len(took) * 99 // 100])


STALL_MS_MAX = 50.0
P99_MS_MIN = 1.0  # below it a "twice" is the noise of the machine


@contextlib.contextmanager
def fresh_scene(kind: str, count: int = 4) -> Iterator[Scene]:
    """Give fresh disks of a kind and a directory in memory beside them."""
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(loop_disk(kind)) for _ in range(count)]
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=disks[0].base.parent)))
        scene = Scene(disks, base)
        stack.callback(scene.end)
        yield scene


def play(kind: str, scenario: Callable[[Scene], bool], count: int = 4) -> None:
    """Play a scenario on fresh disks; in the full form until the others kept their latency.

    A busy machine stalls now and then; a fault stalls every time.
    """
    for _ in range(ATTEMPTS):
        with fresh_scene(kind, count) as scene:
            is_quiet = scenario(scene)
        if is_quiet or not IS_FULL:
            return
    raise AssertionError(f"the other disks stalled or were slow in {ATTEMPTS} attempts")
