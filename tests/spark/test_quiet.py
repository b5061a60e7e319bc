"""Python workers say nothing when the JVM hangs up, whoever started them."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import logstore.spark
from logstore.spark.quiet import end_quietly

SOURCE = Path(logstore.spark.__file__).parents[2]


def hang_up_on_a_worker(module: str, sockets: str) -> str:
    """Start a daemon as the JVM does, and a worker that waits; give what is said at the end."""
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
        "PYTHONPATH": str(SOURCE),
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        (size,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as jvm:
            jvm.connect(daemon.stdout.read(size).decode())
            (worker,) = struct.unpack(">i", jvm.recv(4, socket.MSG_WAITALL))
            ended = os.pidfd_open(worker)
        select.select([ended], [], [])
        os.close(ended)
        _, said = daemon.communicate()
    return said.decode()


def test_a_worker_that_is_hung_up_on_says_nothing(runtime: str) -> None:
    """Spark's own daemon prints a traceback; else there would be nothing to keep quiet."""
    assert hang_up_on_a_worker("logstore.spark.daemon", runtime) == ""
    assert "BrokenPipeError" in hang_up_on_a_worker("pyspark.daemon", runtime)


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_workers_of_sparks_daemon_are_quiet_from_their_first_request_on(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that plan are always of its daemon; any other process is left as it is."""

    def hung_up(sock: object, authenticated: bool) -> int:
        raise error

    main = ModuleType("__main__")
    main.worker = hung_up  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    for name in (None, "pytest.__main__"):
        main.__spec__ = None if name is None else SimpleNamespace(name=name)  # type: ignore
        end_quietly()
        assert main.worker is hung_up
    main.__spec__ = SimpleNamespace(name="pyspark.daemon")  # type: ignore
    end_quietly()
    assert main.worker(None, True) == 1
