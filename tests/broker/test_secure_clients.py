"""Real clients over TLS and with logins: confluent-kafka, aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from broker import Broker
from support.secured import (
    SECRET,
    USER,
    Certificates,
    address_of,
    client_context,
    secure_broker,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUES = [b"value %d" % number for number in range(20)] + [bytes(700_000)]
SECONDS = 30.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[Broker]:
    with secure_broker(certificates, ssl_client_auth="requested") as running:
        yield running


def confluent_config(
    broker: Broker, trusted: Certificates, protocol: str, mechanism: str, secret: str = SECRET
) -> dict[str, Any]:
    config = {
        "bootstrap.servers": address_of(broker, protocol),
        "security.protocol": protocol,
        "ssl.ca.location": trusted.authority,
        "log_level": 0,
    }
    if protocol == "SSL":
        own = trusted.client
        return config | {"ssl.certificate.location": own, "ssl.key.location": own}
    return config | {
        "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": secret,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), ("SASL_PLAINTEXT", "SCRAM-SHA-512"), *(("SASL_SSL", one) for one in MECHANISMS)],
)
def test_confluent_kafka(
    broker: Broker, certificates: Certificates, protocol: str, mechanism: str
) -> None:
    """The client produces, and reads the same records."""
    config = confluent_config(broker, certificates, protocol, mechanism)
    topic, errors = f"confluent-{protocol}-{mechanism}", list[Any]()
    producer = confluent_kafka.Producer(config)
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0 and not any(errors)
    consumer = confluent_kafka.Consumer(config | {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < len(VALUES) and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(len(VALUES), 0.5)]
    consumer.close()
    assert found == VALUES


def test_confluent_kafka_with_a_wrong_password(broker: Broker, certificates: Certificates) -> None:
    """The client reports the broker's text."""
    errors: list[Any] = []
    config = confluent_config(broker, certificates, "SASL_SSL", "SCRAM-SHA-256", "wrong")
    admin = AdminClient(config | {"error_cb": errors.append})
    deadline = time.monotonic() + SECONDS
    while not errors and time.monotonic() < deadline:
        admin.poll(0.1)
    assert any("password is wrong" in str(error) for error in errors), errors


def test_confluent_kafka_changes_users(broker: Broker, certificates: Certificates) -> None:
    """Its admin client creates, lists and deletes users."""
    admin = AdminClient(confluent_config(broker, certificates, "SASL_SSL", "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8000)
    made = UserScramCredentialUpsertion("carol", info, b"the secret of carol")
    admin.alter_user_scram_credentials([made])["carol"].result(SECONDS)
    (found,) = (admin.describe_user_scram_credentials(["carol"])["carol"].result(SECONDS),)
    (listed,) = found.scram_credential_infos
    assert (listed.mechanism, listed.iterations) == (ScramMechanism.SCRAM_SHA_512, 8000)
    config = confluent_config(broker, certificates, "SASL_SSL", "SCRAM-SHA-512")
    own = {"sasl.username": "carol", "sasl.password": "the secret of carol"}
    assert AdminClient(config | own).list_topics(timeout=SECONDS).brokers
    gone = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([gone])["carol"].result(SECONDS)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.describe_user_scram_credentials(["carol"])["carol"].result(SECONDS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: Broker, certificates: Certificates, mechanism: str) -> None:
    """The client produces, and reads the same records; a wrong password is an error."""
    config = {
        "bootstrap_servers": address_of(broker, "SASL_SSL"), "security_protocol": "SASL_SSL",
        "ssl_context": client_context(certificates), "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
    }  # fmt: skip
    topic = f"aiokafka-{mechanism}"

    async def work() -> list[bytes]:
        wrong = aiokafka.AIOKafkaProducer(**config, sasl_plain_password="wrong")
        with pytest.raises((aiokafka.errors.KafkaError, OSError)):
            await wrong.start()
        await wrong.stop()
        good = config | {"sasl_plain_password": SECRET}
        producer = aiokafka.AIOKafkaProducer(**good)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, **good, auto_offset_reset="earliest")
        await consumer.start()
        found: list[bytes] = []
        while len(found) < len(VALUES):
            found.append((await consumer.getone()).value)
        await consumer.stop()
        return found

    assert asyncio.run(asyncio.wait_for(work(), SECONDS)) == VALUES


@pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: Broker, certificates: Certificates, mechanism: str) -> None:
    """The client produces, and reads the same records."""
    import kafka  # it warns while it is imported

    config = {
        "bootstrap_servers": address_of(broker, "SASL_SSL"), "security_protocol": "SASL_SSL",
        "ssl_cafile": certificates.authority, "sasl_mechanism": mechanism,
        "sasl_plain_username": USER, "sasl_plain_password": SECRET,
    }  # fmt: skip
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**config)
    for value in VALUES:
        producer.send(topic, value).get(SECONDS)
    producer.close(SECONDS)
    consumer = kafka.KafkaConsumer(
        topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    found: list[bytes] = []
    for message in consumer:
        found.append(message.value)
        if len(found) == len(VALUES):
            break
    consumer.close()
    assert found == VALUES
