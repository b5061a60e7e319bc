"""A program of Spark's users with its own Kafka source and sink; a step prints what it found.

python tables.py SERVERS JARS batch|stream CHECKPOINT
"""

from __future__ import annotations

import json
import sys
from typing import Any

import logstore.spark

TIME = 1_700_000_000_000


class Tables:
    """The tables and streams of one broker."""

    def __init__(self, servers: str, jars: str) -> None:
        self._servers = servers
        self.session: Any = logstore.spark.session(
            "local[2]",
            java="bundled",
            conf={
                "spark.jars": jars,
                "spark.sql.shuffle.partitions": "2",
                "spark.ui.enabled": "false",
            },
        )

    def of_kafka(self, frame: Any, **options: Any) -> Any:
        """Name the broker to a reader or a writer."""
        kafka = frame.format("kafka").option("kafka.bootstrap.servers", self._servers)
        return kafka.options(**options)

    def values(self, **options: Any) -> list[str]:
        """Read values of a topic, in order."""
        table = self.of_kafka(self.session.read, **options).load()
        rows = table.selectExpr("cast(value as string) v", "partition", "offset").collect()
        return [row.v for row in sorted(rows, key=lambda row: (row.partition, row.offset))]

    def batch(self, _: str) -> None:
        """Read by timestamps and by offsets, and write with keys, headers and partitions."""
        at = {"subscribe": "spark-times"}
        by_time = json.dumps({"spark-times": {"0": TIME + 20, "1": TIME + 30}})
        until = json.dumps({"spark-times": {"0": TIME + 60, "1": TIME + 61}})
        between = {"startingOffsetsByTimestamp": by_time, "endingOffsetsByTimestamp": until}
        print(*self.values(**at, **between))
        print(len(self.values(**at, startingTimestamp=TIME + 90)))
        offsets = json.dumps({"spark-times": {"0": 45, "1": -2}})
        print(len(self.values(**at, startingOffsets=offsets)))
        frame = self.session.range(400).selectExpr(
            "concat('k', id) key", "concat('v', id) value", "cast(id % 2 as int) partition",
            "array(struct('h' as key, cast(cast(id as string) as binary) as value)) headers",
        )  # fmt: skip
        self.of_kafka(frame.write, topic="spark-written").save()
        wanted = {"subscribe": "spark-written", "includeHeaders": "true"}
        table = self.of_kafka(self.session.read, **wanted).load()
        number = "cast(headers[0].value as string)"
        good = table.where(
            f"cast(key as string) = concat('k', {number}) and headers[0].key = 'h'"
            f" and cast(value as string) = concat('v', {number}) and partition = {number} % 2"
        )
        print(table.count(), good.count())

    def stream(self, checkpoint: str) -> None:
        """Copy what is new in a topic to another one."""
        wanted = {
            "subscribe": "spark-in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 150,
        }
        table = self.of_kafka(self.session.readStream, **wanted).load()
        copied = table.selectExpr("key", "concat('copy of ', cast(value as string)) value")
        sink = self.of_kafka(copied.writeStream, topic="spark-out")
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        print(sum(one["numInputRows"] for one in query.recentProgress))


if __name__ == "__main__":
    tables = Tables(*sys.argv[1:3])
    for step in sys.argv[3].split(","):
        getattr(tables, step)(sys.argv[4])
