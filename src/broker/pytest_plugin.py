"""Give tests a broker: `pytest_plugins = ["broker.pytest_plugin"]` in a conftest.py.

    def test_my_service(kafka_broker):
        service = MyService(bootstrap_servers=kafka_broker.bootstrap_servers)

`kafka_broker` is a new broker for each test, in a temporary directory. A new broker starts in a
fraction of a second. `kafka_broker_session` is one broker for all tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.server import Broker


@pytest.fixture
def kafka_broker() -> Iterator[Broker]:
    """Start a broker for one test."""
    with Broker.start() as running:
        yield running


@pytest.fixture(scope="session")
def kafka_broker_session() -> Iterator[Broker]:
    """Start one broker for all tests; each test should use its own topics."""
    with Broker.start() as running:
        yield running
