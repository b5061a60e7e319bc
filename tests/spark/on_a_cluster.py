"""Read, write and verify on a standalone master with two workers (`make spark-cluster`).

It starts Spark's own scripts, each process in a group that is ended at the end. Then a worker takes
part that does not see a log dir: it has mounts of its own, and an empty directory in that place.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.errors import PySparkException

import logstore.spark
from logstore import LogStore
from logstore.spark.local import prepare_environment
from support.mount_namespaces import hiding
from support.spark_data import fill, rows_of

CLASSES = "org.apache.spark.deploy"
WHERE = ("--host", "127.0.0.1")
START_SECONDS_MAX = 180.0
FORMAT_ADVICE = ("format_new", "format-new", "logstore format", "--lost", "crc32c")


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(
    root: Path, name: str, *arguments: str, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start one of Spark's processes."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = (root / f"{name}.log").open("wb")
    with log:
        return subprocess.Popen(
            [*prefix, str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def cluster(root: Path) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start a master and two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    started = [
        launch(root, "master", f"{CLASSES}.master.Master", *WHERE, "--port", str(port),
               "--webui-port", "0")
    ]  # fmt: skip
    started += [start_worker(root, f"worker-{number}", master) for number in range(2)]
    return master, started


def start_worker(
    root: Path, name: str, master: str, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a worker of one core."""
    sizes = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
    place = ("--work-dir", str(root / "work"), master)
    return launch(root, name, f"{CLASSES}.worker.Worker", *WHERE, *sizes, *place, prefix=prefix)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check(spark: Any, root: Path) -> None:
    """Run the source's main jobs, and compare with what the store itself gives."""
    dirs = f"{root / 'a'},{root / 'b'}"
    with LogStore.open([root / "a", root / "b"], read_only=True) as store:
        rows = rows_of(store)

    def load(**options: str) -> Any:
        reader = spark.read.format("logstore").option("logDirs", dirs)
        return reader.options(minPartitions="8", **options).load()

    frame = load(subscribePattern=".*")
    assert frame.count() == len(rows)
    places = frame.rdd.mapPartitions(lambda _: iter([os.environ["SPARK_EXECUTOR_DIRS"]])).collect()
    assert len(set(places)) == 2, "not both workers had tasks"
    print("read:", len(rows), "records by", len(places), "tasks on two workers")
    copy = frame.where("topic = 'orders'").select("key", "value")
    writer = copy.write.format("logstore").mode("append").option("logDirs", dirs)
    writer.options(topic="copy", numPartitions="2").save()
    with LogStore.open([root / "a", root / "b"], read_only=True) as store:
        copied = sorted((r["key"] or b"", r["value"] or b"") for r in rows_of(store)
                        if r["topic"] == "copy")  # fmt: skip
    wanted = sorted((r["key"] or b"", r["value"] or b"") for r in rows if r["topic"] == "orders")
    assert copied == wanted
    print("written:", len(copied), "records")
    assert logstore.spark.verify(spark, dirs.split(",")).count() == 0
    print("verified: no problem")


def wait_for_both(spark: Any, path: Path) -> None:
    """Wait until one worker sees a log dir, and the other does not."""

    def look(_: Any) -> Any:
        return iter([(path / "meta.properties").exists()])

    deadline = time.monotonic() + START_SECONDS_MAX
    while set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect()) != {
        True, False,
    }:  # fmt: skip
        assert time.monotonic() < deadline, "the worker without the log dir has no executor"


def check_lacking(spark: Any, root: Path) -> None:
    """Read, write and verify while one of two workers does not see a log dir."""
    dirs = f"{root / 'a'},{root / 'b'}"
    wait_for_both(spark, root / "b")
    reader = spark.read.format("logstore").option("logDirs", dirs)
    frame = spark.range(0, 1000, 1, 16).selectExpr("cast(id AS string) AS value")
    writer = frame.write.format("logstore").mode("append").option("logDirs", dirs)
    jobs: dict[str, Callable[[], Any]] = {
        "read": lambda: reader.options(subscribe="orders", minPartitions="32").load().count(),
        "write": lambda: writer.option("topic", "copy").save(),
    }
    for name, run in jobs.items():
        try:
            run()
        except PySparkException as error:
            check_told(str(error), root)
        else:
            raise AssertionError(f"the {name} did not need the log dir")
    # With one worker of two, some segments are looked at where the log dir is.
    rows = logstore.spark.verify(spark, dirs.split(",")).collect()
    for row in rows:
        check_told(row.reason, root)
        assert row.dir == str(root / "b")
    for log in root.glob("work/*/*/stderr"):
        lines = log.read_text(errors="replace").splitlines()
        found = [line for line in lines if str(root / "b") in line]
        assert not [line for line in found for advice in FORMAT_ADVICE if advice in line], found
    print("a worker without a log dir: host and path are named,", len(rows), "rows of verify")


def check_told(text: str, root: Path) -> None:
    """The host and the path; nothing that would destroy the log dir."""
    assert f"log dir {root / 'b'} cannot be read on host {socket.gethostname()}" in text, text
    assert not [advice for advice in FORMAT_ADVICE if advice in text], text


def check_missing(spark: Any, root: Path) -> None:
    """The driver does not see a log dir."""
    reader = spark.read.format("logstore").option("logDirs", f"{root / 'a'},{root / 'b'}")
    (root / "b").rename(root / "away")
    try:
        reader.option("subscribe", "orders").load().count()
    except PySparkException as error:
        assert str(root / "b") in str(error), error
        print("a log dir that is not seen is named")
    else:
        raise AssertionError("a missing log dir was not noticed")


def main() -> None:
    """Start the cluster, run the checks, and end everything."""
    prepare_environment("bundled")
    with tempfile.TemporaryDirectory(prefix="logstore-cluster-") as directory:
        root = Path(directory)
        with LogStore.open([root / "a", root / "b"], admin_socket=False) as store:
            fill(store, random.Random(1))
        master, started = cluster(root)
        try:
            conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "500m",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.cores.max": "2",  # it waits for both workers
                    "spark.task.maxFailures": "1",  # else a task is tried on the other worker
                    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s"}  # fmt: skip
            spark = logstore.spark.session(master, java="bundled", conf=conf)
            logstore.spark.register(spark)
            check(spark, root)
            end(started.pop())
            prefix = hiding(root / "b", root / "empty")
            started.append(start_worker(root, "worker-lacking", master, prefix))
            check_lacking(spark, root)
            end(started.pop())
            check_missing(spark, root)
            spark.stop()
        finally:
            for process in started:
                end(process)


if __name__ == "__main__":
    main()
