"""Kafka's own clients take the broker for Kafka: every codec, idempotent producers, consumers.

Each client is tested as its users call it, with the versions that its newest release speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from broker import Broker
from logstore.format.compression import CODEC_IDS
from logstore.log.encoded.raw_batches import parse

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500
SECONDS = 30.0
VALUES = [b"value %d " % number * 5 for number in range(COUNT)]


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


def confluent_read(servers: str, topic: str, count: int, **config: Any) -> list[Any]:
    """Read records from the beginning of a partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False} | config
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count, 0.5)
    consumer.close()
    assert not [message.error() for message in found if message.error()]
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka(servers: str, codec: str, idempotent: bool) -> None:
    """Records come back with their keys, headers, timestamps and offsets."""
    topic, errors = f"confluent-{codec}-{idempotent}", list[Any]()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers, "compression.type": codec, "linger.ms": 5,
            "enable.idempotence": idempotent, "batch.num.messages": 100,
        }
    )  # fmt: skip
    for number, value in enumerate(VALUES):
        producer.produce(
            topic, value, b"key %d" % number, headers={"h": b"%d" % number},
            timestamp=1_700_000_000_000 + number,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0 and not errors
    found = confluent_read(servers, topic, COUNT)
    assert [message.value() for message in found] == VALUES
    assert [message.offset() for message in found] == list(range(COUNT))
    assert [message.key() for message in found] == [b"key %d" % at for at in range(COUNT)]
    assert found[7].headers() == [("h", b"7")]
    assert found[7].timestamp() == (1, 1_700_000_000_007)
    read = confluent_read(servers, topic, COUNT, **{"isolation.level": "read_uncommitted"})
    assert len(read) == COUNT


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_of_a_topic(broker: Broker, servers: str, codec: str) -> None:
    """The client compresses with gzip; the broker stores and serves the topic's codec."""
    topic, name = f"codec-{codec}", "uncompressed" if codec == "none" else codec
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = NewTopic(topic, 1, config={"compression.type": name})
    admin.create_topics([wanted])[topic].result(SECONDS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = admin.describe_configs([resource])[resource].result(SECONDS)["compression.type"]
    assert (entry.value, entry.is_default) == (name, False)
    settings = {"bootstrap.servers": servers, "compression.type": "gzip", "linger.ms": 20}
    producer = confluent_kafka.Producer(settings | {"enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(SECONDS) == 0
    assert [message.value() for message in confluent_read(servers, topic, COUNT)] == VALUES
    raw = broker.store[topic, 0].read_raw(0, 1 << 24)
    assert {header.attributes & 7 for _, header in parse(raw)} == {CODEC_IDS[codec]}


def test_confluent_offsets_by_time(servers: str) -> None:
    """confluent-kafka reads watermarks, and finds the offset of a point in time."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(20):
        producer.produce("times", b"x", timestamp=1_700_000_000_000 + 10 * number)
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    partition = confluent_kafka.TopicPartition("times", 0)
    assert consumer.get_watermark_offsets(partition, timeout=SECONDS) == (0, 20)
    at = confluent_kafka.TopicPartition("times", 0, 1_700_000_000_095)
    (found,) = consumer.offsets_for_times([at], timeout=SECONDS)
    assert found.offset == 10
    consumer.close()


def test_confluent_admin(servers: str) -> None:
    """confluent-kafka's admin client creates, lists, describes and deletes topics."""
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic("administered", 3, 1, config={"retention.ms": "60000"})
    admin.create_topics([topic])["administered"].result(SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([topic])["administered"].result(SECONDS)
    assert sorted(admin.list_topics("administered", SECONDS).topics["administered"].partitions) == [
        0, 1, 2,
    ]  # fmt: skip
    resource = ConfigResource(ConfigResource.Type.TOPIC, "administered")
    configs = admin.describe_configs([resource])[resource].result(SECONDS)
    assert configs["retention.ms"].value == "60000" and configs["retention.ms"].source == 1
    partition = confluent_kafka.TopicPartition("administered", 1)
    offsets = admin.list_offsets({partition: OffsetSpec.max_timestamp()})
    assert offsets[partition].result(SECONDS).offset == -1
    cluster = admin.describe_cluster().result(SECONDS)
    assert [node.id for node in cluster.nodes] == [0] and cluster.controller.id == 0
    described = admin.describe_topics(confluent_kafka.TopicCollection(["administered"]))[
        "administered"
    ].result(SECONDS)
    assert [one.leader.id for one in described.partitions] == [0, 0, 0]
    admin.delete_topics(["administered"])["administered"].result(SECONDS)
    assert "administered" not in admin.list_topics(timeout=SECONDS).topics


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka(servers: str, codec: str) -> None:
    """Run an idempotent producer, and a consumer without a group."""
    topic = f"aiokafka-{codec}"

    async def run() -> list[Any]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
        )  # fmt: skip
        await producer.start()
        sent = [
            await producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in VALUES
        ]
        offsets = [(await one).offset for one in sent]
        assert offsets == list(range(COUNT))
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = [await consumer.getone() for _ in range(COUNT)]
        partition = aiokafka.TopicPartition(topic, 0)
        assert (await consumer.end_offsets([partition]))[partition] == COUNT
        await consumer.stop()
        return found

    found = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert [record.value for record in found] == VALUES
    assert (found[3].key, found[3].headers) == (b"k", (("h", b"1"),))


# The other codecs need libraries that kafka-python alone uses.
@pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_kafka_python(servers: str, codec: str) -> None:
    """kafka-python runs a producer and a consumer without a group."""
    import kafka  # it warns while it is imported

    topic = f"kafka-python-{codec}"
    with contextlib.closing(
        kafka.KafkaProducer(
            bootstrap_servers=servers, compression_type=None if codec == "none" else codec
        )
    ) as producer:  # fmt: skip
        sent = [producer.send(topic, value, key=b"k") for value in VALUES]
        producer.flush(SECONDS)
        assert [one.get(SECONDS).offset for one in sent] == list(range(COUNT))
    with contextlib.closing(
        kafka.KafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest",
            consumer_timeout_ms=int(SECONDS * 1000),
        )
    ) as consumer:  # fmt: skip
        found = [next(consumer) for _ in range(COUNT)]
    assert [record.value for record in found] == VALUES


def test_a_consumer_gets_records_as_they_are_appended(broker: Broker, servers: str) -> None:
    """A waiting consumer gets all records, even those of this process, without an empty poll."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers, "group.id": "unused", "fetch.wait.max.ms": 10_000,
            "enable.auto.commit": False,  # otherwise `close` waits for a coordinator
        }
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("live", 1, 1)])["live"].result(SECONDS)
    consumer.assign([confluent_kafka.TopicPartition("live", 0, 0)])
    for number in range(10):
        broker.store["live", 0].append(b"%d" % number)
        message = consumer.poll(SECONDS)
        assert message is not None and message.value() == b"%d" % number
    consumer.close()
