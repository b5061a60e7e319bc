"""A batch of a client that decompresses to gigabytes takes no more memory than the settings say."""

from __future__ import annotations

import random
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from broker import Broker
from broker.machines.decompression import DecompressionError, DecompressionMemory
from broker.requests import list_offsets
from broker.wire import messages
from logstore import LogConfig, LogStore
from logstore.disk import files
from logstore.format import expansion_lease as lease
from logstore.format.compression import CODEC_IDS
from logstore.format.expansion import RECORD_BYTES
from logstore.format.kafka import codecs
from logstore.format.kafka.header import HEADER_BYTES
from logstore.format.kafka.markers import Marker, build_marker, read_marker
from logstore.format.kafka.record_batch import read_header
from support.broker_process import serve
from support.kafka_client import KafkaClient, batch_of, values_in

MIB = 1 << 20
TOO_LARGE, TRY_AGAIN = 10, 56
CODECS = ("gzip", "snappy", "lz4", "zstd")


def packed(codec: str, value_bytes: int, timestamp: int = 1000, noise: bytes = b"") -> bytes:
    """Make a batch of one compressed record of zeros, after bytes that do not shrink."""
    data = batch_of(noise + bytes(value_bytes - len(noise)), timestamp=timestamp)
    number = CODEC_IDS[codec]
    records = codecs.compress(number, data[HEADER_BYTES:])
    made = bytearray(data[:HEADER_BYTES]) + records
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">H", made, 21, number)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


def peak_mib(pid: int) -> int:
    """Return the largest memory that a process has had, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    (line,) = [one for one in text.splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) >> 10


def test_regression_four_bombs_take_no_gigabytes(tmp_path: Path) -> None:
    """They were accepted; now each gets error 10. The frames of lz4 do not say their size."""
    bombs = [packed("zstd", 200 * MIB), packed("lz4", 200 * MIB)]
    child, address = serve([tmp_path])
    with child:
        try:
            with KafkaClient(address) as client:
                client.create("t", 4)
                before = peak_mib(child.pid)

            def send(partition: int) -> int:
                with KafkaClient(address) as client:
                    return int(client.produce("t", bombs[partition % 2], partition).error_code)

            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(send, range(4))) == [TOO_LARGE] * 4
            assert peak_mib(child.pid) - before < 560, (before, peak_mib(child.pid))
        finally:
            child.kill()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(config={"decompressed_batch_bytes_max": MIB}) as running:
        yield running


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_of_a_batch(client: KafkaClient, codec: str) -> None:
    """A batch below it is kept, and one beyond it is refused with the setting's name."""
    client.create(codec)
    row = client.produce(codec, packed(codec, MIB - 1000))
    assert row.error_code == 0, row.error_message
    row = client.produce(codec, packed(codec, MIB))
    assert row.error_code == TOO_LARGE and "decompressed_batch_bytes_max" in row.error_message
    assert client.fetch(codec, 1).high_watermark == 1


