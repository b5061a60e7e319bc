"""Kafka 4.1's own command-line tools: they print for this cluster what they print for Kafka's.

Both clusters have three brokers with two log dirs each. Brokers are killed, and log dirs fail, in
both clusters alike (KIP-112); replicas move between brokers and between log dirs (KIP-113). One
script of calls runs against each cluster, and the outputs are compared line by line. With
LOGSTORE_CLIENTS=kafka, Kafka is compared with itself: that shows that nothing else varies.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.client_programs import WHICH, demand_java
from support.kafka_tools.cluster_files import FILES
from support.kafka_tools import Toolbox, own_process
from support.kafka_tools.clusters import BROKERS, ClusterServer, KafkaCluster, OwnCluster
from support.kafka_tools.comparing import NO_APIS, Difference, Pair, apis_of, calls_of
from support.places import fast_directory

SCRIPTS = Path(__file__).parent / "tools" / "cluster"  # one call a line

WORDS = "each says in its own words what is wrong"
RANDOM = "the first replicas of a topic are chosen at random"
DEAD = "a broker that is dead gets no new replicas, as in Kafka with ZooKeeper"
MIN = "the default of min.insync.replicas is a majority of the replicas"
ELR = "Kafka fixes min.insync.replicas, by which its controllers find who may lead (KIP-966)"
SUSPECTS = "the last column has the suspects, and not the last known leader"
# Each is a pair of patterns that are found in the outputs of the call, which is a pattern, too.
DIFFERENCES: list[Difference] = []


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    """Start the JVM of the tools."""
    demand_java()
    with closing(Toolbox()) as box:
        yield box


@pytest.fixture(scope="module")
def pair(box: Toolbox) -> Iterator[Pair]:
    """Start this cluster, and one of real Kafka brokers; each test leaves both as they began."""
    with ExitStack() as stack:
        ours_is = KafkaCluster if WHICH == "kafka" else OwnCluster
        servers: list[ClusterServer] = []
        for kind in (ours_is, KafkaCluster):
            server = kind(stack.enter_context(fast_directory()))
            stack.callback(server.close)
            server.write(FILES)
            servers.append(server)
        yield Pair(*servers, box, DIFFERENCES, may_ours_lag=True)


def test_each_known_difference_is_one_of_some_call() -> None:
    """A difference that is gone fails the script of its call; one without a call fails here."""
    calls = [call for path in SCRIPTS.glob("*.txt") for call in calls_of(path)]
    for known in DIFFERENCES:
        assert any(re.search(known.call, call) for call in calls), known


@pytest.mark.parametrize("script", sorted(path.stem for path in SCRIPTS.glob("*.txt")))
def test_the_tools_print_the_same(pair: Pair, script: str) -> None:
    """Each script deletes its topics, mends its log dirs, and starts what it killed."""
    pair.compare(SCRIPTS / f"{script}.txt")
