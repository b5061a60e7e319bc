"""Write the golden directories of format version 1: once, ever.

A golden directory is what this version wrote. Every later version has to read it, so nothing here
overwrites one: a new format gets directories of its own.

    PYTHONPATH=src:tests python tests/format/write_golden.py      writes those that are not there
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore import LogConfig, LogStore, TopicPartition
from logstore.disk.ballast import BALLAST_NAME
from logstore.disk.documents.settings import DirSettings, write_settings
from logstore.format import producer_file
from logstore.format.columnar import record_batch as columnar
from logstore.format.producers import SEQUENCE_MAX
from logstore.log.producers.producer_state import Producers
from support.moves import StagedMove, directory_id_of
from support.producers import NOW, add, end, header, sent

GOLDEN = Path(__file__).with_name("golden")
CODECS = ("none", "lz4", "zstd")


def rows_of(log: Any) -> list[list[Any]]:
    """Give a log's records as JSON can hold them."""
    return [
        [
            *(r.offset, r.timestamp, hex_of(r.key), hex_of(r.value)),
            [[name, hex_of(value)] for name, value in r.headers],
        ]
        for r in log
    ]


def hex_of(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def fill(log: Any, seed: int) -> None:
    """Append every shape of batch that the format knows."""
    rng = random.Random(seed)
    now = 1_700_000_000_000
    log.append(b"hi", timestamp=1)
    log.append(None, key=b"tombstone", timestamp=now)
    log.append(b"", timestamp=now, headers=(("name", b"value"), ("n\u00e4me", None), ("", b"")))
    log.extend([b"same size"] * 9, timestamps=now)
    log.extend([b"a", None, b"", b"dddd"], keys=[None, b"k", b"", b"kk"], timestamps=[9, 7, 8, now])
    log.leader_epoch = 3
    values = [rng.randbytes(rng.randrange(60)) for _ in range(40)]
    log.extend(values, timestamps=[now + i for i in range(40)])
    log.extend([None] * 3, keys=[None] * 3, timestamps=now, headers=[(("a", b"1"),), (), None])
    end = log.log_end_offset
    log.append_as_follower(columnar.hole(end, end + 5, 4))
    for _ in range(12):
        log.extend([rng.randbytes(70) + bytes(80)] * 5, timestamps=now + rng.randrange(999))


def write_sound(root: Path) -> None:
    """A store stopped in order: three codecs, several segments, deleted records."""
    with LogStore.open(root) as store:
        for partition, codec in enumerate(CODECS):
            config = LogConfig(segment_bytes=4096, index_interval_bytes=512, compression_type=codec)
            log = store.create("orders", partition, config=config)
            fill(log, partition)
        store.log("orders", 2).delete_records_before(20)
        expect(root, store)


def write_torn(root: Path) -> None:
    """A store that crashed in the middle of its last write."""
    with tempfile.TemporaryDirectory() as other:
        live = Path(other) / "live"
        with LogStore.open(live) as store:
            log = store.create("orders", 0, config=LogConfig(segment_bytes=4096))
            fill(log, 7)
            log.flush()
            log.extend([b"not flushed"] * 5, timestamps=5)
            rows = rows_of(log)
            log.append(b"torn" * 30, timestamp=6)
            shutil.copytree(live, root)
        path = sorted((root / "orders-0").glob("*.log"))[-1]
        path.write_bytes(path.read_bytes()[:-90])
        (root / "expected.json").write_text(json.dumps({"orders-0": rows}))


def write_corrupt(root: Path) -> None:
    """A store in which a bit of a sealed segment turned over after an orderly stop."""
    with LogStore.open(root) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=2048))
        fill(log, 8)
        batch = next(iter(log.read_batches(30)))
        bad = batch.header
        expect(root, store)
        rows = [r for r in rows_of(log) if not bad.base_offset <= r[0] <= bad.last_offset]
        raw = log.read_raw(30, 1)
    (path,) = [p for p in (root / "orders-0").glob("*.log") if raw in p.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.index(raw) + len(raw) // 2] ^= 16
    path.write_bytes(data)
    lost = [bad.base_offset, bad.last_offset + 1]
    (root / "expected.json").write_text(json.dumps({"orders-0": rows, "lost": lost}))


def write_dirs(root: Path) -> None:
    """A store of two log dirs with their catalog and settings; it crashed while it swapped one."""
    dirs = [root / "a", root / "b"]
    with LogStore.open(dirs) as store:
        for partition in range(2):
            fill(store.create("orders", partition, log_dir=dirs[0]), partition)
        expect(root, store)
        end_offset = store.log("orders", 1).log_end_offset
        store.create("gone", 0, log_dir=dirs[1])
        store.delete("gone", 0)
    wish = {TopicPartition("orders", 7): 1_700_000_000_000}
    write_settings(str(dirs[0]), directory_id_of(dirs[0]), DirSettings(True))
    write_settings(str(dirs[1]), directory_id_of(dirs[1]), DirSettings(False, wish))
    move = StagedMove(dirs[0], dirs[1], "orders", 1, end_offset)
    move.name().copy().catch_up().rename_source()


def write_named(root: Path) -> None:
    """A store whose small files say of which kind and log they are; records of it are deleted."""
    with tempfile.TemporaryDirectory() as other:
        dirs = [Path(other) / "a", Path(other) / "b"]
        with LogStore.open(dirs, admin_socket=False) as store:
            for partition in range(2):
                config = LogConfig(segment_bytes=2048, index_interval_bytes=512)
                log = store.create("orders", partition, log_dir=dirs[partition], config=config)
                fill(log, partition)
                log.delete_records_before(30)
            store.cordon(dirs[1])
            expect(Path(other), store)
        shutil.copytree(other, root)


def write_replicated(root: Path) -> None:
    """Two logs with facts, of which one is replicated up to its middle; it was killed."""
    with tempfile.TemporaryDirectory() as other:
        live = Path(other) / "live"
        with LogStore.open(live, admin_socket=False) as store:
            for partition in range(2):
                fill(store.create("orders", partition), partition)
            store.log("orders", 0).advance_high_watermark(20)
        with LogStore.open(live, admin_socket=False) as store:
            log = store.log("orders", 0)
            log.advance_high_watermark(30)
            for partition in range(2):
                facts = {"whole_since": 7, "ids": ["a", None, {"b": 1.5}]}
                store.log("orders", partition).facts.update(facts)
            log.advance_high_watermark(40)
            shutil.copytree(live, root)
            expect(root, store)


def write_producers(root: Path) -> None:
    """A file of producers: some with transactions, one of another epoch, one with seven batches."""
    producers = Producers()
    for number in range(7):
        add(producers, header(3, number, 1 + number % 2, timestamp=NOW + number))
    add(producers, header(2**62, SEQUENCE_MAX, 2, transactional=True), header(1, 9, 4, epoch=7))
    add(producers, header(6, 0, epoch=2, transactional=True))
    end(producers, 6, commit=False, epoch=3, coordinator_epoch=11)
    (root / "orders-4").mkdir(parents=True)
    path = root / "orders-4" / producer_file.name_of(producers.end_offset)
    path.write_bytes(producer_file.encode(producers.snapshot(), bytes(range(16)), 4))
    (root / "expected.json").write_text(json.dumps(producers.states()))


def write_idempotent(root: Path) -> None:
    """Two logs with producers: one batch sent seven times over, transactions, a name; killed."""
    with tempfile.TemporaryDirectory() as other:
        live = Path(other) / "live"
        with LogStore.open(live, admin_socket=False) as store:
            for partition, layout in enumerate(("columnar", "kafka")):
                config = LogConfig(record_format=layout, segment_bytes=1024)
                log = store.create("orders", partition, config=config)
                for number in range(7):
                    log.append_encoded(sent(3, number, columnar=not partition))
                log.idempotent_producer("sensor").extend([b"a", b"b"], timestamps=NOW)
                if partition:
                    for producer_id, is_commit in ((5, True), (6, False)):
                        log.append_encoded(sent(producer_id, 0, transactional=True))
                        log.append_marker(producer_id, 0, commit=is_commit, coordinator_epoch=2)
                    log.append_encoded(sent(7, 0, transactional=True))
                log.flush()
                log.delete_records_before(3)
            log.append_encoded(sent(8, 4))  # not in a snapshot
            log.append_encoded(sent(3, 7))
            shutil.copytree(live, root, ignore=shutil.ignore_patterns(BALLAST_NAME))
            expect(root, store)
            states = [
                [
                    state._replace(used_ms=0)
                    for state in store.log("orders", number).producer_states()
                ]
                for number in range(2)
            ]
    rows = json.loads((root / "expected.json").read_text())
    (root / "expected.json").write_text(json.dumps({"rows": rows, "states": states}))


def expect(root: Path, store: LogStore) -> None:
    found = {f"{t}-{p}": rows_of(store.log(t, p)) for t, p in store}
    (root / "expected.json").write_text(json.dumps(found))


WRITERS: dict[str, Callable[[Path], None]] = {
    "v1": write_sound,
    "v1_torn_tail": write_torn,
    "v1_corrupt": write_corrupt,
    "v1_dirs": write_dirs,
    "v1_named": write_named,
    "v1_producers": write_producers,
    "v1_idempotent": write_idempotent,
    "v1_replicated": write_replicated,
}


def main() -> int:
    """Write the directories that are not there yet."""
    missing = [name for name in WRITERS if not (GOLDEN / name).exists()]
    if not missing:
        print("golden directories are written once and read for ever: all are there already")
        return 1
    GOLDEN.mkdir(exist_ok=True)
    for name in missing:
        WRITERS[name](GOLDEN / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
