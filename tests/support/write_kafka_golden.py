"""Write the golden directories by Apache Kafka itself; done once, kept for ever.

    PYTHONPATH=src:tests:. python tests/support/write_kafka_golden.py TARGET

Makes two brokers' worth of log dirs below TARGET:

    stopped/a  stopped/b    after an orderly stop: codecs, transactions, a compacted log, segments
    killed/a   killed/b     the same broker, started again, then ended by SIGKILL: a preallocated
                            segment's tail of zeros, an open transaction, `-future`, `-delete`
    stopped.jsonl  killed.jsonl    what consumers were given just before, both isolation levels

Of `killed` only the directories whose segments differ from those of `stopped` are kept.
"""

from __future__ import annotations

import filecmp
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from support.kafka_peer import Broker, Client, client_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PAUSE = threading.Event()  # never set: the broker does things by the clock
T0 = 1_700_000_000_000
SETTINGS = {
    "log_index_size_max_bytes": 400,
    "log_index_interval_bytes": 512,
    "num_partitions": 1,
    "log_retention_ms": -1,
    # With the throttle set below, the future replica of the killed broker is only half a copy.
    "replica_fetch_max_bytes": 100,
}


def codecs(client: Client) -> None:
    """A topic per codec: keys, headers, null keys, null values, empty and large cells."""
    for codec in CODECS:
        client.ask("topic", f"codec-{codec}", 1)
        client.ask("producer", codec, codec, "-", "true")
        send = client.send
        topic = f"codec-{codec}"
        send(codec, topic, None, b"plain", timestamp=T0)
        client.ask("flush", codec)
        for number in range(30):
            value = b"value %d " % number * (number % 7)
            send(codec, topic, b"key %d" % (number % 5), value, timestamp=T0 + number * 7 % 50)
        client.ask("flush", codec)
        send(codec, topic, b"", b"", timestamp=T0 + 1000)
        send(codec, topic, b"dead", None, timestamp=T0 + 999)
        send(codec, topic, None, None, timestamp=T0 + 998)
        send(codec, topic, b"k", b"v", b"name", b"cell", b"name", None, b"\xc3\xa9", b"")
        send(codec, topic, b"k", b"x" * 900, timestamp=T0 + 2000)
        client.ask("flush", codec)
        client.ask("close", codec)


def others(client: Client) -> None:
    """LogAppendTime, transactions, a compacted log, several segments, several partitions."""
    client.ask("producer", "p", "none", "-", "true")
    client.ask("topic", "stamped", 1, "message.timestamp.type=LogAppendTime")
    for number in range(5):
        client.send("p", "stamped", None, b"%d" % number, timestamp=T0)
    client.ask("flush", "p")
    client.ask("topic", "segments", 2, "segment.ms=1")
    for number in range(6):
        for partition in range(2):
            client.send("p", "segments", b"%d" % number, b"s" * number, partition=partition)
        client.ask("flush", "p")
        PAUSE.wait(0.05)
    transactions(client)
    client.ask(
        "topic", "compacted", 1, "cleanup.policy=compact", "segment.ms=1",
        "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=3600000",
    )  # fmt: skip
    for turn in range(4):
        for number in range(12):
            value = None if turn == 2 and number == 3 else b"%d of turn %d" % (number, turn)
            if (number + turn) % 3:
                client.send("p", "compacted", b"key %d" % number, value, timestamp=T0 + turn)
        client.ask("flush", "p")
        PAUSE.wait(0.05)
    client.ask("group", "stamped", "readers")
    client.ask("close", "p")


def transactions(client: Client) -> None:
    """Committed, aborted and interleaved ones, beside records of no transaction."""
    client.ask("topic", "transactions", 1)
    for name in ("t1", "t2"):
        client.ask("producer", name, "lz4" if name == "t2" else "none", name, "true")

    def send(producer: str, text: bytes, *, flush: bool = True) -> None:
        client.send(producer, "transactions", b"k", text, timestamp=T0)
        if flush:
            client.ask("flush", producer)

    client.ask("begin", "t1")
    for number in range(3):
        send("t1", b"committed %d" % number)
    client.ask("commit", "t1")
    client.ask("begin", "t1")
    client.ask("begin", "t2")
    send("t1", b"aborted 1")
    send("t2", b"committed beside")
    send("p", b"no transaction")
    send("t1", b"aborted 2")
    client.ask("commit", "t2")
    client.ask("abort", "t1")
    client.ask("begin", "t2")
    send("t2", b"aborted 3")
    client.ask("abort", "t2")
    client.ask("begin", "t1")
    send("t1", b"committed last")
    client.ask("commit", "t1")
    for name in ("t1", "t2"):
        client.ask("close", name)


