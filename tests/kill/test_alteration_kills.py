"""Kill -9 a broker while the settings of a topic change and the topic grows.

A fifth of `LOGSTORE_BROKER_KILLS` sets how often; `make kill-broker` does it 200 times.
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from functools import partial

import pytest

from support.altering import alter, grow, retention_of, unfinished
from support.broker_process import KILLS, serve, tell
from support.hanging import Caller
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.served_topics import Served

TURNS = KILLS // 5
PARTITIONS, MORE = 100, 5  # the topic has 100 partitions at first, and grows by 5
PARTITIONS_MAX = 300


class Changes:
    """The changes of one topic that clients ask for until the broker dies.

    Attributes:
        wanted: the values that may count after the kill.
    """

    def __init__(self, value: int, count: int) -> None:
        self.value, self.count = value, count
        self.wanted = {value}

    def alter(self, address: str) -> None:
        """Change a setting again and again."""
        with suppress(OSError, EOFError), KafkaClient(address) as client:
            while True:
                value = self.value + 1
                self.wanted.add(value)
                if alter(client, value) == 0:
                    self.wanted = {value}  # no earlier value may come back
                self.value = value

    def grow(self, address: str) -> None:
        """Add partitions again and again."""
        with suppress(OSError, EOFError), KafkaClient(address) as client:
            while self.count < PARTITIONS_MAX:
                if grow(client, self.count + MORE) == 0:
                    self.count += MORE


@pytest.mark.timeout(120 + 10 * TURNS)
def test_regression_kills_amid_alterations() -> None:
    """Some partitions had the new settings after a restart, and others the old ones."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice, changes = random.Random(seed), Changes(777, PARTITIONS)
    with fast_directory() as directory:
        dirs = [directory / "a", directory / "b"]
        with Served(dirs) as served:
            served.client.create("t", PARTITIONS, retention_ms="777")
        for turn in range(TURNS):
            child, address = serve(dirs)
            with child:
                try:
                    calls = [Caller(partial(changes.alter, address))]
                    calls.append(Caller(partial(changes.grow, address)))
                    threading.Event().wait(dice.uniform(0.02, 0.6))
                finally:
                    child.kill()
                for call in calls:
                    assert call.outcome() is None
            with Served(dirs) as served:
                values = retention_of(served.store)
                (value,) = set(values.values())
                assert value in changes.wanted and served.retention() == str(value)
                assert len(values) in (changes.count, changes.count + MORE)
                assert not unfinished(served.store)
            changes.value, changes.count, changes.wanted = value or 0, len(values), {value or 0}
            tell(turn, seed, changes.value)
