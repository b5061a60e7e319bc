"""A batch that claims to be large, or becomes so, is refused before the memory is taken."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from logstore import CorruptRecordBatchError, LogStore, RecordExpansionError, StoreConfig
from logstore.format import compression
from logstore.format.compression import CODEC_IDS
from logstore.format.kafka import codecs as kafka_codecs
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.encode import KafkaPayload
from logstore.log import reader
from logstore.log.read import cursor

META = "version=1\nnode.id=1\ncluster.id=x\n"
GIB = 1 << 30

# Reads a log dir of Kafka's; gives how many records, what stopped it, and how much memory grew.
READER = """
import json, resource, sys
from logstore import CorruptRecordBatchError, LogStore, RecordExpansionError, StoreConfig
from logstore.format import compression
from logstore.format.kafka import codecs as kafka_codecs, record_batch as kafka
import cramjam, zlib, lz4.frame
compression.require(4)
config = StoreConfig(record_expansion_bytes_max=int(sys.argv[2]))
with LogStore.open_kafka(sys.argv[1], config=config) as store:
    before, count, reason = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, ""
    try:
        for batch in store["t", 0].read_batches():
            count += batch.count
    except (CorruptRecordBatchError, RecordExpansionError) as error:
        reason = str(error)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([count, reason, (after - before) >> 10]))
"""


def batch_of(base_offset: int, codec: str, records: bytes, count: int = 1) -> bytes:
    """Make a batch with a right checksum around any bytes."""
    plain = kafka.build_payload([b"x"] * count, None, 1, None)
    head = bytearray(b"".join(kafka.frame(plain, base_offset, 0))[: kafka.HEADER_BYTES])
    head[22] = CODEC_IDS[codec]
    body = bytes(head[21:]) + records
    payload = KafkaPayload(struct.pack(">BI", 2, crc32c(body)) + body, count, count - 1, 1)
    return b"".join(kafka.frame(payload, base_offset, 0))


def broker_dir(place: Path, *batches: bytes) -> Path:
    """Make a broker's log dir with one partition of these batches."""
    (place / "meta.properties").write_text(META)
    (place / "t-0").mkdir()
    (place / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    return place


def read_apart(place: Path, bound: int = 2 << 30) -> tuple[int, str, int]:
    """Read it in a process of its own: records, what stopped it, MiB that it took."""
    command = [sys.executable, "-c", READER, str(place), str(bound)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, reason, grown = json.loads(done.stdout)
    return count, reason, grown


def zstd_claim(size_bytes: int) -> bytes:
    """Make a frame of one empty block whose header says how large it will be."""
    single_segment_of_8 = b"\x28\xb5\x2f\xfd\xe0"
    return single_segment_of_8 + struct.pack("<Q", size_bytes) + b"\x01\x00\x00"


@pytest.mark.parametrize("size_bytes", [4 * GIB - 1, 2**62])
@pytest.mark.parametrize("codec", ["snappy", "xerial", "lz4", "zstd"])
def test_a_claim_takes_no_memory(tmp_path: Path, codec: str, size_bytes: int) -> None:
    """A size that a frame's header names is not believed; what comes before it is read."""
    claimed = min(size_bytes, 2**32 - 1)
    varint = bytearray()
    while claimed > 0x7F:
        varint.append(claimed & 0x7F | 0x80)
        claimed >>= 7
    bare = bytes([*varint, claimed]) + b"\x00x"
    records = {
        "snappy": bare,
        "xerial": kafka_codecs.XERIAL_HEADER.pack(kafka_codecs.XERIAL_MAGIC, 1, 1)
        + struct.pack(">i", len(bare))
        + bare,
        "lz4": b"\x04\x22\x4d\x18\x68\x70" + struct.pack("<Q", size_bytes) + b"\x00" * 9,
        "zstd": zstd_claim(size_bytes),
    }[codec]
    name = "snappy" if codec == "xerial" else codec
    good = b"".join(kafka.frame(kafka.build_payload([b"good"], None, 1, None), 0, 0))
    place = broker_dir(tmp_path, good, batch_of(1, name, records))
    count, reason, grown = read_apart(place)
    assert count == 1 and f"{0:020d}.log" in reason and grown < 64, (count, reason, grown)
    assert "decompress" in reason, reason


def test_what_becomes_too_large_is_given_up_at_the_bound(tmp_path: Path) -> None:
    """16 KiB that are 512 MiB: the memory taken is the bound's, twice at most."""
    bound = 256 << 20
    bomb = bytes(2 * bound)
    packed = compression.compress(CODEC_IDS["zstd"], bomb)
    assert len(packed) < 100_000
    place = broker_dir(tmp_path, *(batch_of(at, "zstd", packed) for at in range(3)))
    count, reason, grown = read_apart(place, bound)
    assert count == 0 and f"record_expansion_bytes_max={bound}" in reason
    assert f"{0:020d}.log" in reason
    assert grown < 2 * (bound >> 20) + 128, grown


def test_regression_a_sound_batch_is_read_whatever_it_decompresses_to(tmp_path: Path) -> None:
    """300 MiB in a batch of a few KB: the store's setting decides alone, and the error says so."""
    payload = kafka.build_payload([bytes(300 << 20)], None, 1, None, codec_id=CODEC_IDS["zstd"])
    place = broker_dir(tmp_path, b"".join(kafka.frame(payload, 0, 0)))
    with LogStore.open_kafka(place) as store:
        assert store["t", 0][0].value == bytes(300 << 20)
    config = StoreConfig(record_expansion_bytes_max="256 MiB")
    with LogStore.open_kafka(place, config=config) as store:
        with pytest.raises(RecordExpansionError, match="raise this limit in the StoreConfig"):
            store["t", 0].read(0)
        assert "record_expansion_bytes_max" in str(store["t", 0].verify())


def test_more_records_than_bytes_are_refused(tmp_path: Path) -> None:
    """A count of 2,000 million asks for no array of so many."""
    packed = kafka_codecs.compress(CODEC_IDS["gzip"], b"\x10\0\0\0\1\4hi\0")
    data = bytearray(batch_of(0, "gzip", packed))
    struct.pack_into(">i", data, 23, 2**31 - 2)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    place = broker_dir(tmp_path, bytes(data))
    with (
        LogStore.open_kafka(place) as store,
        pytest.raises(CorruptRecordBatchError, match="do not fit into 9 bytes"),
    ):
        list(store["t", 0].read_batches())


def test_a_read_holds_no_heap_of_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call gives a bounded part of what small batches are restored to, a point read one."""
    payload = kafka.build_payload([bytes(100_000)], None, 1, None, codec_id=CODEC_IDS["gzip"])
    place = broker_dir(tmp_path, *(b"".join(kafka.frame(payload, at, 0)) for at in range(20)))
    monkeypatch.setattr(reader, "HELD_BYTES_MAX", 350_000)
    monkeypatch.setattr(cursor, "BLOCK_BYTES_MAX", 350_000)
    with LogStore.open_kafka(place) as store:
        log = store["t", 0]
        assert [record.offset for record in log.read(2, max_bytes=10_000)] == [2, 3, 4]
        assert len(log.read(2, max_bytes=1_000_000)) == 10
        assert [log[at].offset for at in range(20)] == list(range(20))
        blocks = log._state.environment.blocks
        assert blocks.weight == 0
        monkeypatch.undo()
        assert log[5].offset == 5 and blocks.weight > 20 * 100_000
