"""List the files in a partition directory, and report files that do not belong there."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from logstore.disk import files
from logstore.format import producer_file
from logstore.log import epochs, metadata
from logstore.names import parse_segment_file_name

SMALL_FILES = (metadata.FILE_NAME, epochs.FILE_NAME)
SUFFIXES = (".log", ".index", ".timeindex")
# The suffixes of a segment that compaction writes (see `compaction/replacement`).
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


class SegmentFiles(NamedTuple):
    """The sizes of one segment's files, or -1 for a missing file.

    Attributes:
        inode, mtime_ns: the inode and the modification time of the `.log`. If another file replaces
            the `.log`, the inode, the modification time or the size changes.
    """

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int
    inode: int
    mtime_ns: int


class Listing(NamedTuple):
    """The contents of a partition directory.

    Attributes:
        segments: the segments with a `.log`, in order of their base offsets.
        orphans: segments with an index file, but without a `.log`.
        temporary: names of files that a crash left incomplete.
        swaps: base offsets of the `.swap` files that an interrupted compaction left.
        snapshots: the offsets of the `.producers` files, in ascending order.
        warnings: one sentence for each file that does not belong in the directory.
    """

    segments: list[SegmentFiles]
    orphans: list[SegmentFiles]
    temporary: list[str]
    swaps: list[int]
    snapshots: list[int]
    warnings: list[str]


def check_is_file(directory: str, entry: files.Entry) -> None:
    """Raise UnfitError if an entry has the name of a segment, but is not a regular file.

    The records of a segment that is not a regular file are unknown. If the log were opened without
    the segment, its records would count as lost, or other records would get their offsets.
    """
    if not entry.is_file:
        what = (
            f"a {entry.kind} has the name of a segment: move it to another place, and put the "
            "segment's file back"
        )
        raise files.UnfitError(errno.EINVAL, what, os.path.join(directory, entry.name))


def list_partition(directory: str) -> Listing:
    """List the files in a partition directory.

    Raises:
        UnfitError: a directory, a symlink or a special file has the name of a segment.
        OSError: the disk failed.
    """
    sizes: dict[int, dict[str, int]] = {}
    identities: dict[int, tuple[int, int]] = {}
    temporary: list[str] = []
    swaps: list[int] = []
    snapshots: list[int] = []
    warnings: list[str] = []
    for entry in files.entries(directory):
        if entry.is_file and entry.name in SMALL_FILES:
            continue
        parsed = parse_segment_file_name(entry.name)
        if parsed is not None and parsed[1] == SUFFIXES[0]:
            check_is_file(directory, entry)
        if parsed is not None and parsed[1] in SUFFIXES and entry.is_file:
            sizes.setdefault(parsed[0], {})[parsed[1]] = entry.size_bytes
            if parsed[1] == SUFFIXES[0]:
                identities[parsed[0]] = (entry.inode, entry.mtime_ns)
        elif entry.is_file and entry.name.endswith((".tmp", CLEANED_SUFFIX)):
            temporary.append(entry.name)
        elif entry.is_file and (base_offset := _swap_of(entry.name)) is not None:
            swaps.append(base_offset)
        elif entry.is_file and (offset := producer_file.offset_of(entry.name)) is not None:
            snapshots.append(offset)
        elif entry.is_file and entry.name.endswith(".quarantine"):
            warnings.append(
                f"{entry.name}: a repair kept this file of damaged bytes; the file is not read"
            )
        else:
            warnings.append(
                f"{entry.name}: this {entry.kind} does not belong here; it was not changed"
            )
    whole: list[SegmentFiles] = []
    orphans: list[SegmentFiles] = []
    for base_offset in sorted(sizes):
        found = sizes[base_offset]
        row = SegmentFiles(
            base_offset,
            found.get(".log", -1),
            found.get(".index", -1),
            found.get(".timeindex", -1),
            *identities.get(base_offset, (0, 0)),
        )
        (whole if row.log_bytes >= 0 else orphans).append(row)
    return Listing(
        whole, orphans, sorted(temporary), sorted(swaps), sorted(snapshots), sorted(warnings)
    )


def _swap_of(name: str) -> int | None:
    """Return the base offset in the name of a `.swap` file; return None for any other name."""
    parsed = parse_segment_file_name(name.removesuffix(SWAP_SUFFIX))
    is_swap = name.endswith(SWAP_SUFFIX) and parsed is not None and parsed[1] == SUFFIXES[0]
    return parsed[0] if is_swap and parsed is not None else None
