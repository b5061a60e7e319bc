"""List the layouts to compare: one disk, JBOD, RAID by btrfs profiles, one process per disk."""

from __future__ import annotations

from typing import NamedTuple


class Spec(NamedTuple):
    """Define a layout.

    Attributes:
        profile: the btrfs profile of a file system over all disks. If it is empty, each disk has
            its own file system.
        is_process_per_disk: whether each disk has its own process and store.
    """

    name: str
    fs: str
    disks: int
    profile: str = ""
    is_process_per_disk: bool = False
    note: str = ""


def _jbod(fs: str) -> list[Spec]:
    return [Spec(f"jbod{disks}-{fs}", fs, disks) for disks in (2, 4, 8)]


def _raid(profile: str, note: str = "") -> Spec:
    return Spec(f"{profile}-btrfs", "btrfs", 4, profile, note=note)


LAYOUTS = (
    Spec("single-ext4", "ext4", 1),
    Spec("single-xfs", "xfs", 1),
    *_jbod("ext4"),
    *_jbod("xfs"),
    _raid("raid0"),
    _raid("raid1", "two copies of everything, over four disks"),
    _raid("raid10"),
    _raid("raid5", "btrfs calls this profile unstable; used here for its speed only"),
    _raid("raid6", "btrfs calls this profile unstable; used here for its speed only"),
    Spec("jbod4-ext4-processes", "ext4", 4, "", True, "one process and one store per disk"),
)
BY_NAME = {spec.name: spec for spec in LAYOUTS}
