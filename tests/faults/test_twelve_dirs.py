"""One of twelve disks dies while many partitions are open: theirs alone notice, nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest

from faults.faults import cut_power, remount
from faults.scene import IS_FULL, SICK, Scene, play

DIRS = 12
PARTITIONS = 1000 if IS_FULL else 120
THREADS = 2  # for each log dir, each with a partition of its own
PAUSE_SECONDS = 0.02  # 24 threads at full speed would measure how they wait for each other
OFFLINE_SECONDS = 1.0


@pytest.mark.timeout(300)
def test_one_dir_of_twelve_dies_and_comes_back(kind: str) -> None:
    """Its replicas are offline, soon in the full form; reopened they are back, and nothing leaks.

    In the full form the other eleven keep their latency, also while the dir is reopened and its
    replicas are recovered.
    """
    play(kind, one_dir_of_twelve, DIRS)


def one_dir_of_twelve(scene: Scene) -> bool:
    scene.start(
        threads=[THREADS] * DIRS,
        partitions=PARTITIONS - THREADS * DIRS,
        pause_seconds=PAUSE_SECONDS,
    )
    worker = scene.worker
    before = worker.wait_for_appends("before", [SICK, *scene.others], 20)
    counts = worker.ask("counts")
    replicas = THREADS + len(range(SICK, PARTITIONS - THREADS * DIRS, DIRS))

    cut_power(scene)
    worker.ask("phase", "struck")
    took = worker.wait_for(
        lambda: worker.ask("metrics")["OfflineReplicaCount"] == replicas, "all of its replicas off"
    )
    during = worker.wait_for_appends("during", scene.others, 20)
    scene.check_others(before, during)
    assert worker.ask("metrics")["OfflineReplicaCount"] == replicas
    assert worker.ask("metrics")["OfflineLogDirectoryCount"] == 1
    worker.wait_for(lambda: not worker.ask("held", str(scene.sick.mount)), "let go of the disk")

    remount(scene)
    worker.ask("phase", "reopening")
    scene.reopen()
    reopening = list(worker.ask("figures", "reopening"))
    scene.check_others(before, reopening)
    assert worker.ask("metrics")["OfflineReplicaCount"] == 0
    after = worker.wait_for_appends("after", [SICK, *scene.others], 20)
    scene.check_others(before, after)
    check_no_leaks(scene, counts)
    if IS_FULL:
        print(f"faults: {replicas} replicas of {PARTITIONS} offline after {took * 1e3:.0f} ms")
        assert took <= OFFLINE_SECONDS
    return all(scene.is_quiet(before, rows) for rows in (during, reopening, after))


def check_no_leaks(scene: Scene, before: dict[str, Any]) -> None:
    """No more threads or descriptors than before the fault; after the close none of the store's.

    Recovery leaves the file of each log that it read open for reading, in the store's bounded
    cache of descriptors: one more for each partition that is written to.
    """
    worker = scene.worker
    before = {**before, "fds": before["fds"] + THREADS}

    def is_back(counts: dict[str, int]) -> bool:
        now = worker.ask("counts")
        return all(now[name] <= counts[name] for name in counts)

    worker.wait_for(lambda: is_back(before), f"back to {before}")
    scene.check_nothing_lost(was_cut=True)
    assert worker.ask("close") == []
    opened = worker.ask("counts_before")
    worker.wait_for(lambda: is_back(opened), f"down to {opened}")
    assert all(worker.ask("held", str(disk.mount)) == [] for disk in scene.disks)
