"""Measure the cases of `make bench-broker`; each function measures one case."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence

from benchmarks.broker import raw
from benchmarks.broker.bench import (
    MB,
    Bench,
    Server,
    client,
    client_environment,
    first_record,
    topic_of,
    used_by,
    words_of,
)
from benchmarks.broker.server import usage_of
from benchmarks.report import at_least, at_most
from benchmarks.workload import RECORD_BYTES

Pair = tuple[Server, Server]
RATE = 2000  # records per second in the case that measures latency
# A topic accepts batches of at most 1 MiB and 12 bytes. librdkafka only estimates the size of a
# batch, so the limit that it gets is somewhat lower.
LARGE_BATCH_BYTES = 1_000_000
SMALL_BATCH_BYTES = 16 << 10


def produce(bench: Bench, pair: Pair) -> None:
    """Produce with confluent-kafka: batches of 16 KiB and of 1 MB, and 1,000 partitions."""
    scale = bench.scale

    def measure(
        records: int, partitions: int, batch_bytes: int, linger_ms: int
    ) -> Callable[[Server], dict[str, float]]:
        def one(server: Server) -> dict[str, float]:
            found: dict[str, float] = {}
            amount = records * RECORD_BYTES
            with topic_of(server, "produced", partitions), used_by(server, found, amount):
                answer = client(
                    "produce", server, topic="produced", partitions=partitions, records=records,
                    batch_bytes=batch_bytes, linger_ms=linger_ms,
                )  # fmt: skip
            return found | {"rate": answer["records"] / answer["seconds"] / 1e3}

        return one

    rounds = bench.alternate(pair, measure(scale.small_records, 1, SMALL_BATCH_BYTES, 5))
    bench.compare("produce, batches of 16 KiB", "k records/s", rounds, "rate", at_least(1.5))
    bench.compare("produce, batches of 16 KiB: CPU", "s/GB", rounds, "cpu", at_most(0.4))
    rounds = bench.alternate(pair, measure(scale.large_records, 1, LARGE_BATCH_BYTES, 100))
    bench.compare("produce, batches of 1 MB", "k records/s", rounds, "rate", at_least(1.3))
    bench.compare("produce, batches of 1 MB: CPU", "s/GB", rounds, "cpu", at_most(0.5))
    partitions = scale.spread_partitions
    rounds = bench.alternate(pair, measure(scale.spread_records, partitions, SMALL_BATCH_BYTES, 5))
    words = f"produce, {partitions:,} partitions, small batches"
    bench.compare(words, "k records/s", rounds, "rate", at_least(1.2))
    bench.compare(f"{words}: CPU", "s/GB", rounds, "cpu")


def fetch(bench: Bench, pair: Pair) -> None:
    """Consume with confluent-kafka, batches of 16 KiB from the page cache."""
    records = bench.scale.large_records
    with topic_of(pair[0], "fetched"), topic_of(pair[1], "fetched"):
        for server in pair:
            client(
                "produce", server, topic="fetched", partitions=1, records=records,
                batch_bytes=SMALL_BATCH_BYTES, linger_ms=5,
            )  # fmt: skip

        def measure(server: Server) -> dict[str, float]:
            found: dict[str, float] = {}
            with used_by(server, found, records * RECORD_BYTES):
                answer = client("consume", server, topic="fetched", records=records)
            return found | {"rate": answer["records"] / answer["seconds"] / 1e3}

        rounds = bench.alternate(pair, measure)
        bench.compare("fetch", "k records/s", rounds, "rate", at_least(1.1))
        bench.compare("fetch: CPU", "s/GB", rounds, "cpu", at_most(0.5))

        def drained(server: Server) -> dict[str, float]:
            answer = client(
                "drain", server, topic="fetched", connections=4, seconds=bench.scale.flood_seconds
            )
            return {"rate": answer["bytes"] / MB}

        bench.compare("ceiling: fetch, raw", "MB/s", bench.alternate(pair, drained), "rate")


def latency(bench: Bench, pair: Pair) -> None:
    """Produce 2,000 records a second with acks=all."""

    def measure(server: Server) -> dict[str, float]:
        with topic_of(server, "paced"):
            seconds = bench.scale.paced_seconds
            return client("produce_paced", server, topic="paced", rate=RATE, seconds=seconds)

    rounds = bench.alternate(pair, measure)
    bench.compare("2,000 records/s, acks=all: p99", "ms", rounds, "p99_ms", at_most(1.0))
    bench.compare("2,000 records/s, acks=all: p50", "ms", rounds, "p50_ms")


def connections(bench: Bench, pair: Pair) -> None:
    """Measure the ceilings, and the rate of many connections that send small requests."""
    scale = bench.scale

    def measure(
        partitions: int, count: int, in_flight: int, batch_bytes: int
    ) -> Callable[[Server], dict[str, float]]:
        def one(server: Server) -> dict[str, float]:
            with topic_of(server, "flooded", partitions):
                before = usage_of(server.pid).cpu_seconds
                answer = client(
                    "flood", server, topic="flooded", partitions=partitions, connections=count,
                    in_flight=in_flight, batch_bytes=batch_bytes, seconds=scale.flood_seconds,
                )  # fmt: skip
                cpu_seconds = usage_of(server.pid).cpu_seconds - before
            return {
                "requests": answer["requests"] / 1e3,
                "records": answer["records"] / 1e3,
                "rate": answer["records"] * RECORD_BYTES / MB,
                "cpu": cpu_seconds / answer["requests"] / answer["seconds"] * 1e6,
                "cores": cpu_seconds / answer["seconds"],
            }

        return one

    words = f"{scale.producers} producing connections"
    rounds = bench.alternate(pair, measure(10, scale.producers, 1, 10 * RECORD_BYTES))
    bench.compare(words, "k requests/s", rounds, "requests", at_least(1.2))
    bench.compare(f"{words}: CPU", "us/request", rounds, "cpu")
    for size, batch_bytes in (
        ("100 bytes", RECORD_BYTES),
        ("16 KiB", SMALL_BATCH_BYTES),
        ("1 MB", LARGE_BATCH_BYTES),
    ):
        rounds = bench.alternate(pair, measure(4, 4, 4, batch_bytes))
        words = f"ceiling: produce, raw, batches of {size}"
        if batch_bytes == RECORD_BYTES:
            bench.compare(words, "k requests/s", rounds, "requests")
        else:
            bench.compare(words, "MB/s", rounds, "rate")
        bench.compare(f"{words}: CPU", "us/request", rounds, "cpu")
        bench.compare(f"{words}: CPU", "cores", rounds, "cores")


def memory(bench: Bench, pair: Pair) -> None:
    """Measure the memory of both processes after all earlier cases."""
    found = [{"resident": usage_of(server.pid).resident_mib} for server in pair]
    bench.compare(
        "resident memory after the load", "MiB", [(found[0], found[1])], "resident", at_most(0.15)
    )


def waiting(bench: Bench, pair: Pair) -> None:
    """Let many consumers wait for a record at this broker, then write this record."""
    ours, count = pair[0], bench.scale.waiting
    with topic_of(ours, "awaited"), raw.RawClient(ours.address) as control:
        before = usage_of(ours.pid)
        facts = {"address": ours.address, "topic": "awaited", "offset": 0, "connections": count}
        child = subprocess.Popen(
            words_of("wait", facts), env=client_environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert child.stdin is not None and child.stdout is not None
            if child.stdout.readline() != "waiting\n":
                raise RuntimeError("the waiting consumers could not connect: see `ulimit -n`")
            time.sleep(1)  # until the broker has parked all of them
            added = usage_of(ours.pid).resident_mib - before.resident_mib
            batch = raw.batch_of([b"what they wait for"])
            control.call("Produce", **raw.produce_fields("awaited", 0, batch))
            answer, _ = child.communicate("\n", timeout=120)
        finally:
            child.kill()
            child.wait()
    told = json.loads(answer)
    if told["unanswered"]:
        raise RuntimeError(f"{told['unanswered']:,} waiting consumers got no record")
    bench.note(f"{count:,} waiting consumers: more memory", "MiB", added, at_most(100))
    bench.note(f"{count:,} waiting consumers: one record reaches all", "s", told["seconds"])


# Kafka 4.1 refuses a request that creates 10,000 partitions (POLICY_VIOLATION).
PARTITIONS_PER_TOPIC = 2000


def start(bench: Bench) -> None:
    """Measure the time from a start to the first record: without partitions, and with many."""

    def fresh(make: Callable[[list[str]], Server]) -> dict[str, float]:
        with bench.server(make) as server:
            return {"seconds": first_record(server)}

    rounds = [(fresh(bench.make_ours), fresh(bench.make_peer)) for _ in range(bench.scale.rounds)]
    bench.compare("start to first record", "s", rounds, "seconds", at_most(0.5), is_absolute=True)
    many, count = [], bench.scale.partitions
    for make in (bench.make_ours, bench.make_peer):
        with bench.server(make) as server:
            first_record(server)
            with raw.RawClient(server.address, 600) as control:
                for first in range(0, count, PARTITIONS_PER_TOPIC):
                    number = min(PARTITIONS_PER_TOPIC, count - first)
                    raw.create_topic(control, f"many-{first}", number)
            seconds = []
            for _ in range(bench.scale.rounds):
                server.stop()
                seconds.append({"seconds": first_record(server)})
            many.append(seconds)
    bench.compare(
        f"start to first record, {count:,} partitions", "s", list(zip(*many, strict=True)),
        "seconds", at_most(5.0), is_absolute=True,
    )  # fmt: skip


# The cases run in this order. `memory` measures the memory that the cases before it left in use.
LOADED: dict[str, Callable[[Bench, Pair], None]] = {
    "produce": produce,
    "fetch": fetch,
    "latency": latency,
    "connections": connections,
    "memory": memory,
    "waiting": waiting,
}
NAMES = (*LOADED, "start")


def measure_all(
    bench: Bench, names: Sequence[str] = NAMES, show: Callable[[str], object] = str
) -> None:
    """Measure the named cases; before each case, call `show` with its name."""
    loaded = [name for name in LOADED if name in names]
    if loaded:
        with bench.running() as pair:
            for name in loaded:
                show(name)
                LOADED[name](bench, pair)
    if "start" in names:
        show("start")
        start(bench)
