"""One of a broker's three disks hangs, dies or fills under load; the clients of the others go on.

Each disk has a topic of its own, whose records are flushed before they are acknowledged, and an
idempotent producer that sends again what was not answered. Clients of the sick disk get error 56
soon, and go on when it is back; nothing acknowledged is lost and nothing is doubled.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker_process import serve
from support.broker_questions import Asker
from support.kafka_client import KafkaClient, batch_of, produce_fields
from support.loop_disk import LoopDisk, loop_disk
from support.places import environment

pytestmark = pytest.mark.alone
EXTRA_MS_MAX = 50.0  # by which a fault may delay the clients of other disks
REFUSED_MS_MAX = 1000.0 + 500.0  # the time until a disk is SUSPECT, and that of this machine
BATCHES = 60  # of each producer in each part of the run
TRIES = 3  # the machine may do something else
STORAGE_ERROR = 56


class Sent(NamedTuple):
    """One request of a producer: when it began, how long it took, and what came of it."""

    began: float
    ms: float
    code: int  # of the answer; -1: the connection ended


class Producer:
    """An idempotent producer of one topic, which has one request under way at a time."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.sent: list[Sent] = []
        self.acknowledged = 0
        self.is_ended = False
        self.faults: list[AssertionError] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def end(self) -> None:
        """Send no more."""
        self.is_ended = True
        self._thread.join()
        assert not self.faults, self.faults

    def _run(self) -> None:
        fields = {"transactional_id": None, "transaction_timeout_ms": 1}
        with KafkaClient(self.servers) as client:
            self.producer_id = client.call("InitProducerId", **fields).producer_id
        while not self.is_ended:
            try:
                with KafkaClient(self.servers) as client:
                    while not self.is_ended:
                        self._send(client)
            except (OSError, EOFError):
                continue
            except AssertionError as error:
                self.faults.append(error)
                return

    def _send(self, client: KafkaClient) -> None:
        first = self.acknowledged
        batch = batch_of(b"%d" % first, producer=(self.producer_id, 0, first))
        began, code = time.monotonic(), -1
        try:
            asked = produce_fields({(self.topic, 0): batch})
            row = client.call("Produce", 12, **asked).responses[0].partition_responses[0]
            code = row.error_code
            if not code:
                assert row.base_offset == first, f"{self.topic}: {row} instead of {first}"
                self.acknowledged += 1
        finally:
            self.sent.append(Sent(began, 1000 * (time.monotonic() - began), code))
        if code:
            assert code == STORAGE_ERROR, f"{self.topic}: {row}"
            PAUSE.wait(0.02)


PAUSE = threading.Event()  # never set


class Fault(NamedTuple):
    """A way in which a disk fails, and how it is mended; `refuses` is called until it does."""

    name: str
    strike: Callable[[LoopDisk], None]
    mend: Callable[[LoopDisk], None]
    is_offline: bool = False


def fill(disk: LoopDisk) -> None:
    """Fill a disk to its last byte with another file."""
    with open(disk.mount / "balloon", "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def empty(disk: LoopDisk) -> None:
    """Make room again."""
    (disk.mount / "balloon").unlink()


FAULTS = [
    Fault("hangs", LoopDisk.freeze, LoopDisk.thaw),
    Fault("fills", fill, empty),
    Fault("dies", LoopDisk.cut_power, LoopDisk.remount, is_offline=True),
]


@pytest.fixture
def disks(kind: str) -> Iterator[list[LoopDisk]]:
    with ExitStack() as stack:
        yield [stack.enter_context(loop_disk(kind)) for _ in "123"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_disk_of_a_broker(disks: list[LoopDisk], fault: Fault, tmp_path: Path) -> None:
    """The others are hardly delayed; the sick one is refused, and served again when it is back."""
    log_dirs = [disk.mount / "logs" for disk in disks]
    delays = []
    for number in range(TRIES):
        delays.append(play(disks, log_dirs, fault, f"try{number}"))
        if delays[-1] <= EXTRA_MS_MAX:
            break
    print(f"faults: a disk of a broker {fault.name}: the others wait {delays[-1]:.1f} ms longer")
    assert delays[-1] <= EXTRA_MS_MAX, delays


def play(disks: list[LoopDisk], log_dirs: list[Path], fault: Fault, name: str) -> float:
    """Run a broker with a fault; returns by how much the others' slowest request is slower then."""
    child, servers = serve(log_dirs)
    with child, ExitStack() as stack:
        stack.callback(child.kill)
        topics = [f"{name}-{number}" for number in range(3)]
        with KafkaClient(servers) as client:
            ask = Asker(client, 0, list(map(str, log_dirs)))
            for topic, path in zip(topics, log_dirs, strict=True):
                ask.move(str(path.resolve()), topic, 0)
                client.create(topic, flush_messages="1")
        producers = [Producer(servers, topic) for topic in topics]
        for one in producers:
            one.start()
            stack.callback(one.end)
        sick, others = producers[0], producers[1:]
        wait_for(producers)
        struck = time.monotonic()
        fault.strike(disks[0])
        until(lambda: any(row.code == STORAGE_ERROR for row in list(sick.sent)), "error 56")
        wait_for(others)
        mended = time.monotonic()
        fault.mend(disks[0])
        if fault.is_offline:
            reopen(log_dirs)
        wait_for(producers)
        for one in producers:
            one.end()
        refused = [row for row in sick.sent if struck <= row.began < mended and row.code]
        slowest = max(row.ms for row in refused if row.code == STORAGE_ERROR)
        assert refused[0].ms <= REFUSED_MS_MAX and slowest <= REFUSED_MS_MAX, refused[:3]
        check(servers, producers)
        before = [row.ms for one in others for row in one.sent if row.began < struck]
        during = [row.ms for one in others for row in one.sent if struck <= row.began < mended]
        assert all(not row.code for one in others for row in one.sent)
        return max(during) - max(before)


def wait_for(producers: list[Producer]) -> None:
    """Wait until each producer has some further batches acknowledged."""
    goals = [one.acknowledged + BATCHES for one in producers]
    until(
        lambda: all(one.acknowledged >= goal for one, goal in zip(producers, goals, strict=True)),
        "acknowledged batches",
    )


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        PAUSE.wait(0.005)


def reopen(log_dirs: list[Path]) -> None:
    """Bring the log dir back, as its owner does it."""
    words = [sys.executable, "-m", "logstore.cli", "reopen", str(log_dirs[0].resolve())]
    words += ["--log-dirs", ",".join(str(path) for path in log_dirs)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(servers: str, producers: list[Producer]) -> None:
    """Read everything: each acknowledged record is there once, in order."""
    with KafkaClient(servers) as client:
        for one in producers:
            row = client.fetch(one.topic, 0, partition_max_bytes=16 << 20)
            assert row.error_code == 0 and row.high_watermark >= one.acknowledged, row
            assert row.high_watermark <= one.acknowledged + 1, f"{one.topic}: a record is doubled"