def last_acts(client: Client, log_dirs: list[Path]) -> None:
    """What is under way when the broker is killed."""
    client.ask("producer", "p", "none", "-", "true")
    client.ask("topic", "torn", 1, "preallocate=true", "internal.segment.bytes=16384")
    for number in range(20):
        client.send("p", "torn", b"%d" % number, b"t" * 20 * number, timestamp=T0)
        client.ask("flush", "p")
    client.ask("producer", "open", "none", "open", "true")
    client.ask("topic", "unfinished", 1)
    client.ask("begin", "open")
    client.send("open", "unfinished", None, b"of an open transaction", timestamp=T0)
    client.ask("flush", "open")
    client.send("p", "unfinished", None, b"behind the last stable offset", timestamp=T0)
    client.ask("flush", "p")
    client.ask("topic", "doomed", 1)
    client.send("p", "doomed", None, b"gone", timestamp=T0)
    client.ask("flush", "p")
    client.ask("delete", "doomed")
    client.ask("config", "broker:1", "replica.alter.log.dirs.io.max.bytes.per.second=1")
    source = next(each for each in log_dirs if (each / "segments-0").is_dir())
    client.ask("move", "segments", 0, next(each for each in log_dirs if each != source))
    wait_for(log_dirs, "segments-0.*-future/*1.log")
    wait_for(log_dirs, "doomed-0.*-delete")


def wait_for(log_dirs: list[Path], pattern: str) -> None:
    """Wait until a directory of that name is there."""
    for _ in range(300):
        if any(list(each.glob(pattern)) for each in log_dirs):
            return
        PAUSE.wait(0.1)
    raise AssertionError(pattern)


def keep(client: Client, path: Path, topics: set[str] | None = None) -> None:
    """Keep what consumers are given: each record, whether a committed read has it, and the ends."""
    rows = client.ask("consume", "read_committed", "*")
    committed = {tuple(row.values())[:3] for row in rows if "offset" in row}
    found: dict[tuple[str, int], list[Any]] = {}
    with path.open("w") as file:
        for row in client.ask("consume", "read_uncommitted", "*"):
            if topics is not None and row["topic"] not in topics:
                continue
            records = found.setdefault((row["topic"], row["partition"]), [])
            if "offset" in row:
                records.append([*tuple(row.values())[2:], (*row.values(),)[:3] in committed])
                continue
            for each in (row, *records):  # the ends come last
                file.write(json.dumps(each, separators=(",", ":")) + "\n")


def copy(log_dirs: list[Path], target: Path, known: Path | None = None) -> None:
    """Copy the log dirs; nothing of one with the same segments in `known`."""
    for log_dir in log_dirs:
        shutil.copytree(log_dir, target / log_dir.name)
        for each in (target / log_dir.name).iterdir():
            before = None if known is None else known / log_dir.name / each.name
            if before is not None and each.is_dir() and before.is_dir():
                logs = [path.name for path in each.glob("*.log")]
                if len(filecmp.cmpfiles(each, before, logs, shallow=False)[0]) == len(logs):
                    shutil.rmtree(each)
        (target / log_dir.name / ".lock").unlink(missing_ok=True)


def main(target: Path) -> None:
    """Run the broker twice."""
    place = Path(tempfile.mkdtemp(prefix="kafka-golden-"))
    log_dirs = [place / "a", place / "b"]
    broker = Broker(place, log_dirs, **SETTINGS)
    broker.format()
    target.mkdir(parents=True, exist_ok=True)
    try:
        broker.start()
        with client_of(broker) as client:
            codecs(client)
            others(client)
            PAUSE.wait(20)  # the cleaner's turn
            keep(client, target / "stopped.jsonl")
        broker.stop()
        copy(log_dirs, target / "stopped")
        broker.start()
        with client_of(broker) as client:
            last_acts(client, log_dirs)
            keep(client, target / "killed.jsonl", {"torn", "unfinished", "segments"})
            broker.kill()
        copy(log_dirs, target / "killed", target / "stopped")
    finally:
        broker.kill()
        shutil.rmtree(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
