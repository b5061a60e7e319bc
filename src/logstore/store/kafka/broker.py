"""Use the metadata log (KIP-858) to find a broker's log dirs that the user did not pass.

A broker in KRaft mode registers the ids of all its log dirs. If one of the passed dirs contains the
cluster's metadata log, the broker's last registration in that log lists the ids of all its log
dirs. If the log does not contain the registration any more, the latest snapshot of the log contains
the registration.
"""

from __future__ import annotations

import base64
import os
import re
import struct
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.errors import LogStoreError
from logstore.format import layouts
from logstore.format.kafka.varints import varint
from logstore.format.prefix import walk
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.store.partitions import Partitions

METADATA_TOPIC = TopicPartition("__cluster_metadata", 0)
REGISTER_BROKER, FRAME_VERSION, LOG_DIRS_VERSION, LOG_DIRS_TAG = 0, 1, 3, 0
RESERVED_IDS_MAX = 100
SNAPSHOT_BYTES_MAX = 256 << 20
SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")  # the name has offset and leader epoch


def missing_dirs(partitions: Partitions, given: Collection[str], node_id: str) -> list[str]:
    """Return a warning for each registered log dir of a broker if the user did not pass it."""
    if METADATA_TOPIC not in partitions:
        return []
    registered: list[str] = []
    try:
        log = partitions.log(*METADATA_TOPIC)
        for batch in log.read_batches():
            for value in batch.values.to_list():
                registered = registered_dirs(value or b"", node_id) or registered
        for value in [] if registered else _snapshot(log.directory):
            registered = registered_dirs(value or b"", node_id) or registered
    except (LogStoreError, ValueError, OSError) as error:
        return [f"the cluster's metadata log cannot be read: {error}"]
    return [
        f"log dir {id_} of the broker was not passed: its partitions are not read"
        for id_ in registered
        if id_ not in given
    ]


def _snapshot(directory: str) -> Iterator[bytes | None]:
    """Iterate over the records in the metadata log's latest snapshot, up to the first damage."""
    names = [entry.name for entry in files.entries(directory) if SNAPSHOT.fullmatch(entry.name)]
    data = (
        files.read_file(os.path.join(directory, max(names)), SNAPSHOT_BYTES_MAX) if names else b""
    )
    for span in walk(data):
        if layouts.fault(data, span.position, None) is not None:
            return
        yield from layouts.layout_at(data, span.position).decode(data, span.position).values


def registered_dirs(value: bytes, node_id: str) -> list[str]:
    """Read the log dir ids in a registration of this broker; return [] for any other record."""
    try:
        reader = Reader(value)
        frame, kind, version = reader.unsigned(), reader.unsigned(), reader.unsigned()
        if (frame, kind) != (FRAME_VERSION, REGISTER_BROKER) or version < LOG_DIRS_VERSION:
            return []
        broker_id = reader.position
        reader.skip(4 + 1 + 16 + 8)  # the fields BrokerId to BrokerEpoch
        if str(int.from_bytes(value[broker_id : broker_id + 4], "big")) != node_id:
            return []
        for _ in range(reader.count()):
            reader.text()
            reader.text()
            reader.skip(2 + 2)
            reader.tags()
        for _ in range(reader.count()):
            reader.text()
            reader.skip(2 + 2)
            reader.tags()
        reader.text()  # rack
        reader.skip(1 + 1)  # the fields Fenced and InControlledShutdown
        found = reader.tags().get(LOG_DIRS_TAG, b"")
    except (ValueError, IndexError, struct.error):
        return []
    ids = found[1:]
    return [
        base64.urlsafe_b64encode(ids[at : at + 16]).decode().rstrip("=")
        for at in range(0, len(ids) // 16 * 16, 16)
        if int.from_bytes(ids[at : at + 16], "big") >= RESERVED_IDS_MAX
    ]


class Reader:
    """Reads the fields of a flexible record (KIP-482) one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def unsigned(self) -> int:
        """Read an unsigned varint."""
        number, self.position = varint(self.data, self.position)
        return number * 2 if number >= 0 else -number * 2 - 1

    def skip(self, size_bytes: int) -> None:
        """Step over a field."""
        if not 0 <= size_bytes <= len(self.data) - self.position:
            raise ValueError("a field ends after the end of its record")
        self.position += size_bytes

    def count(self) -> int:
        """Read how many items an array has."""
        return self.unsigned() - 1

    def text(self) -> None:
        """Step over a string, which may be null."""
        self.skip(max(self.unsigned() - 1, 0))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a structure."""
        found = {}
        for _ in range(self.unsigned()):
            tag, size = self.unsigned(), self.unsigned()
            start = self.position
            self.skip(size)
            found[tag] = self.data[start : self.position]
        return found
