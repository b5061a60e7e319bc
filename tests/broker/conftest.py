"""Give the tests a broker over a temporary directory, and a bare client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker import Broker
from support.kafka_client import KafkaClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient(broker.bootstrap_servers) as connected:
        yield connected
