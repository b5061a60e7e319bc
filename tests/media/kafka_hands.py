"""Let the same log dirs change hands between Apache Kafka and the broker of this library.

    make kafka-hands              20 rounds (ROUNDS=n); needs Java 17 and Maven

In each round, Kafka works at random, the log dirs are taken over, the broker works at random, and
the log dirs are handed back. Work is: plain and idempotent batches of every codec, transactions
that are committed, aborted and left open, offsets of groups (also within open transactions), a
compacted topic, and topics that come and go. Half of the times, the owner ends by SIGKILL. After
each change of hands, a client reads every record in both isolation levels; the offsets of groups
are read; a batch that the old owner has acknowledged is sent again; and the open transaction is
ended.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from broker.config import KAFKA_LOG_CONFIG
from broker.hands.hand_back import HandedBack, hand_back
from broker.hands.take_over import take_over
from logstore import LogStore, TopicPartition
from support.hands import Ours
from support.kafka_client import KafkaClient, batch_of
from support.kafka_golden import row_of
from support.kafka_peer import Broker, Client, missing_tools
from support.transaction_requests import RawProducer, commit_simple, fetch_offset

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = ("read_uncommitted", "read_committed")
DRAWN, COMPACTED, RAW = "drawn", "compacted", "raw"
PARTITIONS = 3
SECONDS = 20.0
PAUSE, PAUSE_SECONDS = threading.Event(), 0.1  # never set
SETTINGS = {
    COMPACTED: ("cleanup.policy=compact", "segment.ms=200", "min.cleanable.dirty.ratio=0.01"),
    DRAWN: ("segment.bytes=1048576", "segment.ms=3000", "retention.ms=-1"),
    RAW: ("retention.ms=900000000",),
}
Rows = dict[TopicPartition, list[tuple[Any, ...]]]


class Memory:
    """What clients were given by the last owner, and what they have left open."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Rows] = {}
        self.offsets: dict[str, int] = {}
        self.open: RawProducer | None = None
        self.pending = -1  # the offset that the open transaction commits
        self.values: list[bytes] = []  # those of the open transaction
        self.repeated: tuple[bytes, int] | None = None  # a batch, and its base offset
        self.producer = (-1, -1, -1)
        self.records = 0


def consumed(client: Client, topic: str, level: str) -> Rows:
    """Give what a consumer is given."""
    found: Rows = {}
    for row in client.ask("consume", level, topic):
        key = TopicPartition(row["topic"], row["partition"])
        found.setdefault(key, [])
        if "offset" in row:
            found[key].append(row_of(tuple(row.values())[2:]))
    return found


