"""Read, write and verify on a standalone master with two workers (`make spark-cluster`).

It starts Spark's own scripts, each process in a group that is ended at the end.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.errors import PySparkException

import logstore.spark
from logstore import LogStore
from logstore.spark.local import prepare_environment
from support.spark_data import fill, rows_of

CLASSES = "org.apache.spark.deploy"


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(root: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start one of Spark's processes."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = (root / f"{name}.log").open("wb")
    with log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def cluster(root: Path) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start a master and two workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    where = ("--host", "127.0.0.1")
    started = [
        launch(root, "master", f"{CLASSES}.master.Master", *where, "--port", str(port),
               "--webui-port", "0")
    ]  # fmt: skip
    for number in range(2):
        sizes = ("--cores", "1", "--memory", "700m", "--webui-port", "0")
        place = ("--work-dir", str(root / "work"), master)
        worker = f"{CLASSES}.worker.Worker"
        started.append(launch(root, f"worker-{number}", worker, *where, *sizes, *place))
    return master, started


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
    (root / "b").rename(root / "away")
    try:
        load(subscribe="orders").count()
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
                    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s"}  # fmt: skip
            spark = logstore.spark.session(master, java="bundled", conf=conf)
            logstore.spark.register(spark)
            check(spark, root)
            spark.stop()
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


if __name__ == "__main__":
    main()
