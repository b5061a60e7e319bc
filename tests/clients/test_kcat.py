"""A tool on the command line: kcat, with the librdkafka that Debian builds it with."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from support.client_programs import CODECS, Served, demand_tool, lines_of

COUNT = 300
VALUES = [f"value {number}" for number in range(COUNT)]


@pytest.fixture(scope="module", autouse=True)
def kcat() -> None:
    """Demand the tool."""
    demand_tool("kcat", "apt-get install kcat")


def ask(served: Served, *words: str, stdin: str | None = None) -> list[str]:
    """Run kcat to its end."""
    return lines_of(["kcat", "-b", served.address, *words], stdin)


def produce(served: Served, topic: str, *words: str, values: list[str] = VALUES) -> None:
    """Write values to partition 0."""
    text = "".join(f"{value}\n" for value in values)
    assert ask(served, "-P", "-t", topic, "-p", "0", *words, stdin=text) == []


@pytest.mark.parametrize("codec", CODECS)
def test_values_of_each_codec_come_back(served: Served, codec: str) -> None:
    """From the beginning, from the end less five, and from an offset."""
    topic = f"kcat-{codec}"
    produce(served, topic, "-z", codec, "-X", "enable.idempotence=true")
    read = ["-C", "-t", topic, "-p", "0", "-e", "-q"]
    assert ask(served, *read, "-o", "beginning") == VALUES
    assert ask(served, *read, "-o", "-5") == VALUES[-5:]
    assert ask(served, *read, "-o", "123", "-c", "7") == VALUES[123:130]


def test_keys_headers_and_offsets_come_back(served: Served) -> None:
    """As its JSON output shows them."""
    produce(served, "kcat-keys", "-K", ":", "-H", "h=1", values=["k:v", "k:w"])
    words = ["-C", "-t", "kcat-keys", "-p", "0", "-e", "-q", "-J", "-o", "beginning"]
    rows = [json.loads(line) for line in ask(served, *words)]
    assert [(row["key"], row["payload"], row["offset"]) for row in rows] == [
        ("k", "v", 0), ("k", "w", 1),
    ]  # fmt: skip
    assert all(row["headers"] == ["h", "1"] and row["tstype"] == "create" for row in rows)


def test_a_point_in_time_is_found(served: Served) -> None:
    """Reading starts at its first record, and ends before another one."""
    bounds = []
    for half in (VALUES[:200], VALUES[200:]):
        bounds.append(time.time_ns() // 1_000_000)
        produce(served, "kcat-times", values=half)
        while time.time_ns() // 1_000_000 <= bounds[-1] + 5:
            pass
    words = ["-C", "-t", "kcat-times", "-p", "0", "-e", "-q"]
    assert ask(served, *words, "-o", f"s@{bounds[1]}") == VALUES[200:]
    found = ask(served, *words, "-o", f"s@{bounds[0]}", "-o", f"e@{bounds[1]}")
    assert found == VALUES[:200]
    assert ask(served, "-Q", "-t", f"kcat-times:0:{bounds[1]}") == ["kcat-times [0] offset 200"]


def test_a_group_goes_on_from_its_commits(served: Served) -> None:
    """A second run of the group reads what came after the first one."""
    words = ["-G", "kcat-group", "-q", "-c", str(COUNT), "-X", "auto.offset.reset=earliest"]
    produce(served, "kcat-group")
    assert ask(served, *words, "kcat-group") == VALUES
    more = [f"more {number}" for number in range(COUNT)]
    produce(served, "kcat-group", values=more)
    assert ask(served, *words, "kcat-group") == more


def test_the_list_names_the_broker_and_the_topics(served: Served, tmp_path: Path) -> None:
    """With their partitions, as text and as JSON."""
    produce(served, "kcat-list")
    text = "\n".join(ask(served, "-L"))
    assert f" at {served.address} (controller)" in text
    assert 'topic "kcat-list" with 4 partitions:' in text
    found = json.loads("".join(ask(served, "-L", "-J", "-t", "kcat-list")))
    (topic,) = found["topics"]
    (broker,) = found["brokers"]
    leaders = [(one["partition"], one["leader"]) for one in topic["partitions"]]
    assert leaders == [(number, broker["id"]) for number in range(4)]
