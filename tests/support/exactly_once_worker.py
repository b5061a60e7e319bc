"""Consume, transform, produce, in transactions, until this process is killed.

    python exactly_once_worker.py SERVERS NAME SEED PARTITIONS

Each record of `inputs` becomes one record of `outputs`: "transaction,count,partition,offset". The
count is how many records the transaction has. Some transactions are aborted on purpose.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import uuid
from typing import Any

from confluent_kafka import OFFSET_STORED, Consumer, KafkaException, Producer, TopicPartition

GROUP = "workers"
# If all brokers were away, librdkafka 2.16 otherwise begins again with the bootstrap servers, and
# forgets its brokers. Then `send_offsets_to_transaction` waits for ever for the one it remembers,
# whatever its timeout is. A broker that leaves the metadata is forgotten, too.
API_SECONDS, HUNG_SECONDS = 10, 30.0
KEEPS_BROKERS = {"metadata.recovery.strategy": "none"}
RECORDS_MAX = 20


def consumer_of(servers: str, numbers: range) -> Consumer:
    """Begin at the committed offsets; offsets of an open transaction are waited for."""
    made = Consumer(
        {
            "bootstrap.servers": servers, "group.id": GROUP, "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0,
            "reconnect.backoff.max.ms": 200, **KEEPS_BROKERS,
        }
    )  # fmt: skip
    made.assign([TopicPartition("inputs", number, OFFSET_STORED) for number in numbers])
    return made


def begin_again() -> None:
    """Replace this process by a new one of the same program: a call of the client never returns."""
    print("hung", flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv])


def run_once(consumer: Consumer, producer: Producer, rng: random.Random, count: int) -> bool:
    """Do one transaction; returns False if it was aborted, so that its records come again."""
    records = [one for one in consumer.consume(rng.randint(1, RECORDS_MAX), 0.1) if not one.error()]
    if not records:
        return True
    producer.begin_transaction()
    name = uuid.uuid4().hex[:12]
    for one in records:
        value = f"{name},{len(records)},{one.partition()},{one.offset()}"
        producer.produce("outputs", value, partition=rng.randrange(count))
    hung = threading.Timer(HUNG_SECONDS, begin_again)
    hung.start()
    try:
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            API_SECONDS,
        )
    finally:
        hung.cancel()
    if rng.random() < 0.1:
        producer.flush(5)
        producer.abort_transaction(API_SECONDS)
        return False
    producer.commit_transaction(API_SECONDS)
    return True


def session(servers: str, name: str, rng: random.Random, numbers: range) -> None:
    """Do transactions until one is aborted or fails."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 20_000,
        "log_level": 0, "reconnect.backoff.max.ms": 200, "linger.ms": 0,
        **KEEPS_BROKERS,
    }  # fmt: skip
    producer = Producer(settings)
    producer.init_transactions(30)
    while True:
        consumer = consumer_of(servers, numbers)
        try:
            while run_once(consumer, producer, rng, len(numbers)):
                print("done", flush=True)
        except KafkaException as error:
            found = error.args[0]
            if found.fatal() or not found.txn_requires_abort():
                raise
            producer.abort_transaction(API_SECONDS)
        finally:
            consumer.close()


def main() -> None:
    """Begin again with a new producer after each failure."""
    faulthandler.register(signal.SIGUSR1)  # says where it hangs
    servers, name, seed, partitions = sys.argv[1:]
    rng = random.Random(seed)
    while True:
        try:
            session(servers, name, rng, range(int(partitions)))
        except KafkaException as error:
            print("failed", error, flush=True)


if __name__ == "__main__":
    main()
