"""Kill -9 a broker and a worker with transactions: each input gets exactly one committed output.

`LOGSTORE_TRANSACTION_KILLS` sets how often; `make kill-transactions` does it 200 times.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.exactly_once import (
    CLIENTS,
    KILLS_KEY,
    Feeder,
    create_topics,
    judge,
    program_of,
    wait_for_outputs,
    worker,
)
from support.places import environment, fast_directory

KILLS = int(os.environ.get(KILLS_KEY, "2"))
INPUTS = 100  # for each round
SERVE = """
import sys
from broker import Broker
config = {"listeners": sys.argv[1], "transaction_state_log_num_partitions": 4,
          "offsets_topic_num_partitions": 4}
with Broker.start(sys.argv[2:], config) as broker:
    print("serves", flush=True)
    sys.stdin.read()
"""


def free_port() -> int:
    """Find a port at which the broker can listen again after each kill."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class BrokerProcess:
    """A broker that is killed and started again at the same address."""

    def __init__(self, paths: list[Path]) -> None:
        self.servers = f"127.0.0.1:{free_port()}"
        self._paths = paths
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, f"PLAINTEXT://{self.servers}", *map(str, self._paths)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "serves"

    def kill(self) -> None:
        """End it as SIGKILL does."""
        if self.process is not None:
            with self.process as process:
                process.send_signal(signal.SIGKILL)
            self.process = None


@contextmanager
def broker_process(paths: list[Path]) -> Iterator[BrokerProcess]:
    """Run a broker, and kill it at the end."""
    made = BrokerProcess(paths)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@pytest.mark.timeout(240 + 20 * KILLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_exactly_once_under_kills(client: str, tmp_path: Path) -> None:
    """Readers of committed records see no aborted and no torn transaction."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng, program = random.Random(seed), program_of(client, tmp_path)
    with fast_directory() as base, broker_process([base / "a", base / "b"]) as broker:
        create_topics(broker.servers)
        feeder = Feeder(broker.servers, INPUTS)
        done = 0
        for turn in range(KILLS):
            feeder.limit += INPUTS
            with worker(broker.servers, "worker", f"{seed}-{turn}", program) as running:
                running.wait_for_progress()
                threading.Event().wait(rng.random() * 0.3)
                if rng.random() < 0.7:
                    broker.kill()
                    if rng.random() < 0.5:  # the worker lives on, and meets the new broker
                        broker.start()
                        running.wait_for_progress()
                done += running.done
            if broker.process is None:
                broker.start()
        count = feeder.stop()
        with worker(broker.servers, "worker", seed, program):
            wait_for_outputs(broker.servers, count)
        counts = judge(broker.servers, count)
    print(f"{client}: {KILLS} rounds, {done} commits seen, {counts}, seed {seed}")