def test_the_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the sizes, so that an operator can raise the setting."""
    config = {"decompressed_batch_bytes_max": MIB}
    with Broker.start(config=config) as own, KafkaClient(own.bootstrap_servers) as client:
        client.create("t")
        client.produce("t", packed("zstd", 2 * MIB))
        assert client.produce("t", batch_of(*[b""] * 5000)).error_code == 0  # it is not compressed
    assert f"decompressed_batch_bytes_max={MIB}" in caplog.text


def test_a_search_by_time_keeps_within_the_limit(tmp_path: Path) -> None:
    """A batch that the program appended may be larger; a client cannot make the broker read it."""
    config = LogConfig(record_format="kafka", max_message_bytes=4 * MIB)
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0, config=config)
        log.append_encoded(packed("zstd", 2 * MIB, timestamp=7))
        limits = {"decompressed_batch_bytes_max": MIB}
        with (
            Broker.start(store=store, config=limits) as own,
            KafkaClient(own.bootstrap_servers) as client,
        ):
            asked = messages.ListOffsetsRequest
            topic = asked.ListOffsetsTopic("t", [asked.ListOffsetsPartition(0, -1, 5)])
            answer = client.call("ListOffsets", topics=[topic])
            assert answer.topics[0].partitions[0].error_code == TOO_LARGE
            assert len(values_in(client.fetch("t", 0).records)) == 1


def memory(
    batch: int = 100 * MIB, total: int = MIB, seconds: float = 20.0
) -> tuple[DecompressionMemory, list[str]]:
    told: list[str] = []
    return DecompressionMemory(batch, total, lambda _, text: told.append(text), seconds), told


def test_a_thread_waits_for_memory_and_is_then_refused() -> None:
    """It holds nothing while it waits; what is given back wakes it."""
    room, told = memory(seconds=0.05)
    with room.lease():
        lease.count_decoded(MIB // RECORD_BYTES)
        taken = room.taken_bytes

        def refused() -> int:
            with room.lease(), pytest.raises(DecompressionError) as caught:
                lease.count_decoded(10)
            return int(caught.value.code)

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(refused).result() == TRY_AGAIN
        assert room.taken_bytes == taken and "decompressed_bytes_max" in told[0]
        lease.settle()
        assert room.taken_bytes == 0
    assert room.taken_bytes == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batches_take_turns(codec: str) -> None:
    """Eight threads, room for one or two: all finish, and the memory is never exceeded."""
    size = 300_000
    data, most = codecs.compress(CODEC_IDS[codec], bytes(size)), 2 * size + 1000
    room, told = memory(total=most)
    seen, together = [], threading.Barrier(8)

    def work(_: int) -> int:
        together.wait(20)
        with room.lease():
            done = len(lease.expand(CODEC_IDS[codec], data, 1, 1 << 30))
            seen.append(room.taken_bytes)
            return done

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [size] * 8
    assert 0 < max(seen) <= most and room.taken_bytes == 0 and not told


def test_a_frame_that_lies_about_its_size_is_counted() -> None:
    """The claim is small, the records are large: the limit holds."""
    honest = codecs.compress(CODEC_IDS["lz4"], bytes(50_000))
    room, told = memory(batch=100_000)
    with room.lease():
        assert len(lease.expand(CODEC_IDS["lz4"], honest, 1, 1 << 30)) == 50_000
        assert room.taken_bytes == 50_000 + RECORD_BYTES
        large = codecs.compress(CODEC_IDS["lz4"], bytes(2 * MIB))
        with pytest.raises(DecompressionError):
            lease.expand(CODEC_IDS["lz4"], large, 1, 1 << 30)
    assert room.taken_bytes == 0 and "100000" in told[0]


def noisy(timestamp: int, value_bytes: int) -> bytes:
    """Make a batch of one large record that fills a segment although it is compressed."""
    noise = random.Random(timestamp).randbytes(200_000)
    return packed("lz4", value_bytes, timestamp, noise)


@pytest.mark.parametrize("wanted", [1005, list_offsets.MAX_TIMESTAMP], ids=["time", "latest"])
@pytest.mark.parametrize("segment_bytes", [MIB // 4, 64 * MIB], ids=["many", "one"])
def test_regression_a_search_keeps_no_memory_while_it_reads_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int, segment_bytes: int
) -> None:
    """Before, a few searches on a disk that hung took the memory from the other disks.

    The decompressed records are gone, too, not only the reservation.
    """
    config = LogConfig(
        record_format="kafka",
        segment_bytes=segment_bytes,
        index_interval_bytes=16 * MIB,
        max_message_bytes=4 * MIB,
    )
    value_bytes, room, seen = 4 * MIB, memory(total=100 * MIB)[0], list[tuple[int, int]]()
    with LogStore.open(tmp_path) as store:
        log = store.create("t", 0, config=config)
        for timestamp in (1000, 1001, 1005, 1003, 1004, 1002):
            log.append_encoded(noisy(timestamp, value_bytes))
            # The marker has a later time than all records, so no segment can be skipped.
            log.append_marker(7, 0, commit=True, coordinator_epoch=0)

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen.append((room.taken_bytes, tracemalloc.get_traced_memory()[0]))
            return real(*arguments, **named)

        return call

    expanded = list[int]()

    def counted(real: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(*arguments: Any) -> bytes:
            expanded.append(len(real(*arguments)))
            return real(*arguments)

        return call

    with LogStore.open(tmp_path) as store:
        log = store.log("t", 0)
        for name in ("read_up_to", "open_regular", "read_file", "fstat"):
            monkeypatch.setattr(files, name, watched(getattr(files, name)))
        monkeypatch.setattr(codecs, "decompress", counted(codecs.decompress))
        tracemalloc.start()
        try:
            with room.lease():
                assert list_offsets.offset_of(log, wanted, 100) == (1005, 4)
        finally:
            tracemalloc.stop()
    assert len(expanded) >= 3
    assert {taken for taken, _ in seen} == {0}
    assert max(held for _, held in seen) < value_bytes


def test_a_marker_is_read_without_the_lease() -> None:
    """An append reads markers under the log's lock, if it rebuilds the producers of the log."""
    room, told = memory(seconds=0.05)
    data = build_marker(7, 0, 1000, Marker(is_commit=True, coordinator_epoch=3))

    def read() -> tuple[Marker | None, int]:
        with room.lease():
            return read_marker(data, 0, read_header(data, 0)), room.taken_bytes

    with room.lease(), ThreadPoolExecutor(1) as pool:
        lease.count_decoded(MIB // RECORD_BYTES)
        taken = room.taken_bytes
        assert pool.submit(read).result() == (Marker(True, 3), taken)
        assert read_marker(data, 0, read_header(data, 0)) == Marker(True, 3)
        assert room.taken_bytes == taken and not told
