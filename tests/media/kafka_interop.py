"""Let Apache Kafka and this library read each other's segments.

    make kafka-interop            20 rounds; needs Java 17 and Maven

Each round produces at random (every codec, tombstones, headers, transactions committed, aborted and
left open), keeps what consumers are given in both isolation levels, ends the broker, every second
time by SIGKILL, and reads its log dirs. At last a partition written here is printed by Kafka's dump
tool and served by the broker; so are partitions that were adopted, moved to another disk by the
mover, and exported again. The broker goes on with them.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from logstore import LogConfig, LogStore, TopicPartition
from logstore.store.kafka.adoption import adopt
from logstore.store.kafka.export import export
from mover import ReplicaMover
from support.kafka_golden import row_of
from support.kafka_peer import Broker, Client, client_of, dump_log_segments, missing_tools
from support.producers import sent

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = ("read_uncommitted", "read_committed")
TOPIC = "drawn"
TOPICS = ("written", "compacted", TOPIC)
PARTITIONS = 3

Rows = dict[TopicPartition, list[tuple[Any, ...]]]


def produce(client: Client, rng: random.Random) -> None:
    """Produce some batches of every kind."""
    for codec in CODECS:
        client.ask("producer", codec, codec, "-", "true")
        for _ in range(rng.randrange(1, 4)):
            client.ask("random", codec, TOPIC, PARTITIONS, rng.randrange(200), rng.randrange(2**31))
            client.ask("flush", codec)
        client.ask("close", codec)
    for number in range(3):
        name = f"t{number}"
        client.ask("producer", name, rng.choice(CODECS), name, "true")
        for end in [rng.choice(("commit", "abort")) for _ in range(3)]:
            client.ask("begin", name)
            client.ask(
                "random", name, TOPIC, PARTITIONS, rng.randrange(1, 60), rng.randrange(2**31)
            )
            client.ask("flush", name)
            client.ask(end, name)
        if number == 0 and rng.random() < 0.5:  # one that is left open
            client.ask("begin", name)
            client.ask("random", name, TOPIC, PARTITIONS, 5, rng.randrange(2**31))
            client.ask("flush", name)


def consumed(client: Client, topic: str, level: str) -> Rows:
    """Give what a consumer is given."""
    found: Rows = {}
    for row in client.ask("consume", level, topic):
        key = TopicPartition(row["topic"], row["partition"])
        found.setdefault(key, [])
        if "offset" in row:
            found[key].append(row_of(tuple(row.values())[2:]))
    return found


def read(log: Any, level: str) -> list[tuple[Any, ...]]:
    """Read a log as a consumer of that isolation level."""
    batches = log.read_batches(isolation_level=level)
    return [tuple(record[:5]) for batch in batches for record in batch]


def one_round(broker: Broker, rng: random.Random, number: int) -> int:
    """Produce, end the broker, compare; give how many records were compared."""
    broker.start()
    with client_of(broker) as client:
        produce(client, rng)
        given = {level: consumed(client, TOPIC, level) for level in LEVELS}
        if number % 2:
            broker.kill()
    broker.stop()
    count = 0
    with LogStore.open_kafka(broker.log_dirs) as store:
        for level, rows in given.items():
            for key, expected in rows.items():
                assert read(store[key], level) == expected, (number, level, key)
                count += len(expected)
        report = store.verify()
        assert report.is_sound, report
    return count


def hand_back(broker: Broker, place: Path, rng: random.Random) -> None:
    """Write and adopt partitions, move them, export them, and let the broker serve them."""
    expected: dict[str, Rows] = {level: {} for level in LEVELS}
    out = place / "out"
    out.mkdir()
    broker.start()
    with client_of(broker) as client:  # the transaction that was left open is aborted
        client.ask("producer", "t0", "none", "t0", "true")
    broker.stop()
    disks = [place / "ours1", place / "ours2"]
    with LogStore.open(disks) as store, LogStore.open_kafka(broker.log_dirs) as source:
        write(store, rng)
        write_compacted(store, rng)
        for partition in range(PARTITIONS):
            adopt(store, source, TopicPartition(TOPIC, partition), lambda done: None)
        store.flush()
        given = {level: {key: read(store[key], level) for key in store} for level in LEVELS}
        move_all(store, disks)
        for key in store:
            for level in LEVELS:
                expected[level][key] = read(store[key], level)
                assert expected[level][key] == given[level][key], (level, key)
            export(store[key], str(out / str(key)))
    for path in sorted(out.glob("*/*.log")):
        text = dump_log_segments(path)
        assert "isvalid: false" not in text and "isvalid: true" in text, path
    serve(broker, out, expected)


def write(store: LogStore, rng: random.Random) -> None:
    """Write a partition in Kafka's layout with each codec, and one in columns."""
    for number, codec in enumerate(CODECS):
        config = LogConfig(record_format="kafka", compression_type=codec, segment_bytes=60_000)
        log = store.create("written", number, config=config)
        for _ in range(30):
            values = [rng.randbytes(rng.randrange(120)) for _ in range(rng.randrange(1, 60))]
            log.extend(values, keys=[None if len(v) % 3 else v[:4] for v in values])
        log.append(None, key=b"tombstone", headers=[("h", b"v"), ("n", None)])
        assert not log.verify()
    columns = store.create("written", len(CODECS))
    columns.extend([b"c%d" % at for at in range(500)], timestamps=range(1000, 1500))


