"""An ensemble of three ZooKeepers elects another leader when its leader is killed.

Needs root and network namespaces.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jepsen.ensemble import Ensemble
from support.layers import demand
from support.network import inside, network, why_not

# Members give each other up after 2 s of silence, which a crowded machine reaches without a fault.
pytestmark = pytest.mark.alone
NODES = ("z1", "z2", "z3")
SECONDS = 60.0


def test_another_zookeeper_leads_when_the_leader_is_killed(tmp_path: Path) -> None:
    """The killed one returns as a follower, and the election began a new epoch."""
    demand("ZooKeepers in network namespaces", why_not())
    with network(*NODES, "clients") as joined, inside(joined.name("clients")):
        ensemble = Ensemble(joined, tmp_path, NODES, {})
        try:
            ensemble.start()
            first, epoch = ensemble.leader(), ensemble.epoch()
            assert first in NODES
            ensemble.members[first].kill()
            second = ensemble.leader(SECONDS, other_than=first)
            assert second in NODES and second != first
            ensemble.start()
            assert ensemble.members[first].facts()["Mode"] == "follower"
            assert ensemble.epoch() > epoch
        finally:
            ensemble.kill()
