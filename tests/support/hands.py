"""Lay out the log dirs of a Kafka broker that change hands, and compare what is in them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from logstore import LogStore, TopicPartition
from support.kafka_golden import Given, given, log_dirs
from support.places import environment
from support.source_tree import REPOSITORY

LEVELS = ("read_uncommitted", "read_committed")
SOME = {"segments-0", "transactions-0", "stamped-0", "__consumer_offsets-0"}
SERVE = """
import sys
from broker import Broker
from broker.config import STORE_CONFIG, BrokerConfig
store = STORE_CONFIG.replace(log_cleaner_backoff_ms=200)
with Broker.start(sys.argv[1:], config=BrokerConfig(store_config=store)) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Ours:
    """The broker of this library, in a process of its own."""

    def __init__(self, dirs: list[Path]) -> None:
        self._dirs = dirs
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap = ""

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *map(str, self._dirs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().strip()
        assert self.bootstrap, "the broker did not start"

    def stop(self) -> None:
        """End the process in order."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def kill(self) -> None:
        """End the process by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self.stop()


class Worker:
    """A process that lets log dirs change hands, and is killed on the way."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.hands_worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd=REPOSITORY / "tests",
            env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}", "PATH": "/bin"},
        )  # fmt: skip

    def ask(self, name: str, dirs: list[Path], number: int = 0) -> tuple[int, str]:
        """Give how many changes of a disk there were, and how it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        line = json.dumps([name, [str(one) for one in dirs], number])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        count, how = json.loads(self._process.stdout.readline())
        return count, how

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def read(store: LogStore, key: TopicPartition) -> dict[str, list[tuple[Any, ...]]]:
    """Read a log in both isolation levels."""
    log = store.log(*key)
    return {
        level: [
            tuple(record[:5])
            for batch in log.read_batches(isolation_level=level)
            for record in batch
        ]
        for level in LEVELS
    }


def check(store: LogStore, expected: dict[TopicPartition, Given]) -> None:
    """Compare the logs with what Kafka's consumers were given."""
    for key, one in expected.items():
        log = store.log(*key)
        assert (log.log_start_offset, log.log_end_offset) == (one.start, one.end), key
        rows = dict(zip(LEVELS, (one.uncommitted, one.committed), strict=True))
        assert read(store, key) == rows, key


def names_below(dirs: list[Path]) -> set[str]:
    """List all names in log dirs."""
    return {str(path.relative_to(one.parent)) for one in dirs for path in one.rglob("*")}


def bytes_below(dirs: list[Path]) -> dict[str, bytes]:
    """Give every file below log dirs, except Kafka's empty lock file."""
    found = (path for one in dirs for path in one.rglob("*"))
    return {
        str(path): path.read_bytes() for path in found if path.is_file() and path.stat().st_size
    }


def epochs_below(dirs: list[Path]) -> dict[str, str]:
    """Give Kafka's leader epochs of each partition."""
    found = (path for one in dirs for path in one.glob("*[0-9]/leader-epoch-checkpoint"))
    return {path.parent.name: path.read_text() for path in found}


def small(place: Path, name: str = "stopped") -> list[Path]:
    """Lay out log dirs with few partitions."""
    dirs = log_dirs(name, place)
    for path in (path for one in dirs for path in one.iterdir()):
        if path.is_dir() and path.name not in SOME:
            shutil.rmtree(path)
    for path in (path for one in dirs for path in one.glob("*-checkpoint")):
        path.unlink()
    return dirs


def known(name: str, dirs: list[Path]) -> dict[TopicPartition, Given]:
    """Give what consumers were given of the partitions that are in the log dirs."""
    kept = {path.name for one in dirs for path in one.iterdir()}
    return {key: one for key, one in given(name).items() if str(key) in kept}
