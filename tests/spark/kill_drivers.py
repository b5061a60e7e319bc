"""Kill a driver in the middle of its batches: nothing is lost, nothing is doubled.

`make spark-kill` runs it, 20 kills for each sink (LOGSTORE_SPARK_KILLS); `make test` does not, as a
driver takes a quarter of a minute to start. There tests/spark/test_commits.py cuts commits at their
calls.

The kills fall, in turn, at any moment after a batch was planned, when a task has written something,
and when the commit has. A kill counts when Spark had planned a batch and had not yet noted that it
is committed. The stream has no end of its own and waits for records when it has none, so this
process may be stopped or slow for as long as it likes; a driver that ends is an error, and its
output is shown.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest

from logstore import Log, LogStore
from logstore.spark.write.commits import read_records

KILLS = int(os.environ.get("LOGSTORE_SPARK_KILLS", "20"))
BATCH = 300
SECONDS_MAX = 600
# From the planning of a batch on; it takes about half a second.
KILL_SECONDS_MAX = 0.6
# A driver that has nothing more to copy gives no further sign.
SIGN_SECONDS_MAX = 5.0
# What tasks and commits write, in the sink's directory.
SIGNS = {
    "logstore": (".spark/staged/*/*.batches", ".spark/commits/*"),
    "parquet": ("part-*", "_spark_metadata/.*"),
}
PARTITIONS = 3
DRIVER = Path(__file__).with_name("copying_driver.py")
SINKS = ("logstore", "parquet")


class Driver:
    """A driver in a process group of its own: Python and the JVM.

    Spark's Python workers are in groups of their own and end when they see that the JVM is gone; a
    commit that one of them is at goes on until then.
    """

    def __init__(self, root: Path, kind: str, trigger: str) -> None:
        places = (f"{root}/source", f"{root}/target", kind, f"{root}/checkpoint", trigger)
        source = Path(__file__).parents[2] / "src"
        scratch = root / "scratch"
        scratch.mkdir(exist_ok=True)
        self.checkpoint = root / "checkpoint"
        self.output = root / "driver.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), *places],
                env={**os.environ, "PYTHONPATH": str(source), "TMPDIR": str(scratch)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for_batch(self, number: int) -> None:
        """Wait until the checkpoint says that this batch was planned."""
        deadline = time.monotonic() + SECONDS_MAX
        while newest(self.checkpoint / "offsets") < number:
            assert time.monotonic() < deadline, self.told(f"no batch {number} was planned")
            self.wait(0.02)  # its checkpoint is all that Spark shows
            status = self.process.poll()
            assert status is None, self.told(f"the driver ended by itself with status {status}")

    def wait(self, seconds: float) -> None:
        """Wait a while, or until it ends."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def wait_for_sign(self, target: Path, pattern: str) -> None:
        """Wait until a file in the sink was made or replaced."""
        before, deadline = files_in(target, pattern), time.monotonic() + SIGN_SECONDS_MAX
        while files_in(target, pattern) <= before and time.monotonic() < deadline:
            self.wait(0.001)

    def end(self) -> None:
        """Wait until it has copied what is there."""
        status = self.process.wait(SECONDS_MAX)
        assert status == 0, self.told(f"the driver ended with status {status}")

    def kill(self) -> None:
        """Kill Python and the JVM at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def told(self, what: str) -> str:
        """Add the end of the driver's output to what is the matter."""
        return f"{what}\n{self.output.read_text(errors='replace')[-6000:]}"


def newest(directory: Path) -> int:
    """Give the number of the last batch that one of Spark's logs has; -1 for none."""
    return max((int(path.name) for path in directory.glob("[0-9]*")), default=-1)


def files_in(directory: Path, pattern: str) -> set[tuple[str, int]]:
    """Give the files of a kind by name and number."""
    found = set()
    for path in directory.glob(pattern):
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_ino))
    return found


def where_the_sink_is(root: Path, kind: str, batch: int) -> str:
    """Tell how far the sink had come with a batch."""
    if kind == "parquet":
        is_there = (root / "target" / "_spark_metadata" / str(batch)).exists()
        return "the sink has it" if is_there else "the sink has none of it"
    for record in read_records([str(root / "target")]).values():
        if record.pending is not None and record.pending.batch_id == batch:
            return "in its commit"
        if record.last_batch_id == batch:
            return "the sink has it"
    return "before its commit"


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
    found: set[str] = set()
    for log in (target / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found.add(unquote(urlparse(json.loads(line)["path"]).path))
    return sorted(found)


def append(logs: list[Log], appended: list[bytes], batches: int) -> None:
    """Append the records of some batches, to the partitions in turn."""
    for _ in range(batches * BATCH // 100):
        values = [b"%d" % number for number in range(len(appended), len(appended) + 100)]
        logs[len(appended) // 100 % PARTITIONS].extend(values)
        appended += values


def kill_in_a_batch(root: Path, kind: str, turn: int, seconds: float) -> str | None:
    """Kill a driver in the batch after the next one; None if it was in no batch any more."""
    driver = Driver(root, kind, "forever")
    try:
        driver.wait_for_batch(newest(root / "checkpoint" / "offsets") + 1)
        if turn % 3:
            driver.wait_for_sign(root / "target", SIGNS[kind][turn % 3 - 1])
        else:
            driver.wait(seconds)
    finally:
        driver.kill()
    assert driver.process.returncode == -signal.SIGKILL, driver.told("the driver ended by itself")
    planned = newest(root / "checkpoint" / "offsets")
    if newest(root / "checkpoint" / "commits") >= planned:
        return None
    return f"batch {planned}, {where_the_sink_is(root, kind, planned)}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SINKS)
def test_a_driver_killed_in_its_batches_loses_and_doubles_nothing(
    tmp_path: Path, kind: str
) -> None:
    """The sink has each record once, however often the driver died."""
    random_ = random.Random(KILLS)
    appended: list[bytes] = []
    if kind == "logstore":
        with LogStore.open(tmp_path / "target", admin_socket=False) as store:
            for partition in range(PARTITIONS):
                store.create("t", partition)
    kills = 0
    with LogStore.open(tmp_path / "source", admin_socket=False) as store:
        logs = [store.create("t", partition) for partition in range(PARTITIONS)]
        while kills < KILLS:
            append(logs, appended, 4)
            place = kill_in_a_batch(tmp_path, kind, kills, random_.random() * KILL_SECONDS_MAX)
            kills += place is not None
            print(f"{kind}: kill {kills} of {KILLS}: {place or 'between batches'}", flush=True)
        driver = Driver(tmp_path, kind, "once")
        try:
            driver.end()
        finally:
            driver.kill()
    assert sunk(tmp_path, kind) == Counter(appended)
