"""Read the metadata log of a Kafka cluster from the directory of a controller or a broker."""

from __future__ import annotations

import os
import re

from broker.hands.kraft_image import Image
from broker.wire.byte_cursor import WireError
from logstore import CorruptionError, LogStore, LogStoreError
from logstore.disk import files
from logstore.format import layouts
from logstore.format.prefix import walk
from logstore.format.subsets import is_control

TOPIC, DIR_NAME = "__cluster_metadata", "__cluster_metadata-0"
# the file name has the offset and the leader epoch
SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")
SNAPSHOT_BYTES_MAX = 256 << 20
FOOTER_TYPE = 4  # the type of the control record that ends each snapshot (KIP-630)


def has_log(log_dir: str) -> bool:
    """Check whether a log dir has a metadata log. Raises OSError."""
    return files.exists(os.path.join(log_dir, DIR_NAME))


def read_image(log_dir: str) -> Image:
    """Read the newest snapshot of a metadata log, and then the records after it.

    This function ignores the transactions of controllers (KIP-868), so the records of an unfinished
    transaction are used, too. Kafka uses such transactions only to form or migrate a cluster.

    Raises:
        LogStoreError: the metadata log cannot be read.
        OSError: the disk failed.
    """
    image = Image()
    directory = os.path.join(log_dir, DIR_NAME)
    found = [match for name in files.names(directory) if (match := SNAPSHOT.fullmatch(name))]
    newest = max(found, key=lambda match: match[0], default=None)
    try:
        if newest is not None:
            _take_snapshot(image, os.path.join(directory, newest[0]))
        with LogStore.open_kafka([log_dir]) as store:
            log = store.log(TOPIC, 0)
            first = int(newest[1]) if newest is not None else log.log_start_offset
            if first < log.log_start_offset:
                raise LogStoreError(f"{directory}: the records after the snapshot are missing")
            if first < log.log_end_offset:
                for batch in log.read_batches(first):
                    for value in batch.values.to_list():
                        image.take(value or b"")
    except WireError as error:
        raise CorruptionError(path=directory, position=0, reason=str(error)) from error
    return image


def _take_snapshot(image: Image, path: str) -> None:
    """Read a whole snapshot.

    Raises:
        CorruptionError: the file is damaged, or its end is missing.
        OSError: the disk failed.
    """
    data = files.read_file(path, SNAPSHOT_BYTES_MAX)
    end, is_complete = 0, False
    for span in walk(data):
        reason = layouts.fault(data, span.position, None)
        if reason is not None:
            raise CorruptionError(path=path, position=span.position, reason=str(reason))
        header = layouts.read_header(data, span.position)
        end = span.position + span.size_bytes
        batch = layouts.decode_all(data[span.position : end])
        is_complete = is_control(header) and any(map(_is_footer, batch.keys.to_list()))
        for value in () if is_control(header) else batch.values.to_list():
            image.take(value or b"")
    if end < len(data) or not is_complete:
        reason = "the end of the snapshot is missing, so settings and partitions may be missing"
        raise CorruptionError(path=path, position=end, reason=reason)


def _is_footer(key: bytes | None) -> bool:
    """Check whether a control record ends a snapshot; its key has a version and a type."""
    return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == FOOTER_TYPE