def eventually(check: Any) -> None:
    """Repeat a check until it holds."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            check()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            PAUSE.wait(PAUSE_SECONDS)


# --- work -----------------------------------------------------------------------------------------


def work(bootstrap: str, rng: random.Random, memory: Memory, number: int) -> None:
    """Work at random with one owner, and remember what its clients are given."""
    client = Client(bootstrap)
    try:
        produce(client, rng)
        compact(client, rng)
        client.ask("group", RAW, "java")  # which makes Kafka create the topic of groups
        memory.offsets["java"] = 1
        with KafkaClient(bootstrap) as raw:
            groups(raw, rng, memory)
            repeatable(raw, memory)
            leave_open(raw, rng, memory, number)
        for topic in (DRAWN, COMPACTED, RAW):
            for level in LEVELS:
                memory.rows[topic, level] = consumed(client, topic, level)
    finally:
        client.close()


def produce(client: Client, rng: random.Random) -> None:
    """Produce batches of every codec, and transactions."""
    for codec in CODECS:
        is_idempotent = rng.choice(("true", "false"))
        client.ask("producer", codec, codec, "-", is_idempotent)
        client.ask("random", codec, DRAWN, PARTITIONS, rng.randrange(150), rng.randrange(2**31))
        client.ask("close", codec)
    for number in range(2):
        name = f"t{number}"
        client.ask("producer", name, rng.choice(CODECS), name, "true")
        for end in [rng.choice(("commit", "abort")) for _ in range(3)]:
            client.ask("begin", name)
            count = rng.randrange(1, 60)
            client.ask("random", name, DRAWN, PARTITIONS, count, rng.randrange(2**31))
            client.ask("flush", name)
            client.ask(end, name)
        client.ask("close", name)


def compact(client: Client, rng: random.Random) -> None:
    """Write few keys in several segments, some of them in transactions."""
    client.ask("producer", "c", rng.choice(CODECS), "c", "true")
    for turn in range(4):
        client.ask("begin", "c")
        for number in range(12):
            if rng.random() < 0.6:
                value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(60))
                client.send("c", COMPACTED, b"key %d" % number, value, timestamp=1000 + turn)
        client.ask("commit" if rng.random() < 0.7 else "abort", "c")
    client.ask("close", "c")


def groups(raw: KafkaClient, rng: random.Random, memory: Memory) -> None:
    """Commit offsets of some groups."""
    for number in range(rng.randrange(1, 5)):
        name, offset = f"group-{number}", rng.randrange(10**6)
        eventually(lambda name=name, offset=offset: commit_simple(raw, name, RAW, offset))
        memory.offsets[name] = offset


def repeatable(raw: KafkaClient, memory: Memory) -> None:
    """Append a batch of an idempotent producer, which a client sends again later."""
    if memory.producer[0] < 0:
        answer = raw.call("InitProducerId", transactional_id=None, transaction_timeout_ms=60_000)
        assert not answer.error_code
        memory.producer = (answer.producer_id, answer.producer_epoch, 0)
    # When Kafka starts, it forgets producers whose last batch has an old timestamp.
    now_ms = int(time.time() * 1000)
    batch = batch_of(b"again", b"and again", producer=memory.producer, timestamp=now_ms)
    row = raw.produce(RAW, batch)
    assert not row.error_code, row
    memory.repeated = batch, row.base_offset
    producer_id, epoch, sequence = memory.producer
    memory.producer = (producer_id, epoch, sequence + 2)


def leave_open(raw: KafkaClient, rng: random.Random, memory: Memory, number: int) -> None:
    """Begin a transaction with records and an offset, and leave it open."""
    made = RawProducer(raw, f"open-{rng.randrange(3)}").begin()
    eventually(lambda: check_code(made.add((RAW, 0))))
    memory.values = [b"open %d %d" % (number, rng.randrange(2**31))]
    eventually(lambda: check_code(made.produce(RAW, *memory.values)))
    eventually(lambda: check_code(made.add_offsets("pending")))
    memory.pending = rng.randrange(10**6)
    eventually(lambda: check_code(made.commit_offset("pending", RAW, memory.pending)))
    memory.open = made


def check_code(code: int) -> None:
    """Raise AssertionError for an error of Kafka."""
    assert code == 0, code


# --- checks ---------------------------------------------------------------------------------------


def check(bootstrap: str, rng: random.Random, memory: Memory) -> None:
    """Compare what clients get from the new owner, and end what was left open."""
    client = Client(bootstrap)
    try:
        for (topic, level), before in memory.rows.items():
            after = consumed(client, topic, level)
            if topic == COMPACTED:
                check_compacted(before, after)
            else:
                assert after == before, (topic, level, differences(before, after))
            memory.records += sum(map(len, after.values()))
        with KafkaClient(bootstrap) as raw:
            for name, offset in memory.offsets.items():
                assert fetch_offset(raw, name, RAW) == (0, offset), name
            assert memory.repeated is not None
            batch, base_offset = memory.repeated
            row = raw.produce(RAW, batch)
            assert (row.error_code, row.base_offset) == (0, base_offset), row
            end_open(raw, rng, memory, client)
    finally:
        client.close()


def differences(before: Rows, after: Rows) -> list[Any]:
    """Give the first differences."""
    keys = sorted(before.keys() | after.keys())
    return [
        (key, len(before.get(key, ())), len(after.get(key, ())),
         [pair for pair in zip(before.get(key, ()), after.get(key, ()), strict=False)
          if pair[0] != pair[1]][:2])
        for key in keys
    ]  # fmt: skip


def check_compacted(before: Rows, after: Rows) -> None:
    """Compaction may continue: no record is new, and the last record of each key is the same."""
    for key, rows in before.items():
        assert set(after[key]) <= set(rows), key
        assert last_of(after[key]) == last_of(rows), key


def last_of(rows: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    """Give the last record of each key."""
    return {row[2]: row for row in rows}


def end_open(raw: KafkaClient, rng: random.Random, memory: Memory, client: Client) -> None:
    """Commit the transaction, abort it, or begin the transactional id anew, which aborts it."""
    made, before = memory.open, memory.offsets.get("pending", -1)
    assert made is not None
    made.client = raw
    how = rng.choice(("commit", "abort", "begin anew"))
    is_committed = how == "commit"
    if how == "begin anew":
        made.begin()
    else:
        eventually(lambda: check_code(made.produce(RAW, b"continued")))
        memory.values.append(b"continued")
        eventually(lambda: check_code(made.end(commit=is_committed)))
    if is_committed:
        memory.offsets["pending"] = memory.pending

    def seen() -> None:
        rows = consumed(client, RAW, "read_committed")[TopicPartition(RAW, 0)]
        found = [row[3] for row in rows if row[3] in memory.values[:1]]
        assert bool(found) == is_committed, (how, found)
        (every,) = consumed(client, RAW, "read_uncommitted").values()
        assert rows[-1:] == every[-1:] or not is_committed, how
        expected = memory.pending if is_committed else before
        assert fetch_offset(raw, "pending", RAW, stable=True) == (0, expected), how

    eventually(seen)


# --- rounds ---------------------------------------------------------------------------------------


def one_round(
    kafka: Broker, ours: Ours, metadata: Path, rng: random.Random, memory: Memory, number: int
) -> HandedBack:
    """Let the log dirs go from Kafka to the broker, and back."""
    dirs = [str(path) for path in kafka.log_dirs]
    gone, new = f"gone-{number}", f"new-{number}"
    client = Client(kafka.bootstrap)
    client.ask("topic", gone, 2)
    client.close()
    work(kafka.bootstrap, rng, memory, number)
    rng.choice((kafka.stop, kafka.kill))()
    kafka.stop()
    done = take_over(dirs, KAFKA_LOG_CONFIG, str(metadata))
    assert done.is_new, done
    assert all(one.endswith("it is not read") for one in done.warnings), done.warnings
    with LogStore.open(dirs, read_only=True) as store:
        assert store.log(COMPACTED, 0).config.cleanup_policy == "compact"
        assert store.log(DRAWN, 0).config.segment_bytes == 1 << 20
        assert store.log(DRAWN, 0).config.retention_ms is None
        assert store.log(RAW, 0).config.retention_ms == 900_000_000
    ours.start()
    check(ours.bootstrap, rng, memory)
    client = Client(ours.bootstrap)
    client.ask("topic", new, 1)
    client.ask("producer", "n", "none", "-", "true")
    client.send("n", new, b"key", b"of a new topic")
    client.ask("close", "n")
    client.ask("delete", gone)
    client.close()
    work(ours.bootstrap, rng, memory, number)
    rng.choice((ours.stop, ours.kill))()
    ours.stop()
    result = hand_back(dirs)
    assert list(result.created) == [TopicPartition(new, 0)], result
    assert list(result.deleted) == [TopicPartition(gone, at) for at in (0, 1)], result
    kafka.start()
    check(kafka.bootstrap, rng, memory)
    client = Client(kafka.bootstrap)
    client.ask("delete", gone)
    client.close()
    return result


def serve_stray(kafka: Broker, name: str) -> None:
    """Let Kafka serve a topic that was created meanwhile, as the document describes it."""
    client = Client(kafka.bootstrap)
    client.ask("topic", name, 1)
    client.close()
    kafka.stop()
    (stray,) = [path for one in kafka.log_dirs for path in one.glob(f"{name}-0.*-stray")]
    (target,) = [one / f"{name}-0" for one in kafka.log_dirs if (one / f"{name}-0").exists()]
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in stray.iterdir():
        if path.suffix in (".log", ".snapshot"):
            shutil.copy(path, target / path.name)
    shutil.rmtree(stray)
    kafka.start()
    client = Client(kafka.bootstrap)
    (rows,) = consumed(client, name, "read_committed").values()
    assert [row[3] for row in rows] == [b"of a new topic"], rows
    client.ask("delete", name)
    client.close()


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    if reason := missing_tools():
        sys.exit(f"kafka-hands: {reason}")
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    place = Path(tempfile.mkdtemp(prefix="kafka-hands-"))
    dirs = [place / "a", place / "b"]
    kafka, ours = Broker(place, dirs), Ours(dirs)
    memory = Memory()
    try:
        kafka.format()
        kafka.start()
        client = Client(kafka.bootstrap)
        for name, settings in SETTINGS.items():
            client.ask("topic", name, PARTITIONS if name == DRAWN else 1, *settings)
        client.close()
        for number in range(options.rounds):
            began = time.monotonic()
            one_round(kafka, ours, place / "metadata", rng, memory, number)
            if number == 0:
                serve_stray(kafka, f"new-{number}")
            seconds = time.monotonic() - began
            print(f"round {number}: {memory.records} records compared, {seconds:.0f} s", flush=True)
        kafka.stop()
        for path in dirs:
            assert not [one for one in path.iterdir() if one.name.startswith(".logstore")]
    except BaseException:
        print(f"kept for a look: {place}", flush=True)
        raise
    finally:
        ours.kill()
        kafka.kill()
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
