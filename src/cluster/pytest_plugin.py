"""Give tests a cluster: `pytest_plugins = ["cluster.pytest_plugin"]` in a conftest.py.

    def test_my_service(kafka_cluster):
        service = MyService(bootstrap_servers=kafka_cluster.bootstrap_servers)
        kafka_cluster.kill(1)

`kafka_cluster` has three brokers, and each broker has two log dirs. Each test gets a new cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.local.cluster import Cluster


@pytest.fixture
def kafka_cluster() -> Iterator[Cluster]:
    """Start three brokers for one test."""
    with Cluster.start(brokers=3, log_dirs=2) as running:
        yield running
