"""Run `logstore broker` as a process, and read from /proc what a process used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker import raw
from benchmarks.kafka.broker import free_port

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Hold what a process has used so far: processor time, present memory and peak memory."""

    cpu_seconds: float
    resident_mib: float
    peak_mib: float


def usage_of(pid: int) -> Usage:
    """Read what all threads of a process have used together."""
    # The name in the second field may contain spaces and brackets; the fields after it cannot.
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    sizes = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    )
    return Usage(
        (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
        int(sizes["VmRSS"].split()[0]) / 1024,
        int(sizes["VmHWM"].split()[0]) / 1024,
    )


class BrokerProcess:
    """`logstore broker` over some log dirs; it keeps its port when it is started again.

    Attributes:
        address: where clients connect.
        exit_code: the exit code of the last process; None if no process has ended yet.
    """

    name = "logstore"

    def __init__(self, log_dirs: list[str], output: str, more: Sequence[str] = ()) -> None:
        """Start no process; the file `output` will get what the processes print.

        Args:
            more: further words of the command line.
        """
        self.log_dirs = log_dirs
        self._more = more
        self.address = f"127.0.0.1:{free_port()}"
        self.exit_code: int | None = None
        self._output = output
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._child is not None
        return self._child.pid

    @property
    def usage(self) -> Usage:
        """What the process used so far."""
        return usage_of(self.pid)

    def spawn(self) -> float:
        """Start a process, and return the time of its start; the broker does not serve yet."""
        environment = dict(os.environ)
        # Installed packages have bytecode. So the broker may write bytecode, too.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "logstore.cli", "broker"]
        command += ["--log-dirs", ",".join(self.log_dirs)]
        command += ["--listeners", f"PLAINTEXT://{self.address}", *self._more]
        with open(self._output, "ab") as output:
            started = time.perf_counter()
            # The child is in a session of its own, so Ctrl-C does not reach the child. This process
            # ends the child.
            self._child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return started

    def start(self, topic: str = "first") -> float:
        """Start a process; return the seconds until it acknowledged its first record."""
        started = self.spawn()
        try:
            return raw.acknowledge_first(
                self.address, topic, started, READY_SECONDS_MAX, self.is_alive
            )
        except raw.RequestError as error:
            printed = Path(self._output).read_text("utf-8", "replace")
            raise RuntimeError(f"the broker did not start: {error}\n{printed[-3000:]}") from error

    def is_alive(self) -> bool:
        """Report whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def stop(self) -> None:
        """Stop the process, and kill it if it does not end; do nothing if there is no process."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        child = self._child
        if child is None:
            return
        try:
            child.send_signal(number)
            child.wait(STOP_SECONDS_MAX)
        except BaseException:
            child.kill()  # the child hangs, or Ctrl-C came during the wait
            child.wait()
            raise
        finally:
            self.exit_code, self._child = child.returncode, None
