"""Copy a topic with a stream, as a driver that a test may kill at any moment.

    python copying_driver.py SOURCE TARGET KIND CHECKPOINT

KIND is `logstore` or `parquet`. It tells each batch it has begun, and when it has read all.
"""

from __future__ import annotations

import sys
from typing import Any

import logstore.spark

CONF = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


def start(spark: Any, source: str, target: str, kind: str, checkpoint: str) -> Any:
    """Start the stream: small batches, until what is there now was read."""
    reader = spark.readStream.format("logstore").option("logDirs", source)
    reader = reader.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="300")
    frame = reader.load()
    if kind == "logstore":
        frame = frame.selectExpr("value", "partition")
        writer = frame.writeStream.format("logstore").options(logDirs=target, topic="t")
    else:
        writer = frame.writeStream.format("parquet").option("path", target)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Copy; a line for each batch that was committed, and one at the end."""
    source, target, kind, checkpoint = sys.argv[1:]
    spark = logstore.spark.session("local[2]", java="bundled", conf=CONF)
    logstore.spark.register(spark)
    query = start(spark, source, target, kind, checkpoint)
    print("started", flush=True)
    query.awaitTermination()
    print("finished", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
