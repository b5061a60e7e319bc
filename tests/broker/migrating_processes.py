"""Real consumers (librdkafka) change their protocol one after another, while records flow.

`make consumer-groups` runs these tests, because a call of librdkafka sometimes lasts for minutes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker import Broker
from support.kafka_client import KafkaClient
from support.new_protocol_clients import FAST, Process, Reader, create, fill, wait_until
from support.places import fast_directory

PARTITIONS, COUNT, CONSUMERS = 6, 120, 3
# The machine may be busy, so the sessions are long.
SERVED = FAST | {"group_consumer_session_timeout_ms": 20_000}
CLASSIC = {"group_protocol": "classic", "session_timeout_ms": 20_000, "heartbeat_interval_ms": 200}
# A member that a rebalance has overtaken cannot commit any more; it reads some records again.
# While a consumer closes, librdkafka sometimes ends the connection that the commit waits for.
OVERTAKEN = (
    "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST",
    "_DESTROY",
)  # fmt: skip


class Rolling:
    """Consumers of one group, and the records that they must read."""

    def __init__(self, servers: str, group: str, assignor: str, *, is_static: bool) -> None:
        self.servers, self.group = servers, group
        self.classic: dict[str, Any] = CLASSIC | {"partition_assignment_strategy": assignor}
        self.is_static, self.count = is_static, 0
        create(servers, group, PARTITIONS, group)
        self.alive = [self.start(number, is_new=False) for number in range(CONSUMERS)]
        self.gone: list[Reader] = []
        self.go_on()

    def start(self, number: int, *, is_new: bool) -> Reader:
        config = {} if is_new else self.classic
        if self.is_static:
            config = config | {"group_instance_id": f"i{number}"}
        return Reader(self.servers, self.group, [self.group], **config)

    def produce(self) -> None:
        fill(self.servers, self.group, range(self.count, self.count + COUNT), PARTITIONS)
        self.count += COUNT

    def read(self) -> Counter[int]:
        readers = [*self.alive, *self.gone]
        return Counter(value for one in readers for _, value in list(one.read))

    def go_on(self) -> None:
        """Produce, and wait until all records are read, and each consumer has a share."""
        self.produce()
        wait_until(lambda: len(self.read()) == self.count, f"all {self.count} records")
        sizes = [PARTITIONS // CONSUMERS] * CONSUMERS
        try:
            wait_until(lambda: [len(one.share) for one in self.alive] == sizes, "a share each")
        except AssertionError:
            print([(one.share, one.failures) for one in self.alive], self.described())
            raise

    def roll(self, number: int, *, is_new: bool) -> None:
        """Replace one consumer, while records arrive."""
        self.produce()
        old = self.alive[number]
        old.close()
        self.gone.append(old)
        self.produce()
        self.alive[number] = self.start(number, is_new=is_new)
        self.go_on()

    def kind(self) -> tuple[str, str]:
        """Return the type of the group, and how many members use the classic protocol."""
        with KafkaClient(self.servers) as client:
            rows = client.call("ListGroups").groups
            (kind,) = [row.group_type for row in rows if row.group_id == self.group]
        types = Counter(one.member_type for one in self.described().members)
        return kind, f"{types[0]} classic, {types[1]} new"

    def described(self) -> Any:
        with KafkaClient(self.servers) as client:
            return client.call("ConsumerGroupDescribe", group_ids=[self.group]).groups[0]

    def end(self) -> None:
        """Close all consumers; nothing is lost, and each consumer has committed its last offset."""
        for one in self.alive:
            one.close()
        found = self.read()
        assert set(found) == set(range(self.count)), "a record was lost"
        failures = [text for one in [*self.alive, *self.gone] for text in one.failures]
        assert [text for text in failures if not any(word in text for word in OVERTAKEN)] == []
        twice = sum(found.values()) - len(found)
        print(f"{twice} of {self.count} records were read twice; {len(failures)} commits refused")
        # While a process is replaced, another has at most half of the partitions.
        assert twice <= len(failures) * self.count // 2
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.servers})
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(self.group)]
        (done,) = admin.list_consumer_group_offsets(asked).values()
        offsets = [one.offset for one in done.result(30).topic_partitions]
        assert offsets == [self.count // PARTITIONS] * PARTITIONS


@pytest.mark.timeout(600)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_consumers_change_to_the_new_protocol_and_back(assignor: str) -> None:
    """The group is converted by the first new consumer, and converted back by the last one."""
    with Broker.start(config=SERVED) as broker:
        rolling = Rolling(broker.bootstrap_servers, "rolling", assignor, is_static=False)
        assert rolling.kind()[0] == "classic"
        for number in range(CONSUMERS):
            rolling.roll(number, is_new=True)
            said = f"{CONSUMERS - 1 - number} classic, {number + 1} new"
            assert rolling.kind() == ("consumer", said)
        for number in range(CONSUMERS):
            assert rolling.kind()[0] == "consumer"
            rolling.roll(number, is_new=False)
        assert rolling.kind()[0] == "classic"
        rolling.end()


@pytest.mark.timeout(600)
def test_static_consumers_change_their_protocol() -> None:
    """The next process has the same instance id, and takes over the partitions."""
    with Broker.start(config=SERVED) as broker:
        rolling = Rolling(broker.bootstrap_servers, "static", "range", is_static=True)
        for is_new in (True, False):
            for number in range(CONSUMERS):
                rolling.roll(number, is_new=is_new)
            assert rolling.kind()[0] == ("consumer" if is_new else "classic")
        rolling.end()


@pytest.mark.timeout(600)
def test_the_broker_is_killed_while_the_group_has_members_of_both_protocols() -> None:
    """After each kill, the members continue, and the migration goes on in both directions."""
    with fast_directory() as place:
        broker = Process(place, **SERVED)
        rolling = Rolling(broker.address, "killed", "cooperative-sticky", is_static=False)
        for is_new in (True, False):
            for number in range(CONSUMERS):
                rolling.roll(number, is_new=is_new)
                broker.kill()
                broker.start()
                rolling.go_on()
        assert rolling.kind()[0] == "classic"
        rolling.end()
        broker.close()
