"""Let Apache Kafka and this library read each other's segments.

    make kafka-interop            20 rounds; needs Java 17 and Maven

Each round produces at random (every codec, tombstones, headers, transactions committed, aborted and
left open), keeps what consumers are given in both isolation levels, ends the broker, every second
time by SIGKILL, and reads its log dirs. At last a partition written here is printed by Kafka's dump
tool and served by the broker; so are partitions that were adopted and exported again.
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
from logstore.store.kafka_adopting import adopt
from logstore.store.kafka_exporting import export
from support.kafka_golden import row_of
from support.kafka_peer import Broker, Client, client_of, dump_log_segments, missing_tools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = ("read_uncommitted", "read_committed")
TOPIC = "drawn"
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
    """Write, adopt and export partitions, and let the broker serve them."""
    expected: Rows = {}
    out = place / "out"
    out.mkdir()
    with LogStore.open(place / "ours") as store, LogStore.open_kafka(broker.log_dirs) as source:
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
        for partition in range(PARTITIONS):
            adopt(store, source, TopicPartition(TOPIC, partition), lambda done: None)
        store.flush()
        for key in store:
            expected[key] = read(store[key], "read_uncommitted")
            export(store[key], str(out / str(key)))
    for path in sorted(out.glob("written-*/*.log")):
        text = dump_log_segments(path)
        assert "isvalid: false" not in text and "isvalid: true" in text, path
    serve(broker, out, expected)


def serve(broker: Broker, out: Path, expected: Rows) -> None:
    """Put exported segments into the broker's own directories, and consume them."""
    broker.start()
    with client_of(broker) as client:
        client.ask("topic", "written", len(CODECS) + 1, "retention.ms=-1")
        client.ask("producer", "p", "none", "-", "true")
        for partition in range(len(CODECS) + 1):
            client.send("p", "written", None, b"placeholder", partition=partition)
        client.ask("flush", "p")
    broker.stop()
    for key in expected:
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
        for topic in ("written", TOPIC):
            rows = consumed(client, topic, "read_uncommitted")
            for key, found in rows.items():
                assert found == expected[key], key
    broker.stop()


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
        print("written, adopted and exported partitions are dumped and served by the broker")
    finally:
        broker.kill()
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