def write_compacted(store: LogStore, rng: random.Random) -> None:
    """Write logs of few keys, with tombstones and transactions, and compact them several times."""
    for number, codec in enumerate(CODECS):
        config = LogConfig(
            record_format="kafka",
            compression_type=codec,
            cleanup_policy="compact",
            segment_bytes=20_000,
        )
        log = store.create("compacted", number, config=config)
        for turn in range(60):
            keys: list[bytes | None] = [b"k%d" % rng.randrange(50) for _ in range(20)]
            values = [None if rng.random() < 0.1 else rng.randbytes(40) for _ in keys]
            log.extend(values, keys=keys)
            rows = tuple(rng.randbytes(30) for _ in range(5))
            raw = sent(9, turn * 5, rows, transactional=True, keys=keys[:5])
            log.append_encoded(raw)
            log.append_marker(9, 0, commit=rng.random() < 0.5, coordinator_epoch=0)
            if turn % 20 == 19:
                log.flush()
                assert log.compact().segments_replaced
        assert not log.verify()


def move_all(store: LogStore, disks: list[Path]) -> None:
    """Move every partition to the disk where it is not, verified on the way."""
    with ReplicaMover(store) as mover:
        moves = []
        for key in store:
            (target,) = [each for each in map(str, disks) if each != store[key].log_dir]
            moves.append((key, target, mover.move(*key, target)))
        for key, target, move in moves:
            move.wait()
            assert move.error is None, (key, move.error)
            assert store[key].log_dir == target, key


def serve(broker: Broker, out: Path, expected: dict[str, Rows]) -> None:
    """Put exported segments into the broker's own directories, and consume them there."""
    broker.start()
    with client_of(broker) as client:
        client.ask("topic", "written", len(CODECS) + 1, "retention.ms=-1")
        client.ask("topic", "compacted", len(CODECS), "retention.ms=-1")
    broker.stop()
    for key in expected["read_uncommitted"]:
        (target,) = [path for each in broker.log_dirs for path in each.glob(str(key))]
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (out / str(key)).iterdir():
            shutil.copy(path, target)
    for each in broker.log_dirs:
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint",
                     "replication-offset-checkpoint"):  # fmt: skip
            (each / name).unlink(missing_ok=True)
    broker.start()
    with client_of(broker) as client:
        for level in LEVELS:
            for topic in TOPICS:
                for key, found in consumed(client, topic, level).items():
                    assert found == expected[level][key], (level, key)
        given = go_on(client, sorted(expected["read_uncommitted"]))
    broker.stop()
    with LogStore.open_kafka(broker.log_dirs) as store:
        for key, found in given.items():
            assert found[:-1] == expected["read_committed"][key] and found[-1][3] == b"goes on", key
            assert read(store[key], "read_committed") == found, key
        report = store.verify()
        assert report.is_sound, report


def go_on(client: Client, keys: list[TopicPartition]) -> Rows:
    """Produce one record more to each partition, in a transaction, and consume them all."""
    client.ask("producer", "after", "zstd", "after", "true")
    client.ask("begin", "after")
    for topic, partition in keys:
        client.send("after", topic, b"k", b"goes on", partition=partition)
    client.ask("commit", "after")
    rows: Rows = {}
    for topic in TOPICS:
        rows |= consumed(client, topic, "read_committed")
    return rows


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if missing_tools():
        print(missing_tools(), file=sys.stderr)
        return 1
    rng = random.Random(options.seed)
    place = Path(tempfile.mkdtemp(prefix="kafka-interop-"))
    broker = Broker(place, [place / "a", place / "b"], log_retention_ms=-1)
    try:
        broker.format()
        broker.start()
        with client_of(broker) as client:
            client.ask("topic", TOPIC, PARTITIONS, "internal.segment.bytes=200000")
        broker.stop()
        for number in range(options.rounds):
            count = one_round(broker, rng, number)
            print(f"round {number + 1}: {count} records as a consumer was given them", flush=True)
        hand_back(broker, place, rng)
        print("what was written, adopted, moved and exported is dumped and served by the broker")
    finally:
        broker.kill()
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
