"""Share the tests out over the cores of the machine: a plugin of pytest-xdist.

`pytest -n auto -m "not alone"` runs every test that may run beside others; `pytest -m alone` runs
the rest, one at a time. `make test` does first the one, then the other. A new test belongs to the
first part and needs no mark. A test that measures time is marked `pytest.mark.alone`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# The tests of a lane run one after another in one worker, beside all other tests. They share a
# JVM, whose start takes seconds; a ZooKeeper; loop devices, of which a machine has few; or what was
# parsed.
LANES = {
    "spark": ("tests/spark/",),
    "disks": (
        "tests/faults/",
        "tests/integration/test_disk_dies.py",
        "tests/integration/test_full_disk.py",
        "tests/bench/test_layout_disks.py",
    ),
    "zookeeper": tuple(
        f"tests/cluster/test_{name}.py"
        for name in (
            "broker_ids",
            "continuity",
            "coordination_contract",
            "coordination_model",
            "coordination_sessions",
            "credentials",
            "found_ids",
            "growing",
            "joining",
            "member_sessions",
            "producer_blocks",
            "setting_texts",
            "shared_documents",
            "store_memory",
            "topic_changes",
            "topic_deletion",
            "zookeeper",
            "zookeeper_sessions",
            "zookeeper_timeout",
        )
    ),
    "tidy": ("tests/test_tidy.py", "tests/test_prose.py"),
}
# Here, each file is a lane, because its tests share brokers.
LANE_A_FILE = ("tests/cluster/",)


def scope_of(nodeid: str) -> str:
    """Give the lane of a test; a test that is in none is a lane of its own."""
    lanes = [lane for lane, places in LANES.items() if nodeid.startswith(places)]
    if not lanes and nodeid.startswith(LANE_A_FILE):
        return nodeid.split("::", maxsplit=1)[0]
    return lanes[0] if lanes else nodeid


def pytest_xdist_auto_num_workers() -> int:
    """Start one worker more than there are cores: one of them mostly waits for a disk or a JVM."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Hand out the lanes; the mark `xdist_group` would do, but not with pytest 9.2."""
    if config.getvalue("dist") != "load":  # it was asked for by name
        return None
    from xdist.scheduler import LoadScopeScheduling

    class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc] # it has no types
        """Gives each worker a lane at a time, those of most tests first."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return LaneScheduling(config, log)
