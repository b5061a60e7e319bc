"""Read one piece in a task: as far as possible from a local replica, then by Fetch.

    LocalReading 0..4711  ->  LeaderReading 4711..5000

The second reading begins after the last batch of the first reading, and ends where the piece ends.
So each record is read once, even if the files change.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cluster.spark.leader_reading import LeaderReading
from cluster.spark.local_replica import LocalReading
from cluster.spark.pieces import ClusterPiece
from logstore.spark.options import ReadOptions
from logstore.spark.read.views import settle_in

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger("logstore")


def read_piece(piece: ClusterPiece, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a piece as Arrow batches. Every batch is verified.

    Raises:
        LogStoreError: the records cannot be read here, and cannot be read from the leader.
    """
    from logstore.spark.read.columns import FETCHED, LOCAL, ArrowColumns

    settle_in()
    name = piece.topic, piece.partition, options.columns
    local = LocalReading(piece, options)
    yield from ArrowColumns(*name, LOCAL).stream(local.batches())
    if local.offset >= piece.end:
        return
    LOG.info(
        "%s: offsets %d..%d of %d..%d are fetched (on host %s)",
        piece.key, local.offset, piece.end, piece.start, piece.end, socket.gethostname(),
    )  # fmt: skip
    fetched = LeaderReading(piece, options, local.offset)
    yield from ArrowColumns(*name, FETCHED).stream(fetched.batches())


__all__ = ["read_piece"]
