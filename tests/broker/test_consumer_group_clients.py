"""Groups of the new protocol with real clients (librdkafka): shares, deaths, kills of the broker.

`LOGSTORE_CONSUMER_GROUP_KILLS` sets how often a broker is killed, and
`LOGSTORE_CONSUMER_GROUP_CHANGES` how often consumers come and go.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker import Broker
from support.kafka_client import KafkaClient
from support.new_protocol_clients import FAST, Process, Reader, create, fill, wait_until
from support.places import fast_directory

PARTITIONS, COUNT = 4, 400
ALL = [0, 1, 2, 3]
KILLS = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_KILLS", "2"))
CHANGES = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_CHANGES", "8"))
MEMBERS_MAX = 5


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker.start(config=FAST) as running:
        yield running.bootstrap_servers


def values(*readers: Reader) -> list[int]:
    return [value for reader in readers for _, value in reader.read]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_two_consumers_share_a_topic(servers: str, assignor: str) -> None:
    """Each partition has one reader.

    When one consumer leaves, the other continues at its commits.
    """
    create(servers, assignor, PARTITIONS, assignor)
    fill(servers, assignor, range(COUNT), PARTITIONS)
    one, two = (Reader(servers, assignor, [assignor], group_remote_assignor=assignor) for _ in "12")
    wait_until(lambda: len(one.share) == 2 == len(two.share), "a share each")
    wait_until(lambda: len(values(one, two)) >= COUNT, "all records")
    assert sorted(one.share + two.share) == ALL
    two.close()
    wait_until(lambda: one.share == ALL, "all partitions")
    fill(servers, assignor, range(COUNT, 2 * COUNT), PARTITIONS)
    wait_until(lambda: len(values(one, two)) >= 2 * COUNT, "the further records")
    one.close()
    assert Counter(values(one, two)) == Counter(range(2 * COUNT))
    assert one.failures == two.failures == []


def test_a_static_member_returns_to_its_partitions(servers: str) -> None:
    """While a static member restarts, the other member keeps its share."""
    create(servers, "static", PARTITIONS)
    one, two = (Reader(servers, "static", ["static"], group_instance_id=name) for name in "ab")
    wait_until(lambda: len(one.share) == 2 == len(two.share), "a share each")
    share, other = two.share, one.share
    two.close()
    again = Reader(servers, "static", ["static"], group_instance_id="b")
    wait_until(lambda: again.share == share, "its share again")
    assert one.share == other
    again.close()
    one.close()


def test_an_expression_finds_new_topics(servers: str) -> None:
    """The broker matches the expression, and topics that are created later are read, too."""
    create(servers, "orders-1", 1)
    fill(servers, "orders-1", range(10), 1)
    reader = Reader(servers, "expression", ["^orders-.*"])
    wait_until(lambda: len(reader.read) == 10, "the first topic")
    create(servers, "orders-2", 1)
    fill(servers, "orders-2", range(10, 20), 1)
    wait_until(lambda: len(reader.read) == 20, "the second topic")
    reader.close()
    assert sorted(values(reader)) == list(range(20))


def test_a_consumer_that_is_killed_loses_its_share(servers: str) -> None:
    """After its session, a killed consumer's share moves, and no record is missing."""
    create(servers, "killed", PARTITIONS)
    fill(servers, "killed", range(COUNT), PARTITIONS)
    program = f"""
        import confluent_kafka
        consumer = confluent_kafka.Consumer({{
            "bootstrap.servers": "{servers}", "group.id": "killed", "group.protocol": "consumer",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }})
        consumer.subscribe(["killed"])
        while not consumer.assignment():
            consumer.poll(0.1)
        print("assigned", flush=True)
        while True:
            consumer.poll(0.1)
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == "assigned\n"
        one = Reader(servers, "killed", ["killed"])
        wait_until(lambda: len(one.share) == 2, "a share")
        victim.kill()
        wait_until(lambda: len(set(values(one))) == COUNT, "all records")
    assert one.share == ALL
    one.close()


def test_a_group_without_members_changes_its_type(servers: str) -> None:
    """When a group changes its type, a consumer of the other protocol continues at its offsets."""
    create(servers, "types", PARTITIONS, "types")
    fill(servers, "types", range(COUNT), PARTITIONS)
    new = Reader(servers, "types", ["types"])
    wait_until(lambda: len(new.read) == COUNT, "all records")
    new.close()
    fill(servers, "types", range(COUNT, COUNT + 40), PARTITIONS)
    old = Reader(servers, "types", ["types"], group_protocol="classic")
    wait_until(lambda: len(old.read) >= 40, "the further records")
    old.close()
    fill(servers, "types", range(COUNT + 40, COUNT + 80), PARTITIONS)
    newest = Reader(servers, "types", ["types"])
    wait_until(lambda: len(newest.read) >= 40, "the last records")
    newest.close()
    assert Counter(values(new, old, newest)) == Counter(range(COUNT + 80))


@pytest.mark.timeout(120 + 30 * KILLS)
def test_groups_go_on_after_the_broker_was_killed() -> None:
    """After a kill of the broker, members keep partitions and epochs; each record is read."""
    with fast_directory() as place:
        broker = Process(place)
        create(broker.address, "t", PARTITIONS, "g")
        readers = [Reader(broker.address, "g", ["t"]) for _ in "12"]
        wait_until(lambda: all(len(one.share) == 2 for one in readers), "a share each")
        shares, count = [one.share for one in readers], 0
        for _ in range(KILLS):
            before = epochs(broker.address)
            broker.kill()
            broker.start()
            fill(broker.address, "t", range(count, count + COUNT), PARTITIONS)
            count += COUNT
            wait_until(lambda: len(set(values(*readers))) == count, "all records")  # noqa: B023
            assert epochs(broker.address) == before
            assert [one.share for one in readers] == shares
        for one in readers:
            one.close()
        broker.close()
    assert Counter(values(*readers)) == Counter(range(count))


def epochs(servers: str) -> dict[str, int]:
    """Return the epoch of each member, and of the group."""
    with KafkaClient(servers) as client:
        row = client.call("ConsumerGroupDescribe", group_ids=["g"]).groups[0]
        while row.error_code in (14, 15, 16):
            row = client.call("ConsumerGroupDescribe", group_ids=["g"]).groups[0]
    return {one.member_id: one.member_epoch for one in row.members} | {"": row.group_epoch}


@pytest.mark.timeout(120 + 10 * CHANGES)
def test_consumers_come_and_go_while_records_flow(servers: str) -> None:
    """Consumers join and leave cleanly, so each record is read exactly once."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    create(servers, "flow", 8, "flow")
    alive: list[Reader] = [Reader(servers, "flow", ["flow"])]
    gone: list[Reader] = []
    count = 0
    for _ in range(CHANGES):
        fill(servers, "flow", range(count, count + 200), 8)
        count += 200
        if len(alive) < 2 or (len(alive) < MEMBERS_MAX and draw.random() < 0.6):
            alive.append(Reader(servers, "flow", ["flow"]))
        else:
            gone.append(alive.pop(draw.randrange(len(alive))))
            gone[-1].close()
        if draw.random() < 0.5:
            wanted = count // 2
            wait_until(lambda: len(values(*alive, *gone)) > wanted, "some records")  # noqa: B023
    wait_until(lambda: len(set(values(*alive, *gone))) == count, "all records")
    for one in alive:
        one.close()
    assert [one.failures for one in [*alive, *gone]] == [[]] * len([*alive, *gone])
    twice = {value: n for value, n in Counter(values(*alive, *gone)).items() if n > 1}
    assert twice == {}


def test_the_admin_describes_a_group(servers: str) -> None:
    """The admin client shows the type, the state and the partitions of each member."""
    create(servers, "described", PARTITIONS)
    reader = Reader(servers, "described", ["described"])
    wait_until(lambda: reader.share == ALL, "its partitions")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers})
    found = admin.describe_consumer_groups(["described"])["described"].result(30)
    assert found.type is confluent_kafka.ConsumerGroupType.CONSUMER
    assert found.state is confluent_kafka.ConsumerGroupState.STABLE
    places = found.members[0].assignment.topic_partitions
    assert sorted(one.partition for one in places) == ALL
    reader.close()
