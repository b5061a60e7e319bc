"""Read and write the catalog of a log dir: which replica of the store is in which log dir.

    replica-catalog                 text; each change appends a line
    <16 hex> <version>              the first line; 16 hex digits: xxh3-64 of the rest of the line
    <16 hex> <sequence> <directory id, or -> <partition> <topic>

If several lines name the same replica, the line with the highest sequence is used. `-` means that
the replica was deleted. The catalog of every log dir has the entries of the whole store. If no dir
was missing, the catalogs of all log dirs have the same bytes, so a start decodes these bytes only
once. The catalog is a hint: if it disagrees with the directories of the replicas, the catalog is
wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import NamedTuple

import xxhash

from logstore.disk import files
from logstore.names import TopicPartition

CATALOG_NAME = "replica-catalog"
VERSION = 1
DELETED = "-"


class Place(NamedTuple):
    """The id of the log dir that has a replica, and a number that orders the entries by time."""

    sequence: int
    directory_id: str


class CatalogFile(NamedTuple):
    """The contents of a catalog.

    Attributes:
        is_whole: every line has a correct checksum. False means that the file must be rewritten.
        is_torn: only the end of the file is incomplete. A crash during an append can leave an
            incomplete end. So an incomplete end does not count as damage.
    """

    places: dict[TopicPartition, Place]
    line_count: int
    is_whole: bool
    is_torn: bool = False


def _line(text: str) -> bytes:
    data = text.encode()
    return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(data), data)


def line_of(key: TopicPartition, place: Place) -> bytes:
    """Encode one entry as a line."""
    return _line(f"{place.sequence} {place.directory_id} {key.partition} {key.topic}")


def encode_catalog(places: Mapping[TopicPartition, Place]) -> bytes:
    """Encode a whole catalog; the same entries always give the same bytes."""
    lines = [_line(str(VERSION))]
    lines += [line_of(key, place) for key, place in sorted(places.items())]
    return b"".join(lines)


def decode_catalog(data: bytes, turn: Callable[[], object] = lambda: None) -> CatalogFile:
    """Decode the valid lines of a catalog; return no entries for a catalog of a later version.

    Args:
        turn: a function that is called after every hundred lines, so that other threads can run.
    """
    digest = xxhash.xxh3_64_intdigest
    places: dict[TopicPartition, Place] = {}
    lines = data.split(b"\n")
    is_end_whole = lines.pop() == b""
    if not lines or lines[0] + b"\n" != _line(str(VERSION)):
        return CatalogFile({}, 0, is_whole=False)
    # is_torn: an invalid line was seen. is_damaged: a valid line followed an invalid line.
    is_damaged = is_torn = False
    for number, line in enumerate(lines[1:], 1):
        if number % 100 == 0:
            turn()
        text = line[17:]
        try:
            if line[:17] != b"%016x " % digest(text):
                raise ValueError
            sequence, directory_id, partition, topic = text.decode().split(" ")
            key, place = TopicPartition(topic, int(partition)), Place(int(sequence), directory_id)
        except ValueError:
            is_torn = True
            continue
        is_damaged |= is_torn
        known = places.get(key)
        if known is None or known.sequence <= place.sequence:
            places[key] = place
    is_torn |= not is_end_whole
    is_whole = not (is_damaged or is_torn)
    return CatalogFile(places, len(lines), is_whole, is_torn=not (is_whole or is_damaged))


def read_catalog(dir_path: str) -> bytes | None:
    """Read the bytes of a catalog; return None if the file is missing.

    Return b"" if the file is too large or is not a regular file. Raises OSError.
    """
    try:
        return files.read_file(os.path.join(dir_path, CATALOG_NAME), files.LIST_BYTES_MAX)
    except FileNotFoundError:
        return None
    except files.UnfitError:
        return b""


def append_catalog(dir_path: str, lines: Iterable[bytes]) -> None:
    """Append entries, durably. Raises OSError."""
    fd = files.open_regular(os.path.join(dir_path, CATALOG_NAME), files.READ_WRITE)
    try:
        files.write_fully(fd, [b"".join(lines)], files.fstat(fd).st_size)
        files.sync_data(fd)
    finally:
        files.close(fd)


def write_catalog(
    dir_path: str, places: Mapping[TopicPartition, Place], guard: files.Guard = nullcontext
) -> None:
    """Replace a catalog durably. Raises OSError."""
    files.write_atomically(os.path.join(dir_path, CATALOG_NAME), encode_catalog(places), guard)
