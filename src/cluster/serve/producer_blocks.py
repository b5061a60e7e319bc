"""Take blocks of producer ids from the coordination store, so that each id is used only once.

    /latest_producer_id_block    {"version":1,"broker":2,"block_start":"5000","block_end":"5999"}

The znode has the last block. The path and the JSON of the znode are the same as in Kafka.
"""

from __future__ import annotations

import json

from broker.catalog.producer_ids import BLOCK_IDS, EMBEDDED_IDS
from broker.coordination.errors import (
    BadVersionError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
)
from broker.coordination.verbs import Session, Znode
from cluster.errors import BadZnodeError
from cluster.znode_document import ZnodeDocument
from logstore import LogStoreError

PATH = "/latest_producer_id_block"
TRIES = 50


class ProducerBlocks:
    """Take blocks for one broker. Any thread may call `claim`."""

    def __init__(self, session: Session, broker: int) -> None:
        self._session, self._broker = session, broker

    def claim(self, first: int) -> range:
        """Take the next block. All ids of the block are at or above `first`.

        Raises:
            LogStoreError: the coordination store does not answer, or the znode cannot be read.
        """
        try:
            for _ in range(TRIES):
                found = self._claim_once(first)
                if found is not None:
                    return found
        except CoordinationError as error:
            raise LogStoreError(f"no block of producer ids can be taken: {error}") from error
        raise LogStoreError(
            "other brokers took a block of producer ids during each attempt; try again"
        )

    def _claim_once(self, first: int) -> range | None:
        """Take a block; return None if another broker was faster.

        If the answer of the store is lost, no broker uses the ids of this block.
        """
        try:
            znode: Znode | None = self._session.get(PATH)
        except NoNodeError:
            znode = None
        begin = max(first, 0 if znode is None else end_of(znode.data))
        block = range(begin, begin + BLOCK_IDS)
        if block.stop > EMBEDDED_IDS:
            raise BadZnodeError(path=PATH, reason="all producer ids are given")
        try:
            if znode is None:
                self._session.create(PATH, self._document(block))
            else:
                self._session.set(PATH, self._document(block), version=znode.version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            return None
        return block

    def _document(self, block: range) -> bytes:
        document = {
            "version": 1,
            "broker": self._broker,
            "block_start": str(block.start),
            "block_end": str(block.stop - 1),
        }
        return json.dumps(document, separators=(",", ":")).encode()


def end_of(data: bytes) -> int:
    """Read the first id after the last block.

    Raises:
        BadZnodeError: the znode cannot be read, so it is not known which ids are free.
    """
    text = ZnodeDocument(data, PATH).text("block_end")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadZnodeError(path=PATH, reason=f"block_end is {text[:40]!r}")
    return int(text) + 1
