"""Kafka's own clients in Java: the newest releases of 3.9 and 4.1, and the newest of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.client_programs import (
    CODECS,
    Served,
    compiled,
    demand_java,
    jars,
    lines_of,
    small_java,
)  # fmt: skip

SOURCE = Path(__file__).with_name("java")
VERSIONS = ["3.9.2", "4.1.2", "4.4.0"]
TIMES = """\
-5: 0 0
0: 0 0
123: 123 123
499: 499 499
500: none
{java-zstd-0=0}
reset to 0
OffsetOutOfRangeException
"""
ADMIN = """\
nodes 1 true
create ok
again TopicExistsException
3 replicas InvalidReplicationFactorException
grow ok
shrink InvalidPartitionsException
partitions 5
describe unknown UnknownTopicOrPartitionException
listed true
alter cleanup.policy ok
alter cleanup.polic InvalidConfigurationException
alter retention.ms InvalidConfigurationException
policy compact
retention.ms 900000000000 DYNAMIC_TOPIC_CONFIG false false
segment.bytes 1073741824 DEFAULT_CONFIG false false
max.message.bytes 1048588 DEFAULT_CONFIG false false
without a key InvalidRecordException
delete records 10
too many OffsetOutOfRangeException
EarliestSpec 10
LatestSpec 30
MaxTimestampSpec 29
TimestampSpec 15
log dirs 2 replicas 5
offset 12
groups {java-admin=Empty}
delete offset ok
delete group GroupIdNotFoundException
describe Stable range 1
not empty GroupNotEmptyException
delete ok
delete ok
delete unknown UnknownTopicOrPartitionException
"""


class Program:
    """A compiled client of one version."""

    def __init__(self, version: str, place: Path) -> None:
        self.version = version
        libs = jars(f"clients-{version}", ("org.apache.kafka", "kafka-clients", version))
        self._words = small_java(compiled(sorted(SOURCE.glob("*.java")), libs, place), "Clients")

    def ask(self, served: Served, *words: str) -> list[str]:
        """Run one step, and give what it printed."""
        return lines_of([*self._words, served.address, *words])


@pytest.fixture(scope="module", params=VERSIONS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Fetch and compile the client."""
    demand_java()
    return Program(request.param, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def served(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Give each version a broker of its own."""
    with closing(Served(tmp_path_factory.mktemp(program.version))) as broker:
        yield broker


def test_records_of_each_codec_come_back(program: Program, served: Served) -> None:
    """An idempotent producer; keys, headers, timestamps and offsets; offsets by time."""
    found = program.ask(served, "records")
    assert found == [f"{codec} 500 {{java-{codec}-0=500}}" for codec in CODECS]
    assert program.ask(served, "times") == TIMES.splitlines()


def test_two_members_share_a_topic(program: Program, served: Served) -> None:
    """The range assignor takes all partitions away, the cooperative one those that move."""
    once = "read 1000 distinct 1000"
    assert program.ask(served, "group", "Range") == ["the first member gave up 4", once]
    assert program.ask(served, "group", "CooperativeSticky") == ["the first member gave up 2", once]
    served.restart()
    assert program.ask(served, "resume") == ["read 500 distinct 500", "from 1000"]


def test_a_static_member_restarts_without_a_rebalance(program: Program, served: Served) -> None:
    """It gets its share again, and the other member hears nothing."""
    assert program.ask(served, "static") == [
        "the same share true", "rebalances of the other member 0", "state Stable range 2",
    ]  # fmt: skip


@pytest.mark.parametrize("assignor", ["Range", "CooperativeSticky"])
def test_members_change_their_protocol(program: Program, served: Served, assignor: str) -> None:
    """Both members change to the new protocol one after another, and back; nothing is lost."""
    if program.version.startswith("3."):
        return  # in this version, the new protocol was an early access
    assert program.ask(served, "migrate", assignor) == [
        "type Consumer members 2", "type Classic members 2", "distinct 2500",
    ]  # fmt: skip


def test_the_admin_client_gets_what_kafka_answers(program: Program, served: Served) -> None:
    """Topics, settings, records, log dirs, groups, and the errors of mistakes."""
    assert program.ask(served, "admin") == ADMIN.splitlines()


def test_transactions(program: Program, served: Served) -> None:
    """Clients from 4.0 on raise the epoch with each of the six transactions."""
    is_raising = not program.version.startswith("3.")
    assert program.ask(served, "transactions") == [
        f"epochs {6 * is_raising}", "offset 5", "fenced ProducerFencedException",
        "committed {next=1, turn 0=40, turn 2=40, turn 4=40}",
    ]  # fmt: skip


def test_a_producer_follows_the_level(program: Program, served: Served) -> None:
    """It changes its protocol between two transactions, in both directions."""
    if program.version.startswith("3."):
        return  # this client knows only the older protocol
    levels = [f"level {level} followed true" for level in (1, 2, 1, 2)]
    assert program.ask(served, "levels") == [*levels, "all committed true"]
