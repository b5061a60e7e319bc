"""Hold the disks of the layouts to this: whatever happens, nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.layouts import interrupts
from benchmarks.layouts.disks import (
    MEMORY,
    PREFIX,
    THROTTLES,
    devices_below,
    mounted,
    mounts_below,
    process_name,
    sweep,
    what_is_missing,
)
from support.layers import demand
from support.loop_disk import why_not
from support.places import environment

IMAGE_BYTES = 16 << 20
RATE = 50_000_123  # as nobody else has

# A run that is interrupted where it stands, after it has said which of its devices are throttled.
RUN = f"""
import sys
from benchmarks.layouts import interrupts
from benchmarks.layouts.disks import mounted
interrupts.obey()
with mounted("ext4", 2, {RATE}, image_bytes={IMAGE_BYTES}) as (devices, places):
    (places[1] / "file").write_bytes(b"data")
    print(*[device.path for device in devices], flush=True)
    sys.stdin.readline()
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def needed() -> None:
    """Ask for what such disks need."""
    only = [text for text in what_is_missing() if "btrfs" not in text and "xfs" not in text]
    demand("disks of layouts", why_not() or (only[0] if only else None))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start runs; all are ended afterwards, and swept."""
    children: list[subprocess.Popen[str]] = []

    def popen() -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", RUN],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(),
        )  # fmt: skip
        children.append(child)
        return child

    yield popen
    for child in children:
        child.kill()
        child.communicate()
    sweep()


def base_of(child: subprocess.Popen[str]) -> Path:
    """Give the directory below which a run's disks stand."""
    return MEMORY / f"{PREFIX}{process_name(child.pid)}"


def throttled() -> str:
    """Give the devices that are held to a rate."""
    return (THROTTLES / "blkio.throttle.write_bps_device").read_text()


def number_of(device: str) -> str:
    """Give a device's number as the throttles name it."""
    number = os.stat(device).st_rdev
    return f"{os.major(number)}:{os.minor(number)} {RATE}\n"


def assert_nothing_left(base: Path, devices: list[str]) -> None:
    """Look for mounts, devices, the directory and the throttles of a run."""
    assert not mounts_below(base)
    assert not devices_below(base)
    assert not base.exists()
    for device in devices:
        assert number_of(device) not in throttled()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_undoes_its_disks(number: signal.Signals, start: Start) -> None:
    """Throttles, mounts, devices and memory are gone when it has ended."""
    child = start()
    assert child.stdout is not None
    devices = child.stdout.readline().split()
    base = base_of(child)
    assert len(devices) == len(devices_below(base)) == 2
    assert len(mounts_below(base)) == 4
    assert all(number_of(device) in throttled() for device in devices)
    child.send_signal(number)
    child.communicate()
    assert child.returncode != 0
    assert_nothing_left(base, devices)


def test_what_a_killed_run_left_is_undone_by_the_next(start: Start) -> None:
    """The next run finds it by the name of a process that has ended; a living one's is kept."""
    killed, living = start(), start()
    assert killed.stdout is not None and living.stdout is not None
    devices, kept = killed.stdout.readline().split(), living.stdout.readline().split()
    base, other = base_of(killed), base_of(living)
    killed.kill()
    killed.wait()
    assert len(devices_below(base)) == 2
    assert base.name in sweep()
    assert_nothing_left(base, devices)
    assert base.name not in sweep()
    assert sorted(devices_below(other)) == sorted(kept)
    living.communicate("\n")
    assert living.returncode == 0
    assert_nothing_left(other, kept)


def test_an_error_while_disks_are_made_undoes_them() -> None:
    """What was made until then is gone again."""
    with pytest.raises(OSError, match=r"mkfs\.ext4"), mounted("ext4", 2, RATE, image_bytes=4096):
        raise AssertionError("an image of 4 KiB became a disk")
    assert_nothing_left(MEMORY / f"{PREFIX}{process_name(os.getpid())}", [])


def test_a_process_is_known_by_its_start() -> None:
    """A number alone would be another process's some day; one that has ended has no name."""
    name = process_name(os.getpid())
    assert name.startswith(f"{os.getpid()}-") and name == process_name(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert process_name(child.pid) == ""


def test_interrupts_wait_while_disks_are_undone() -> None:
    """One that comes meanwhile is raised behind the block."""
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.held_back():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        done.append("undone")
    assert done == ["undone"]
