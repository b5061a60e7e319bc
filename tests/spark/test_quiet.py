"""Python workers say nothing when the JVM hangs up, whoever started them."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import logstore.spark
from logstore.spark.python import choose_python

SOURCE = Path(logstore.spark.__file__).parents[2]


def hang_up_on_a_worker(python: str, module: str, sockets: str) -> str:
    """Start a daemon as the JVM does, and a worker that waits; give what is said at the end."""
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
        "PYTHONPATH": str(SOURCE),
    }
    with subprocess.Popen(
        [python, "-m", module, "pyspark.worker"],
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
    assert hang_up_on_a_worker(sys.executable, "logstore.spark.daemon", runtime) == ""
    assert "BrokenPipeError" in hang_up_on_a_worker(sys.executable, "pyspark.daemon", runtime)


def test_workers_of_sparks_own_daemon_say_nothing_either(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that plan are always of its daemon, and some of them never see anything of ours."""
    for name in ("LOGSTORE_PYTHON", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    choose_python(os.environ, is_quiet=True)
    python = os.environ["PYSPARK_PYTHON"]
    assert hang_up_on_a_worker(python, "pyspark.daemon", runtime) == ""
    choose_python(os.environ, is_quiet=False)  # of a session on other machines
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    assert [os.environ[name] for name in names] == [sys.executable] * 2
