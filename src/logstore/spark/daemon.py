"""Start Python workers as Spark's own daemon does, but such as end in silence; see `quiet`."""

from __future__ import annotations

from pyspark import daemon

from logstore.spark.quiet import quietly

if __name__ == "__main__":
    daemon.worker = quietly(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
