"""The demo of the cluster in small, and its check of the replicas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.broker.demo.load import Load
from benchmarks.cluster import faults
from cluster import Cluster
from logstore.cli.demo.flights import Flights
from support.places import environment

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.cluster", "--scale", "small"]


def flights(*values: bytes) -> Flights:
    """Make flights of one carrier, from second 1 on: for the client, 0 is no timestamp."""
    return Flights(
        list(values), [b"UA1"] * len(values), [1000 * (number + 1) for number in range(len(values))]
    )


def test_the_demo_survives_its_faults(tmp_path: Path) -> None:
    """It ends with success, says so, and removes its files."""
    ran = subprocess.run(
        COMMAND, cwd=REPOSITORY, env=environment() | {"TMPDIR": str(tmp_path)}, check=False,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 lost, 0 doubled" in ran.stdout and "✗" not in ran.stdout
    assert ran.stdout.count("✓") == 6
    assert not list(tmp_path.iterdir())


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    """A record that differs, one too many, and one that is missing, in each replica."""
    sent = [flights(b"a", b"b", b"c"), flights(b"d")]
    with Cluster.start(faults.BROKERS, directory=tmp_path) as cluster:
        faults.create(cluster, 2)
        producing = Load(cluster.bootstrap_servers, sent)
        faults.finish(producing)
        producing.stop()
        cluster.close()
        assert [one.wrong for one in faults.check(cluster, sent)] == [0] * 6
        changed = [flights(b"a", b"x", b"c"), flights(b"d")]
        assert [one.wrong for one in faults.check(cluster, changed)] == [1, 0] * 3
        fewer = [flights(b"a", b"b"), flights(b"d", b"e")]
        assert [one.wrong for one in faults.check(cluster, fewer)] == [1, 1] * 3
