"""The demo of the cluster in small, its check of the replicas, and the line that it draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.broker.demo.load import Load
from benchmarks.cluster import faults
from benchmarks.cluster.pulse import draw
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
    """It ends with success, says so, and removes its files.

    ZooKeeper and the brokers are processes. One is killed, one loses a disk, and one is frozen.
    """
    ran = subprocess.run(
        COMMAND, cwd=REPOSITORY, env=environment() | {"TMPDIR": str(tmp_path)}, check=False,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 lost, 0 doubled" in ran.stdout and "✗" not in ran.stdout
    assert ran.stdout.count("✓") == 7 and ran.stdout.count("╳") == 3
    assert not list(tmp_path.iterdir())


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    """A record that differs, one too many, and one that is missing, in each replica."""
    sent = [flights(b"a", b"b", b"c"), flights(b"d")]
    with Cluster.start(3, directory=tmp_path) as cluster:
        faults.create(cluster.bootstrap_servers, sent)
        producing = Load(cluster.bootstrap_servers, sent)
        faults.finish(producing)
        producing.stop()
        cluster.close()
        log_dirs = {one: [Path(path) for path in cluster.log_dirs(one)] for one in (1, 2, 3)}
        assert [one.wrong for one in faults.check(log_dirs, sent)] == [0] * 6
        changed = [flights(b"a", b"x", b"c"), flights(b"d")]
        assert [one.wrong for one in faults.check(log_dirs, changed)] == [1, 0] * 3
        fewer = [flights(b"a", b"b"), flights(b"d", b"e")]
        assert [one.wrong for one in faults.check(log_dirs, fewer)] == [1, 1] * 3


def test_a_pulse_is_drawn() -> None:
    """A bar for each moment, the highest one full, and a cross where the fault begins."""
    seen = [(0.0, 5), (1.0, 13), (2.0, 13), (3.0, 14), (4.0, 18)]
    assert draw(seen, 1.5) == ("█╳ ▁▄", 1.0)
    assert draw(seen, None) == ("█ ▁▄", 1.0)
    assert draw([(0.0, 5), (1.0, 5)], 9.0) == (" ╳", 1.0)
    line, seconds = draw([(number / 10, number) for number in range(1001)], 99.99)
    assert (len(line), seconds) == (61, 100 / 60) and line.endswith("╳█")
