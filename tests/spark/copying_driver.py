"""Copy a topic with a stream, as a driver that a test may kill at any moment.

    python copying_driver.py SOURCE TARGET KIND CHECKPOINT TRIGGER

KIND is `logstore` or `parquet`. TRIGGER is `forever`, or `once` for what is there now. It ends
with whoever holds its stdin, and takes Spark's JVM along.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import logstore.spark

CONF = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


def start(spark: Any, source: str, target: str, kind: str, checkpoint: str, trigger: str) -> Any:
    """Start the stream, in small batches."""
    reader = spark.readStream.format("logstore").option("logDirs", source)
    reader = reader.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="300")
    frame = reader.load()
    if kind == "logstore":
        frame = frame.selectExpr("value", "partition")
        writer = frame.writeStream.format("logstore").options(logDirs=target, topic="t")
    else:
        writer = frame.writeStream.format("parquet").option("path", target)
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger == "once":
        writer = writer.trigger(availableNow=True)
    return writer.start()


def end_with_stdin() -> None:
    """Kill this process group when nobody holds the other end any more."""
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Copy."""
    threading.Thread(target=end_with_stdin, daemon=True).start()
    scratch = os.environ["TMPDIR"]
    java = f"{CONF['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={scratch}"
    conf = {**CONF, "spark.local.dir": scratch, "spark.driver.extraJavaOptions": java}
    spark = logstore.spark.session("local[2]", java="bundled", conf=conf)
    logstore.spark.register(spark)
    start(spark, *sys.argv[1:]).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
