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
SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")  # the name has offset and leader epoch
SNAPSHOT_BYTES_MAX = 256 << 20


def has_log(log_dir: str) -> bool:
    """Check whether a log dir has a metadata log; raises OSError."""
    return files.exists(os.path.join(log_dir, DIR_NAME))


def read_image(log_dir: str) -> Image:
    """Read the newest snapshot of a metadata log, and then the records after it.

    Records also count if a controller began their change and did not end it. If a broker was
    stopped, its log has no such records.

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
    data = files.read_file(path, SNAPSHOT_BYTES_MAX)
    for span in walk(data):
        reason = layouts.fault(data, span.position, None)
        if reason is not None:
            raise CorruptionError(path=path, position=span.position, reason=str(reason))
        header = layouts.read_header(data, span.position)
        if is_control(header):
            continue
        for value in layouts.layout_at(data, span.position).decode(data, span.position).values:
            image.take(value or b"")
