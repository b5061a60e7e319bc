"""Test the metrics of a broker and its store, under Kafka's names."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from broker import Broker
from broker.machines.traffic import Traffic
from broker.metrics import serve
from support.kafka_client import KafkaClient, batch_of
from support.places import environment


def scraped(port: int) -> dict[str, float]:
    """Scrape the metrics; return the values by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def test_a_scrape(broker: Broker, client: KafkaClient) -> None:
    """A scrape has bytes and records by topic, requests by API, connections and groups."""
    client.create("seen")
    batch = batch_of(b"one", b"two", b"three")
    client.produce("seen", batch)
    client.produce("seen", batch[:-1] + b"?")  # its checksum is wrong now
    client.fetch("seen", 0)
    client.fetch("seen", 99)  # beyond the end
    client.call("FindCoordinator", coordinator_keys=["g"])
    with serve(broker, 0) as endpoint:
        found = scraped(endpoint.port)
    topic = "kafka_server_brokertopicmetrics_{}_total" + '{{topic="seen"}}'
    expected = {
        "bytesin": len(batch), "messagesin": 3, "bytesout": len(batch), "totalproducerequests": 1,
        "totalfetchrequests": 1, "failedproducerequests": 1, "failedfetchrequests": 1,
    }  # fmt: skip
    assert {name: found[topic.format(name)] for name in expected} == expected
    name = "kafka_network_requestmetrics_totaltime_seconds_count"
    assert found[name + '{request="Produce"}'] == 2
    bucket = "kafka_network_requestmetrics_totaltime_seconds_bucket"
    assert found[bucket + '{le="+Inf",request="Produce"}'] == 2
    assert found['kafka_network_requestmetrics_localtimems_total{request="Fetch"}'] > 0
    partition = "kafka_log_log_{}" + '{{partition="0",topic="seen"}}'
    ends = {"logstartoffset": 0, "logendoffset": 3, "size": len(batch)}
    assert {name: found[partition.format(name)] for name in ends} == ends
    assert found["logstore_broker_connection_count"] == 1
    assert found["logstore_broker_partition_count"] == len(broker.store)
    assert found["logstore_offline_log_directory_count"] == 0


@pytest.mark.parametrize(
    ("program", "start"),
    [
        ("import broker.metrics", "ImportError: metrics need prometheus-client"),
        ("from logstore.cli import main; main()", "error: metrics need prometheus-client"),
    ],
)
def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, program: str, start: str
) -> None:
    """The last line on stderr names the extra, in a program and in the command."""
    options = ["broker", "--log-dirs", str(tmp_path), "--listeners", "PLAINTEXT://127.0.0.1:0"]
    missing = "import sys; sys.modules['prometheus_client'] = None"
    done = subprocess.run(
        [sys.executable, "-c", f"{missing}; {program}", *options, "--metrics-port", "0"],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, said.startswith(start)) == (1, True), done.stderr
    assert said.endswith("pip install 'logstore[metrics]'")


def test_a_deleted_topic_is_forgotten() -> None:
    """Deleted topics lose their counters; refusals of unknown topics are not counted."""
    traffic = Traffic()
    traffic.refused("unknown", is_fetch=True)
    traffic.appended("t", 10, 1)
    traffic.refused("t", is_fetch=True)
    assert traffic.snapshot()["t"].failed_fetch_requests == 1
    traffic.forget("t")
    assert traffic.snapshot() == {}


@pytest.mark.parametrize("port", [0])
def test_metrics_of_the_command(port: int) -> None:
    """The endpoint of a closed broker can no longer be scraped."""
    with Broker.start() as broker:
        endpoint = serve(broker, port)
        assert scraped(endpoint.port)["logstore_broker_group_count"] == 0
        endpoint.close()
        with pytest.raises(OSError, match="refused"):
            scraped(endpoint.port)
