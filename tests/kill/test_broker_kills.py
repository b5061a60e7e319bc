"""Kill -9 a broker under idempotent producers: nothing acknowledged is lost, nothing is doubled.

`LOGSTORE_BROKER_KILLS` sets how often; `make kill-broker` does it 1,000 times.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import deque

import pytest

from logstore import LogStore
from support.broker_process import KILLS, serve, tell
from support.kafka_client import KafkaClient, batch_of, produce_fields
from support.places import fast_directory

PARTITIONS = 2
IN_FLIGHT_MAX = 5  # as Kafka's clients: a broker remembers five batches of a producer


class Producer:
    """An idempotent producer of one partition that sends again what was not acknowledged."""

    def __init__(self, partition: int, rng: random.Random) -> None:
        self.partition = partition
        self.rng = rng
        self.producer_id = -1
        self.next = 0  # the sequence of the next new record
        self.waiting: deque[tuple[int, int]] = deque()  # first sequence and size of each batch
        self.acknowledged = 0  # every record before this sequence was

    def run(self, servers: str) -> None:
        """Send until the broker dies."""
        try:
            with KafkaClient(servers) as client:
                if self.producer_id < 0:
                    fields = {"transactional_id": None, "transaction_timeout_ms": 1}
                    self.producer_id = client.call("InitProducerId", **fields).producer_id
                sent = deque(self._send(client, *batch) for batch in self.waiting)
                while True:
                    while len(self.waiting) < IN_FLIGHT_MAX:
                        batch = (self.next, self.rng.randrange(1, 20))
                        self.waiting.append(batch)
                        self.next += batch[1]
                        sent.append(self._send(client, *batch))
                    number, answer = client.receive("Produce", 12)
                    row = answer.responses[0].partition_responses[0]
                    assert number == sent.popleft() and row.error_code == 0, row
                    first, count = self.waiting.popleft()
                    assert row.base_offset == first, "a batch is missing, or was appended twice"
                    self.acknowledged = first + count
        except (OSError, EOFError):
            return

    def _send(self, client: KafkaClient, first: int, count: int) -> int:
        values = [b"%d" % number for number in range(first, first + count)]
        batch = batch_of(*values, producer=(self.producer_id, 0, first))
        return client.send("Produce", 12, **produce_fields({("t", self.partition): batch}))


@pytest.mark.timeout(120 + 10 * KILLS)
def test_an_idempotent_producer_outlives_kills() -> None:
    """After each kill it sends again what was not acknowledged, to a broker that was restarted."""
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    producers = [Producer(partition, random.Random(seed)) for partition in range(PARTITIONS)]
    with fast_directory() as base:
        paths = [base / "a", base / "b"]
        for turn in range(KILLS):
            child, servers = serve(paths)
            with child, KafkaClient(servers) as client:
                if not turn:
                    client.create("t", PARTITIONS, segment_bytes="20000")
                threads = [threading.Thread(target=one.run, args=(servers,)) for one in producers]
                for thread in threads:
                    thread.start()
                before = [one.acknowledged for one in producers]
                threading.Event().wait(rng.random() * 0.2)
                deadline = time.monotonic() + 30
                while before == [one.acknowledged for one in producers]:
                    assert time.monotonic() < deadline, f"seed {seed}"
                    threading.Event().wait(0.001)
                child.send_signal(signal.SIGKILL)
                for thread in threads:
                    thread.join()
            tell(turn, seed, sum(one.acknowledged for one in producers))
        with LogStore.open(paths) as store:
            for one in producers:
                values = [record.value for record in store["t", one.partition]]
                assert values == [b"%d" % at for at in range(len(values))], f"seed {seed}"
                assert one.acknowledged <= len(values) <= one.next, f"seed {seed}"
                assert one.acknowledged, f"seed {seed}"
            ids = {one.producer_id for one in producers}
            assert len(ids) == PARTITIONS
