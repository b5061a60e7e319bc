"""Kill a driver in the middle of its batches: nothing is lost, nothing is doubled.

`make spark-kill` runs it, 20 kills for each sink (LOGSTORE_SPARK_KILLS); `make test` does not, as a
driver takes half a minute to start. There tests/spark/test_commits.py cuts commits at their calls.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from logstore import LogStore

KILLS = int(os.environ.get("LOGSTORE_SPARK_KILLS", "20"))
BATCH = 300
SECONDS_MAX = 600
DRIVER = Path(__file__).with_name("copying_driver.py")
SINKS = ("logstore", "parquet")


class Driver:
    """A driver in a process group of its own: Python, JVM and Spark's Python workers."""

    def __init__(self, root: Path, kind: str) -> None:
        places = (f"{root}/source", f"{root}/target", kind, f"{root}/checkpoint")
        source = Path(__file__).parents[2] / "src"
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), *places],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, word: str) -> bool:
        """Read its lines up to a word; False if it ended without it."""
        assert self.process.stdout is not None
        return any(line.strip() == word for line in self.process.stdout)

    def kill(self) -> None:
        """Kill all of it at once, as when the machine stops."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        """Wait for the driver and close its pipe."""
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait_for_batch(driver: Driver, root: Path, number: int) -> None:
    """Wait until the checkpoint says that this batch was planned."""
    path = root / "checkpoint" / "offsets" / str(number)
    deadline = time.monotonic() + SECONDS_MAX
    while not path.exists():
        assert time.monotonic() < deadline, f"no batch {number} was planned"
        with suppress(subprocess.TimeoutExpired):  # its checkpoint is all that Spark shows
            status = driver.process.wait(0.02)
            raise AssertionError(f"the driver ended by itself before batch {number}: {status}")


def sunk(root: Path, kind: str) -> Counter[bytes | None]:
    """Count every value in the sink."""
    if kind == "logstore":
        with LogStore.open(root / "target", read_only=True) as store:
            return Counter(record.value for key in store for record in store[key])
    # What the sink's own log names; files of batches that were cut lie about as well.
    table = pq.read_table(committed_files(root / "target"), columns=["value"])
    return Counter(table.column("value").to_pylist())


def committed_files(target: Path) -> list[str]:
    """Give the files that the parquet sink has committed."""
    import json
    from urllib.parse import unquote, urlparse

    found: set[str] = set()
    for log in (target / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found.add(unquote(urlparse(json.loads(line)["path"]).path))
    return sorted(found)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SINKS)
def test_a_driver_killed_in_its_batches_loses_and_doubles_nothing(
    tmp_path: Path, kind: str
) -> None:
    """The sink has each record once, however often the driver died."""
    random_ = random.Random(KILLS)
    expected = [b"%d" % number for number in range(BATCH * (2 * KILLS + 2))]
    with LogStore.open(tmp_path / "source", admin_socket=False) as store:
        logs = [store.create("t", partition) for partition in range(3)]
        for start in range(0, len(expected), 100):
            logs[start // 100 % 3].extend(expected[start : start + 100])
    if kind == "logstore":
        with LogStore.open(tmp_path / "target", admin_socket=False) as store:
            for partition in range(3):
                store.create("t", partition)
    for kill in range(KILLS):
        driver = Driver(tmp_path, kind)
        try:
            # A batch that was planned is under way; then any moment of it will do.
            wait_for_batch(driver, tmp_path, 2 * kill + 1)
            with suppress(subprocess.TimeoutExpired):
                driver.process.wait(random_.random() * 0.6)
        finally:
            driver.kill()
    driver = Driver(tmp_path, kind)
    try:
        assert driver.wait_for("finished")
        driver.end()
    finally:
        if driver.process.poll() is None:
            driver.kill()
    found = sunk(tmp_path, kind)
    assert found == Counter(expected)
