"""Read, write and remove the `.producers` files of a log (docs/FORMAT.md, section 9).

A snapshot after the end of the log is dangerous. If other records then get the offsets below the
snapshot's offset, the snapshot is wrong. So a truncation durably removes each snapshot after the
new log end before it removes a record. The opening of a log removes each snapshot after the log end
before the log can be used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.format import producer_file
from logstore.format.producer_file import Snapshot

if TYPE_CHECKING:
    from logstore.log.metadata import PartitionMetadata


def read(
    directory: str, offset: int, metadata: PartitionMetadata, warnings: list[str]
) -> Snapshot | None:
    """Read the snapshot at an offset; if it cannot be used, add a warning and return None.

    Raises:
        OSError: the disk failed.
    """
    path = path_of(directory, offset)
    try:
        data = files.read_file(path, producer_file.FILE_BYTES_MAX)
        return producer_file.decode(data, path, metadata.topic_id, metadata.partition, offset)
    except FileNotFoundError:
        return None
    except files.UnfitError as error:
        reason = error.reason
    except (CorruptCheckpointError, UnsupportedFormatError) as error:
        reason = str(error)
    warnings.append(f"{os.path.basename(path)} is not used: {reason}")
    return None


def path_of(directory: str, offset: int) -> str:
    """Give the path of the snapshot at an offset."""
    return os.path.join(directory, producer_file.name_of(offset))


def write(
    directory: str,
    snapshot: Snapshot,
    metadata: PartitionMetadata,
    guard: files.Guard = nullcontext,
) -> None:
    """Write a snapshot durably. Raises OSError, and any error that `guard` raises."""
    data = producer_file.encode(snapshot, metadata.topic_id, metadata.partition)
    files.write_atomically(path_of(directory, snapshot.offset), data, guard)


def remove(directory: str, offsets: Iterable[int]) -> None:
    """Remove snapshots; a sync of the directory makes the removal durable. Raises OSError."""
    for offset in offsets:
        files.remove_if_there(path_of(directory, offset))
