"""Run the examples of docs/SPARK.md as they are printed, with the paths of this machine."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster
from logstore import LogStore
from support.kafka_client import KafkaClient, batch_of
from support.kafka_golden import log_dirs

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "SPARK.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Start a cluster that has the orders of the store, too."""
    with Cluster.start(brokers=1) as cluster, KafkaClient(cluster.bootstrap_servers) as client:
        client.create("orders", 2)
        for partition in range(2):
            batch = batch_of(b"tea", b"milk", b"salt", keys=[b"ada", b"bob", b"ada"])
            while code := client.produce("orders", batch, partition).error_code:
                assert code == 6, "the broker does not lead the partition yet"
                threading.Event().wait(0.02)
        yield cluster.bootstrap_servers


@pytest.fixture
def places(tmp_path: Path, servers: str) -> dict[str, str]:
    """Make what the document takes for granted: a store with orders, and a broker's disks."""
    (tmp_path / "broker").mkdir()
    broker = log_dirs("stopped", tmp_path / "broker")
    places = {
        "/disk1/logs,/disk2/logs": f"{tmp_path}/disk1,{tmp_path}/disk2",
        "/disk1/logs": f"{tmp_path}/disk1",
        "/disk2/logs": f"{tmp_path}/disk2",
        "/mnt/disk1/kafka,/mnt/disk2/kafka": ",".join(map(str, broker)),
        "/lake": f"{tmp_path}/lake",
        "b1:9092,b2:9092": servers,
        "b1:9092": servers,
    }
    with LogStore.open([tmp_path / "disk1", tmp_path / "disk2"], admin_socket=False) as store:
        for partition in range(2):
            log = store.create("orders", partition)
            log.extend([b"tea", b"milk", b"salt"], keys=[b"ada", b"bob", b"ada"])
    return places


def test_regression_the_examples_run_as_they_are_printed(
    spark: Any, places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of writing named a frame that was made nowhere, and a topic that was not there."""
    text = DOCUMENT.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 5
    for printed in sorted(places, key=len, reverse=True):
        assert printed in text
    names: dict[str, Any] = {"spark": spark}
    for source in blocks:
        for printed in sorted(places, key=len, reverse=True):
            source = source.replace(f'"{printed}', f'"{places[printed]}')
        exec(compile(source, str(DOCUMENT), "exec"), names)
        if "query" in names:
            names.pop("query").awaitTermination()
    assert spark.read.parquet(f"{tmp_path}/lake/orders").count() == 6
    assert "|        0|    3|" in capsys.readouterr().out
    with LogStore.open([tmp_path / "disk1", tmp_path / "disk2"], read_only=True) as store:
        logs = [store.log(*key) for key in store if key.topic == "counts"]
        found = {record.key: record.value for log in logs for record in log}
    assert len(logs) == 2
    assert found == {b"ada": b"4", b"bob": b"2"}
