"""After a crash, finish or undo a compaction's replacement of segments.

`compaction/replacement` lists the steps of a replacement. If another crash interrupts this work,
the next opening of the log repeats the work.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.disk import files
from logstore.log.segments.listing import SWAP_SUFFIX, Listing, list_partition
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment

COMPARE_BYTES = 1 << 20


def list_settled(directory: str, warnings: list[str], check: Callable[[], None]) -> Listing:
    """Finish or undo the replacement of each `.swap` file, and list the partition's files.

    Args:
        warnings: a sentence for each replacement is added to this list.
        check: called before each change; it raises if the store has given up the log dir.

    Raises:
        OSError: the disk failed.
    """
    listing = list_partition(directory)
    for base_offset in listing.swaps:
        first = Segment(directory, base_offset)
        swap_path = first.log_path + SWAP_SUFFIX
        is_replaced = _has_bytes_of(first.log_path, swap_path)
        check()
        if is_replaced:
            end = _end_offset(first)
            followers = [one.base_offset for one in listing.segments if one.base_offset < end]
            for path in first.paths[:2]:
                files.remove_if_there(path)
            for follower in followers:
                if follower > base_offset:
                    for path in Segment(directory, follower).paths:
                        files.remove_if_there(path)
            files.sync_dir(directory)
        files.remove_if_there(swap_path)
        files.sync_dir(directory)
        what = "finished" if is_replaced else "undone"
        warnings.append(
            f"{first.log_path}: a crash interrupted a compaction of this segment; the "
            f"compaction was {what}"
        )
    return list_partition(directory) if listing.swaps else listing


def _has_bytes_of(path: str, other: str) -> bool:
    """Check whether two files have the same bytes; the two paths may lead to one file."""
    try:
        one = files.open_regular(path, files.READ)
    except FileNotFoundError:
        return False
    try:
        two = files.open_regular(other, files.READ)
        try:
            size_bytes, position = files.fstat(one).st_size, 0
            if size_bytes != files.fstat(two).st_size:
                return False
            while position < size_bytes:
                data = files.read_up_to(one, COMPARE_BYTES, position)
                if data != files.read_up_to(two, COMPARE_BYTES, position):
                    return False
                position += len(data) or COMPARE_BYTES
            return True
        finally:
            files.close(two)
    finally:
        files.close(one)


def _end_offset(segment: Segment) -> int:
    """Find the offset after the last batch of a segment; ignore damage before that batch."""
    fd = files.open_regular(segment.log_path, files.READ)
    try:
        scan, size_bytes = Scan(segment.base_offset), files.fstat(fd).st_size
        while (reason := scan.run(fd, size_bytes)) is not None:
            scan.skip_damage(fd, size_bytes, reason)
        return scan.offset
    finally:
        files.close(fd)
