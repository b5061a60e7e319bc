"""Read a cluster while brokers die, or on a machine without their disks (`make spark-brokers`)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from logstore.spark.options import read_options
from logstore.spark.read.stream import StreamReader
from support.brokers_of_spark import (
    ALL_COLUMNS,
    Row,
    consumed,
    create,
    planned,
    produce,
    row_of,
    rows_of,
    rows_with,
    started,
    wait_until_local,
    with_holders,
)
from support.mount_namespaces import hiding
from support.places import environment

COUNT = 400


def test_a_broker_dies_between_planning_and_reading(small_batches: None) -> None:
    """Its files are read, or the next leader gives the records; and so if it dies in a read."""
    with started() as cluster:
        create(cluster, "orders", {"min.insync.replicas": "1"})
        produce(cluster, "orders", COUNT)
        wait_until_local(cluster, "orders")
        wanted = consumed(cluster.bootstrap_servers, "orders")
        reader, pieces = planned(cluster, "orders")
        fetched = with_holders(pieces, lambda _: ())
        cluster.kill(1)  # it leads partition 0
        assert rows_of(reader, pieces) == (wanted, {"local": len(wanted)})
        assert rows_of(reader, fetched) == (wanted, {"fetched": len(wanted)})
        cluster.restart(1)
        cluster.wait_in_sync("orders", 0)
        cluster.wait_in_sync("orders", 1)
        leader = cluster.wait_for_leader("orders", 0)
        rows, origins = rows_with(reader, fetched, lambda: cluster.kill(leader))
        assert rows == wanted and origins == {"fetched": len(wanted)}
        new_reader, new_pieces = planned(cluster, "orders")
        assert rows_of(new_reader, new_pieces)[0] == wanted


def test_a_stream_continues_while_leaders_die(tmp_path: Path) -> None:
    """Each record is in exactly one batch, and a new reader continues from the checkpoint."""
    with started() as cluster:
        create(cluster, "orders", {"min.insync.replicas": "1"})
        servers, found, reached = cluster.bootstrap_servers, list[Row](), None
        given = {"brokers": servers, "topic": "orders", "columns": ALL_COLUMNS}
        given["startingOffsets"] = "earliest"
        for number in range(4):
            produce(cluster, "orders", 50, 50 * number)
            reader = StreamReader(read_options(given, is_stream=True))
            start = reader.initialOffset() if reached is None else reached
            reached = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
            pieces: list[Any] = [*reader.partitions(start, reached)]
            if number % 2:
                pieces = with_holders(pieces, lambda _: ())
            leader = cluster.wait_for_leader("orders", 0)
            cluster.kill(leader)
            for piece in pieces:
                found += [row_of(row) for batch in reader.read(piece) for row in batch.to_pylist()]
            cluster.restart(leader)
            for partition in range(2):
                cluster.wait_in_sync("orders", partition)
        assert sorted(found, key=lambda row: row[:2]) == consumed(servers, "orders")
        assert len(found) == 400


def test_a_machine_without_the_log_dirs_of_a_broker_fetches(tmp_path: Path) -> None:
    """Spark runs where other directories are at these paths; other replicas are read in place."""
    with started() as cluster:
        for name, replicas in (("sole", 1), ("several", 3)):
            create(cluster, name, replicas=replicas)
            produce(cluster, name, COUNT)
            wait_until_local(cluster, name)
        hidden = itertools.chain.from_iterable(
            hiding(Path(path), tmp_path / f"empty-{number}")
            for number, path in enumerate(cluster.log_dirs(1))
        )
        driver = Path(__file__).with_name("brokers_driver.py")
        command = [sys.executable, str(driver), cluster.bootstrap_servers, str(tmp_path)]
        done = subprocess.run(
            [*hidden, *command, "sole", "several"],
            env=environment(), capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for name, found in zip(("sole", "several"), lines, strict=True):
            assert found["records"] == repr(consumed(cluster.bootstrap_servers, name))
            kinds = ("fetched", "local") if name == "sole" else ("local", "local")
            assert found["places"] == {"0": {kinds[0]: COUNT}, "1": {kinds[1]: COUNT}}
