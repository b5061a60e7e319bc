"""Read topics of a cluster with Spark, on a machine that sees only some of the log dirs.

    python brokers_driver.py SERVERS SCRATCH TOPIC...

For each topic it prints a line of JSON: the records, and how many of each partition came from
files and by Fetch. It runs in a mount namespace of its own, in which a test hides log dirs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import logstore.spark
from support.brokers_of_spark import ALL_COLUMNS, row_of

CONF = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


def main() -> None:
    """Read each topic once."""
    servers, scratch, *topics = sys.argv[1:]
    conf = {**CONF, "spark.local.dir": scratch}
    spark = logstore.spark.session("local[2]", java="bundled", conf=conf)
    logstore.spark.register(spark)
    for topic in topics:
        given = {"brokers": servers, "topic": topic, "columns": ALL_COLUMNS}
        rows = spark.read.format("logstore").options(**given).load().toArrow().to_pylist()
        places: dict[str, dict[str, int]] = {}
        for row in rows:
            found = places.setdefault(str(row["partition"]), {})
            found[row["readFrom"]] = found.get(row["readFrom"], 0) + 1
        records = sorted(map(row_of, rows), key=lambda row: row[:2])
        print(json.dumps({"records": repr(records), "places": places}), flush=True)
    spark.stop()


main()
