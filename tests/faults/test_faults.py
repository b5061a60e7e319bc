"""A disk of four fails under load: its log dir says so, the others go on, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.faults import FAULTS, Fault, empty, fill, swap
from faults.scene import IS_FULL, SICK, Scene, four_disks
from support.layers import demand
from support.loop_disk import kinds, why_not

ATTEMPTS = 3 if IS_FULL else 1  # a busy machine stalls now and then; a fault stalls every time

HANG_SECONDS, SUSPECT_MS = (60.0, 1000) if IS_FULL else (0.3, 200)


@pytest.fixture(params=["ext4", "xfs"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name a file system that can be made here."""
    name = str(request.param)
    reason = why_not() or (None if name in kinds() else f"mkfs.{name} is not installed")
    demand(f"disks that fail, {name}", reason)
    return name


@pytest.fixture
def scene(kind: str) -> Iterator[Scene]:
    with four_disks(kind) as scene:
        yield scene


def strike(scene: Scene, fault: Fault) -> bool:
    """Load, strike, look, mend, reopen, check; tells whether the others kept their latency."""
    worker = scene.worker
    before = worker.wait_for_appends("before", [SICK, *scene.others], 20)
    fault.strike(scene)
    worker.ask("phase", "struck")
    worker.wait_for_state("offline")
    during = worker.wait_for_appends("during", scene.others, 20)
    scene.check_others(before, during)
    assert set(during[SICK]["refused"]) == {"LogDirOfflineError"}
    assert during[SICK]["count"] == 0
    state = worker.state()
    assert fault.reason in state["reason"], state
    assert worker.ask("metrics")["OfflineLogDirectoryCount"] == 1
    assert worker.ask("metrics")["OfflineReplicaCount"] == 2
    worker.wait_for(lambda: not worker.ask("held", str(scene.sick.mount)), "let go of the disk")
    fault.mend(scene)
    scene.reopen()
    worker = scene.worker
    assert worker.state()["state"] == "online"
    assert worker.ask("metrics")["OfflineReplicaCount"] == 0
    worker.wait_for_appends("after", [SICK, *scene.others], 20)
    return scene.is_quiet(before, during)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_disk_dies_and_comes_back(kind: str, fault: Fault) -> None:
    """Offline with its reason; the others serve; reopened it is whole."""
    for _ in range(ATTEMPTS):
        with four_disks(kind) as scene:
            scene.start(segment_bytes=64 << 10)
            is_quiet = strike(scene, fault)
            scene.check_nothing_lost(was_cut=fault.was_cut)
            assert scene.worker.ask("close") == []
        if is_quiet or not IS_FULL:
            return
    raise AssertionError(f"the other disks stalled or were slow in {ATTEMPTS} attempts")


@pytest.mark.timeout(300)
def test_a_disk_is_full_and_has_room_again(scene: Scene) -> None:
    """Read-only, retriable, back by itself; nothing that was acknowledged is lost."""
    scene.start(segment_bytes=64 << 10)
    worker = scene.worker
    before = worker.wait_for_appends("before", [SICK, *scene.others], 20)
    fill(scene)
    worker.ask("phase", "struck")
    worker.wait_for_state("read-only")
    during = worker.wait_for_appends("during", scene.others, 20)
    scene.check_others(before, during)
    assert set(during[SICK]["refused"]) == {"LogDirFullError"}
    assert worker.ask("metrics")["OfflineLogDirectoryCount"] == 0
    empty(scene)
    worker.wait_for_state("online")
    worker.wait_for_appends("after", [SICK, *scene.others], 20)
    scene.check_nothing_lost(was_cut=False)
    assert worker.ask("close") == []


@pytest.mark.timeout(300)
def test_a_disk_hangs_and_is_released(scene: Scene) -> None:
    """Twelve writers wait for it; they are told, the others go on, and all is whole afterwards."""
    scene.start(threads=[12, 2, 2, 2], shared=2, suspect_ms=SUSPECT_MS)
    worker = scene.worker
    before = worker.wait_for_appends("before", [SICK, *scene.others], 20)
    scene.sick.freeze()
    worker.ask("phase", "struck")
    worker.wait_for_state("suspect")
    during = worker.wait_for_appends("during", scene.others, 20, seconds=HANG_SECONDS)
    scene.check_others(before, during)
    worker.wait_for(
        lambda: sum(worker.ask("figures", "during")[SICK]["refused"].values()) >= 10,
        "ten of the twelve told, while two hang in the disk",
    )
    assert set(worker.ask("figures", "during")[SICK]["refused"]) == {"LogDirSuspectError"}
    if IS_FULL:
        assert max(during[SICK]["refused_ms_max"].values()) <= 1000
    scene.sick.thaw()
    worker.wait_for_state("online")
    worker.wait_for_appends("after", [SICK, *scene.others], 20)
    scene.check_nothing_lost(was_cut=False)
    assert worker.ask("close") == []
    if IS_FULL:
        assert scene.is_quiet(before, during), (before, during)


@pytest.mark.timeout(300)
def test_a_pool_of_service_threads_outlives_a_hung_disk(scene: Scene) -> None:
    """Sixteen threads serve all disks; one that hangs swallows none of them."""
    scene.start(threads=[3, 3, 3, 3], pool=16, suspect_ms=SUSPECT_MS)
    worker = scene.worker
    worker.wait_for_appends("before", [SICK, *scene.others], 20)
    scene.sick.freeze()
    worker.ask("phase", "struck")
    worker.wait_for_state("suspect")
    worker.ask("phase", "during")

    def is_served() -> bool:
        figures = worker.ask("figures", "during")
        return all(figures[place]["served"] >= 100 for place in scene.others)

    worker.wait_for(is_served, "served by the pool while a disk hangs")
    figures = worker.ask("figures", "during")
    assert all(figures[place]["refused"] == {} for place in scene.others)
    assert "LogDirSuspectError" in figures[SICK]["refused"]
    scene.sick.thaw()
    worker.wait_for_state("online")
    scene.check_nothing_lost(was_cut=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["unmounted", "swapped"])
def test_disks_are_not_where_they_were_at_the_start(scene: Scene, how: str) -> None:
    """A disk that is missing is offline by name; two that changed places are known by their ids."""
    scene.start()
    scene.worker.wait_for_appends("before", [SICK, *scene.others], 20)
    scene.worker.ask("stop")
    scene.worker.ask("close")
    scene.worker.end()
    first, second = scene.disks[:2]
    if how == "unmounted":
        first.unmount()
    else:
        swap(first, second)
    scene.start(first=1_000_000)
    if how == "unmounted":
        state = scene.worker.state()
        assert state["state"] == "offline" and "mount the disk" in state["reason"]
        assert not any(first.mount.iterdir()), "something was written into an empty mount point"
        during = scene.worker.wait_for_appends("during", scene.others, 20)
        assert set(during[SICK]["refused"]) == {"LogDirOfflineError"}
        assert scene.worker.ask("metrics")["OfflineLogDirectoryCount"] == 1
        first.mount_at(first.mount)
        scene.reopen()
    scene.worker.wait_for_appends("after", [SICK, *scene.others], 20)
    scene.check_nothing_lost(was_cut=False)
