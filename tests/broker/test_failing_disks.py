"""Test that a bad disk stalls only its own partitions, and doubles no record."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker import Broker
from broker.catalog.dynamic_settings import CORDONED, RATE
from broker.wire import messages
from logstore import LogConfig, LogStore, StoreConfig
from logstore.disk import files
from mover import ReplicaMover
from support.hanging import hang
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields, values_in
from support.serving import wait_until

CONFIG = LogConfig(record_format="kafka")
CALLS_MAX_SECONDS = 1.0
SECONDS = 30.0
LONG_MS = 25_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Return a store of two log dirs, with a partition in each."""
    config = StoreConfig(log_dir_suspect_ms=300)
    with LogStore.open([tmp_path / "sick", tmp_path / "well"], config=config) as store:
        for number, path in enumerate(store.log_dirs):
            store.create("t", number, log_dir=path, config=CONFIG)
        yield store


def numbered(number: int) -> bytes:
    """Make a batch of an idempotent producer."""
    return batch_of(b"%d" % number, producer=(9, 0, number))


def test_a_disk_that_hangs(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other disks are served; clients of the hanging disk are disconnected, and later get 56."""
    sick = store.log_dirs[0]
    with (
        Broker.start(store=store) as broker,
        KafkaClient(broker.bootstrap_servers) as first,
        KafkaClient(broker.bootstrap_servers) as other,
    ):
        assert first.produce("t", numbered(0), 0).error_code == 0
        with hang(monkeypatch, sick, "pwritev", "pwrite") as disk:
            first.send("Produce", 12, **produce_fields({("t", 0): numbered(1)}))
            assert disk.began.wait(SECONDS)
            slowest = 0.0
            for number in range(50):
                began = time.monotonic()
                assert other.produce("t", batch_of(b"%d" % number), 1).error_code == 0
                slowest = max(slowest, time.monotonic() - began)
            assert slowest < CALLS_MAX_SECONDS
            assert first.is_closed_by_broker
            with KafkaClient(broker.bootstrap_servers) as again:
                assert again.produce("t", numbered(1), 0).error_code == 56
                assert again.produce("t", batch_of(b"x"), 1).error_code == 0
        with KafkaClient(broker.bootstrap_servers) as again:
            deadline, pause = time.monotonic() + SECONDS, threading.Event()
            while (code := again.produce("t", numbered(1), 0).error_code) == 56:
                assert time.monotonic() < deadline
                pause.wait(0.02)
            assert code == 0
            assert again.produce("t", numbered(2), 0).error_code == 0
            assert values_in(again.fetch("t", 0, 0).records) == [b"0", b"1", b"2"]
            assert other.fetch("t", 0, 1).high_watermark == 51


def test_a_disk_that_fails_and_returns(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients get 56 and no leader while the disk is away; a waiting fetch ends at once."""
    sick = store.log_dirs[0]
    write = files.pwritev

    def broken(fd: int, *arguments: object) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(sick):
            raise OSError(5, "Input/output error")
        return write(fd, *arguments)  # type: ignore[arg-type]

    with (
        Broker.start(store=store) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
        KafkaClient(broker.bootstrap_servers) as reader,
    ):
        assert client.produce("t", numbered(0), 0).error_code == 0
        reader.send("Fetch", 12, **fetch_fields({("t", 0): 1}, max_wait_ms=LONG_MS))
        with monkeypatch.context() as patched:
            patched.setattr(files, "pwritev", broken)
            assert client.produce("t", numbered(1), 0).error_code == 56
        _, answer = reader.receive("Fetch", 12)
        assert answer.responses[0].partitions[0].error_code == 56
        assert client.produce("t", numbered(1), 0).error_code == 56
        topic = client.call("Metadata", 12, topics=None).topics[0]
        assert [row.leader_id for row in topic.partitions] == [-1, 0]
        store.reopen_dir(sick)
        row = client.produce("t", numbered(1), 0)
        assert (row.error_code, row.base_offset) == (0, 1)
        assert values_in(client.fetch("t", 0, 0).records) == [b"0", b"1"]


def test_a_full_disk(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients get 56, nothing is written, and the same batch succeeds when there is room."""
    write = files.pwritev

    def full(fd: int, *arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with Broker.start(store=store) as broker, KafkaClient(broker.bootstrap_servers) as client:
        with monkeypatch.context() as patched:
            patched.setattr(files, "pwritev", full)
            assert client.produce("t", numbered(0), 0).error_code == 56
        assert files.pwritev is write
        deadline, pause = time.monotonic() + SECONDS, threading.Event()
        while (row := client.produce("t", numbered(0), 0)).error_code == 56:
            assert time.monotonic() < deadline
            pause.wait(0.02)
        assert (row.error_code, row.base_offset) == (0, 0)


def test_a_disk_that_fails_while_its_file_is_sent(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends, the log dir goes OFFLINE, and the next fetch gets 56."""
    sick = store.log_dirs[0]
    log = store["t", 0]
    for number in range(100):
        log.append_encoded(batch_of(b"%d" % number * 100))

    is_broken, read, read_up_to = threading.Event(), files.pread, files.read_up_to

    def broken_send(out: int, fd: int, position: int, size: int) -> int:
        is_broken.set()
        raise OSError(5, "Input/output error")

    def broken(real: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(*arguments: object) -> bytes:
            if is_broken.is_set():
                raise OSError(5, "Input/output error")
            return real(*arguments)

        return call

    with Broker.start(store=store) as broker, monkeypatch.context() as patched:
        patched.setattr(os, "sendfile", broken_send)
        patched.setattr(files, "pread", broken(read))
        patched.setattr(files, "read_up_to", broken(read_up_to))
        with KafkaClient(broker.bootstrap_servers) as client:
            client.send("Fetch", 12, **fetch_fields({("t", 0): 0}))
            with pytest.raises(EOFError):
                client.read_frame()
        (offline,) = [one for one in store.describe_dirs().log_dirs if not one.is_live]
        assert offline.path == sick
        with KafkaClient(broker.bootstrap_servers) as client:
            assert client.fetch("t", 0, 0).error_code == 56


def test_a_topic_is_deleted_although_a_disk_of_a_move_hangs(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the partition of the hanging move stays until the disk answers."""
    sick, well = store.log_dirs
    for number in range(2):
        store.create("moved", number, log_dir=well, config=CONFIG)
    with (
        Broker.start(store=store) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
        KafkaClient(broker.bootstrap_servers) as stuck,
    ):
        with hang(monkeypatch, sick, "make_dir", "pwritev", "pwrite") as disk:
            move = messages.AlterReplicaLogDirsRequest
            topic = move.AlterReplicaLogDirTopic("moved", [0])
            dirs = [move.AlterReplicaLogDir(sick, [topic])]
            (row,) = client.call("AlterReplicaLogDirs", dirs=dirs).results
            assert row.partitions[0].error_code == 0 and disk.began.wait(SECONDS)
            stuck.send("Produce", 12, **produce_fields({("t", 0): batch_of(b"x")}))
            wait_until(lambda: store.host.dir_named(sick).is_suspect, "the dir is suspect")
            state = messages.DeleteTopicsRequest.DeleteTopicState("moved")
            answer = client.call("DeleteTopics", topics=[state], timeout_ms=LONG_MS)
            assert answer.responses[0].error_code == 0
            assert [key for key in store if key[0] == "moved"] == [("moved", 0)]
        wait_until(lambda: not [key for key in store if key[0] == "moved"], "no partition is left")


def test_settings_of_the_broker_change_although_a_log_dir_hangs(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cordon of the hanging log dir gets an error, and delays no other change."""
    sick, _ = store.log_dirs
    asked = messages.IncrementalAlterConfigsRequest

    def changed(client: KafkaClient, key: str, text: str) -> int:
        resource = asked.AlterConfigsResource(4, "0", [asked.AlterableConfig(key, 0, text)])
        answer = client.call("IncrementalAlterConfigs", resources=[resource])
        return int(answer.responses[0].error_code)

    with (
        Broker.start(store=store) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
        KafkaClient(broker.bootstrap_servers) as stuck,
    ):
        assert changed(client, RATE, "1000000") == 0
        with hang(monkeypatch, sick, "stat"):
            with suppress(EOFError):  # the broker cuts connections of a disk that hangs
                assert changed(stuck, CORDONED, sick) == 56
            wait_until(lambda: store.host.dir_named(sick).is_suspect, "the dir is suspect")
            assert changed(client, CORDONED, sick) == 56
            assert changed(client, RATE, "2000000") == 0
            assert ReplicaMover.of(store).throttle.rate_of() == 2_000_000
