"""Kafka Streams, at least once: a word count is killed, and continues without its directory."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.client_programs import Served, compiled, demand_java, jars, small_java

VERSION = "4.1.2"
SOURCES = [Path(__file__).parent / "streams" / "WordCount.java"]
WORDS = ["a", "log", "of", "records", "on", "several", "disks"]
LINES, SECONDS = 600, 120.0


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fetch Kafka Streams, with its RocksDB, and compile the program; gives its class path."""
    demand_java()
    libs = jars(f"streams-{VERSION}", ("org.apache.kafka", "kafka-streams", VERSION))
    return compiled(SOURCES, libs, tmp_path_factory.mktemp("streams"))


@contextlib.contextmanager
def running(
    path: str, served: Served, state: Path, *name_and_guarantee: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the program; it is killed at the end of the block, unless it has ended."""
    words = [*small_java(path, "WordCount"), served.address, str(state), *name_and_guarantee]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def fill(served: Served, name: str, start: int) -> Counter[str]:
    """Write lines; returns how often each word is in them."""
    producer = confluent_kafka.Producer({"bootstrap.servers": served.address})
    counts = Counter[str]()
    for number in range(start, start + LINES):
        line = [WORDS[number % 7], WORDS[number % 3], WORDS[number % 5]]
        counts.update(line)
        producer.produce(f"{name}-lines", " ".join(line).encode())
    assert producer.flush(SECONDS) == 0
    return counts


class Results:
    """The newest committed count of each word."""

    def __init__(self, served: Served, name: str) -> None:
        self.counts: dict[str, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": served.address, "group.id": "r", "enable.auto.commit": False}
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(f"{name}-counts", number, 0) for number in range(2)]
        )

    def wait_for(self, condition: Callable[[dict[str, int]], bool]) -> None:
        """Read until a condition holds."""
        deadline = time.monotonic() + SECONDS
        while not condition(self.counts):
            assert time.monotonic() < deadline, self.counts
            for message in self._consumer.consume(500, 0.1):
                assert message.error() is None
                self.counts[message.key().decode()] = int(message.value())

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


def prepared(served: Served, name: str) -> Results:
    """Create the topics of a program, and read its results."""
    admin = AdminClient({"bootstrap.servers": served.address})
    topics = admin.create_topics(
        [NewTopic(f"{name}-lines", 2, 1), NewTopic(f"{name}-counts", 2, 1)]
    )
    assert [made.result(SECONDS) for made in topics.values()] == [None, None]
    return Results(served, name)


def has_more(least: int, counts: dict[str, int]) -> bool:
    """Report whether more words than this were counted."""
    return sum(counts.values()) > least


def test_a_killed_word_count_goes_on(path: str, served: Served, tmp_path: Path) -> None:
    """Its counts come back from the changelog topic, and end as the words are.

    Records after its last commit are counted again: at least once. So the test kills it while it
    has nothing to do, and what it counts is exact.
    """
    name = "word-count"
    results, words = prepared(served, name), (name, "at_least_once")
    with running(path, served, tmp_path / "one", *words):
        expected = fill(served, name, 0)
        results.wait_for(lambda counts: counts == expected)
        committed(served, name, LINES * 3)
    expected += fill(served, name, LINES)
    with running(path, served, tmp_path / "two", *words) as program:
        results.wait_for(lambda counts: counts == expected)
        said, _ = program.communicate("")
        assert program.returncode == 0
        assert "ERROR" not in said and "RUNNING" in said
    results.close()
    names = AdminClient({"bootstrap.servers": served.address}).list_topics(timeout=SECONDS).topics
    assert {"word-count-words-repartition", "word-count-counts-changelog"} <= names.keys()


def test_a_word_count_is_exact_whenever_it_is_killed(
    path: str, served: Served, tmp_path: Path
) -> None:
    """With `exactly_once_v2`, it uses transactions whose epoch rises; it is killed at work."""
    name = "exact-count"
    results, words = prepared(served, name), (name, "exactly_once_v2")
    expected = Counter[str]()
    for turn in range(3):
        with running(path, served, tmp_path / str(turn), *words):
            expected += fill(served, name, turn * LINES)
            least = expected.total() - 2 * LINES
            results.wait_for(partial(has_more, least))
    with running(path, served, tmp_path / "last", *words) as program:
        results.wait_for(lambda counts: counts == expected)
        said, _ = program.communicate("")
        assert program.returncode == 0 and "ERROR" not in said
    results.close()


def committed(served: Served, group: str, words: int) -> None:
    """Wait until the group has committed all words of the repartition topic."""
    topic = "word-count-words-repartition"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": served.address, "group.id": group})
    partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(2)]
    deadline = time.monotonic() + SECONDS
    while sum(max(one.offset, 0) for one in consumer.committed(partitions, SECONDS)) < words:
        assert time.monotonic() < deadline
    consumer.close()
