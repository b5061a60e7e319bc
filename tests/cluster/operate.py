"""What OPERATIONS.md tells operators to do, on brokers in this process, while a client produces.

`make operate-cluster` runs this; `make test` does not, because of its time.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import Cluster
from logstore.cli.app import app
from support.replica_nodes import wait_until

SECONDS = 60.0
PARTITIONS = 6
IN_FLIGHT_MAX = 50


class Producing:
    """An idempotent producer with acks=all, in its own thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent, self.acknowledged = 0, 0
        self.errors: list[str] = []
        self._ended = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True,
                "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0,
            }
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(SECONDS) == 0 and not self.errors

    def _run(self) -> None:
        while not self._ended.is_set():
            if self.sent - self.acknowledged < IN_FLIGHT_MAX:
                self._producer.produce(
                    "orders", b"%d" % self.sent, partition=self.sent % PARTITIONS,
                    on_delivery=self._heard,
                )  # fmt: skip
                self.sent += 1
            self._producer.poll(0.002)

    def _heard(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.acknowledged += 1

    def wait_for_progress(self) -> None:
        """Wait until a record that is sent from now on is acknowledged in each partition."""
        wanted = self.sent + PARTITIONS
        wait_until(lambda: self.acknowledged >= wanted or bool(self.errors), SECONDS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Run three brokers with two log dirs each, and a topic on all of them."""
    with Cluster.start(brokers=3, log_dirs=2) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (PARTITIONS // 3)
        topic = NewTopic("orders", PARTITIONS, replica_assignment=replicas)
        admin.create_topics([topic])["orders"].result(SECONDS)
        wait_in_sync(made)
        yield made


def wait_in_sync(cluster: Cluster) -> None:
    """Wait as an operator does, until `status` reports no problem."""
    wait_until(lambda: run(cluster, "status") == 0, SECONDS)


def run(cluster: Cluster, *words: str) -> int:
    """Run `logstore cluster`, and give its exit code."""
    command, *more = words
    servers = ["--bootstrap-servers", cluster.bootstrap_servers]
    return CliRunner().invoke(app, ["cluster", command, *servers, *more]).exit_code


def check(cluster: Cluster, sent: int) -> None:
    """Check that each replica has each record once, in order."""
    wait_in_sync(cluster)
    for broker in (1, 2, 3):
        for number in range(PARTITIONS):
            wanted = [*range(number, sent, PARTITIONS)]
            wait_until(partial(has_all, cluster, broker, number, wanted), SECONDS)
    wait_until(lambda: run(cluster, "verify", "--throttle", "none", "orders") == 0, SECONDS)


def has_all(cluster: Cluster, broker: int, number: int, wanted: list[int]) -> bool:
    log = cluster._node(broker).store["orders", number]
    found = [int(record.value or b"") for record in log]
    assert found == wanted[: len(found)]
    return found == wanted


def test_a_rolling_restart(cluster: Cluster) -> None:
    """Each broker stops cleanly and starts again: no record is lost or doubled."""
    with Producing(cluster) as producing:
        for broker in (1, 2, 3):
            producing.wait_for_progress()
            cluster.stop(broker)
            producing.wait_for_progress()
            cluster.restart(broker)
            wait_in_sync(cluster)
        assert run(cluster, "elect") == 0
        for number in range(PARTITIONS):
            preferred = number % 3 + 1
            wait_until(partial(is_led_by, cluster, number, preferred), SECONDS)
    check(cluster, producing.sent)


def is_led_by(cluster: Cluster, number: int, broker: int) -> bool:
    view = cluster.partition("orders", number)
    return view is not None and view.leader == broker


def test_a_broker_whose_disks_are_lost_is_replaced(cluster: Cluster) -> None:
    """A broker with the same id and empty log dirs gets all records, and leads again."""
    with Producing(cluster) as producing:
        producing.wait_for_progress()
        cluster.kill(2)
        for path in cluster.log_dirs(2):
            shutil.rmtree(path)
            Path(path).mkdir()
        producing.wait_for_progress()
        cluster.restart(2)
        wait_in_sync(cluster)
        assert run(cluster, "elect") == 0
        wait_until(partial(is_led_by, cluster, 1, 2), SECONDS)
        producing.wait_for_progress()
    check(cluster, producing.sent)


def test_a_disk_is_replaced(cluster: Cluster) -> None:
    """`reopen --format-new` takes the empty disk of a running broker; its replicas follow."""
    with Producing(cluster) as producing:
        producing.wait_for_progress()
        cluster.fail_dir(1, 0)
        wait_until(lambda: run(cluster, "status") == 1, SECONDS)
        path = cluster.log_dirs(1)[0]
        shutil.rmtree(path)
        Path(path).mkdir()
        producing.wait_for_progress()
        cluster._node(1).store.reopen_dir(path, format_new=True)
        wait_in_sync(cluster)
        producing.wait_for_progress()
    check(cluster, producing.sent)
