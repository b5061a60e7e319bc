"""Read one piece in a task: from a replica on this machine as far as possible, then by Fetch.

    LocalReading 0..4711  ->  LeaderReading 4711..5000

Both end at the same offset, and the second begins after the last batch of the first. So each record
is read once, whatever happens to the files.
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
    """Yield a piece's records as Arrow batches; every batch is verified.

    Raises:
        LogStoreError: the records can be read neither here nor from the leader.
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
