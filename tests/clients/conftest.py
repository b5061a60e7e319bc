"""Clients of other kinds against a broker: only `make broker-clients` runs these tests.

Each client is a program as its users write it. With LOGSTORE_CLIENTS=kafka the same tests run
against a real Kafka 4.1, so what they demand is what Kafka does. A missing client is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support.client_programs import WHICH, Served

collect_ignore_glob = [] if WHICH else ["*"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Give a broker to the tests of one client."""
    with closing(Served(tmp_path_factory.mktemp("broker"))) as broker:
        yield broker
