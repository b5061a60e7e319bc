"""Read and write the catalog of a log dir: which replica is in which directory of the store.

    replica-catalog                 text, one line an entry, appended to
    <16 hex> <version>              the first line; 16 hex digits: xxh3-64 of the rest of the line
    <16 hex> <sequence> <directory id, or -> <partition> <topic>

Of the lines about one replica the highest sequence counts; `-` means that it was deleted. Every log
dir carries the entries of the whole store, in the same bytes unless a dir was missing, so that a
start reads them once. It is a hint: the directories are right.
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
    """The directory of a replica, and how recent that entry is."""

    sequence: int
    directory_id: str


class CatalogFile(NamedTuple):
    """The contents of a catalog.

    Attributes:
        is_whole: every line's checksum holds; if not, the file is to be rewritten.
        is_torn: only its end is not whole, as a crash during an append leaves it; no damage.
    """

    places: dict[TopicPartition, Place]
    line_count: int
    is_whole: bool
    is_torn: bool = False


def _line(text: str) -> bytes:
    data = text.encode()
    return b"%016x %s\n" % (xxhash.xxh3_64_intdigest(data), data)


def line_of(key: TopicPartition, place: Place) -> bytes:
    """Write one entry as its line."""
    return _line(f"{place.sequence} {place.directory_id} {key.partition} {key.topic}")


def encode_catalog(places: Mapping[TopicPartition, Place]) -> bytes:
    """Write a whole catalog; the same entries give the same bytes."""
    lines = [_line(str(VERSION))]
    lines += [line_of(key, place) for key, place in sorted(places.items())]
    return b"".join(lines)


def decode_catalog(data: bytes, turn: Callable[[], object] = lambda: None) -> CatalogFile:
    """Read a catalog as far as its lines are valid; a catalog of a later version gives nothing.

    Args:
        turn: called after each hundred lines, to let other threads run.
    """
    digest = xxhash.xxh3_64_intdigest
    places: dict[TopicPartition, Place] = {}
    lines = data.split(b"\n")
    is_end_whole = lines.pop() == b""
    if not lines or lines[0] + b"\n" != _line(str(VERSION)):
        return CatalogFile({}, 0, is_whole=False)
    is_damaged = is_torn = False  # a line that is not whole was seen, and no whole one after it
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
    """Read the bytes of a catalog; None if there is none, no bytes if it is no catalog.

    Raises OSError.
    """
    try:
        return files.read_file(os.path.join(dir_path, CATALOG_NAME), files.LIST_BYTES_MAX)
    except FileNotFoundError:
        return None
    except files.UnfitError:
        return b""


def append_catalog(dir_path: str, lines: Iterable[bytes]) -> None:
    """Append entries, durably; raises OSError."""
    fd = files.open_regular(os.path.join(dir_path, CATALOG_NAME), files.READ_WRITE)
    try:
        files.write_fully(fd, [b"".join(lines)], files.fstat(fd).st_size)
        files.sync_data(fd)
    finally:
        files.close(fd)


def write_catalog(
    dir_path: str, places: Mapping[TopicPartition, Place], guard: files.Guard = nullcontext
) -> None:
    """Replace a catalog durably; raises OSError."""
    files.write_atomically(os.path.join(dir_path, CATALOG_NAME), encode_catalog(places), guard)
