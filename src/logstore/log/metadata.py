"""Keep what a partition is: its topic id, generation, configuration and log start offset.

One small checksummed file in the partition's directory (docs/FORMAT.md, section 7); it travels with
every move of the replica.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from logstore.config import LogConfig
from logstore.disk import checkpoint
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError

FILE_NAME = "partition.metadata"
VERSION = 1


class PartitionMetadata(NamedTuple):
    """Carry the contents of `partition.metadata`.

    Attributes:
        topic_id: 16 bytes, given at creation; a topic made anew under the same name has another.
        generation: grows by one with each move of the replica.
        moving: what move is under way, or None.
        extra: keys that a `.move` or `.delete` directory has besides.
    """

    topic: str
    partition: int
    topic_id: bytes
    generation: int = 0
    log_start_offset: int = 0
    config: LogConfig = LogConfig()
    moving: dict[str, Any] | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never changed in place

    def to_document(self) -> dict[str, Any]:
        """Give the JSON document of the file."""
        return {
            **self.extra,
            "version": VERSION,
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id.hex(),
            "generation": self.generation,
            "log_start_offset": self.log_start_offset,
            "config": self.config.to_dict(),
            "moving": self.moving,
        }

    def write(self, directory: str) -> None:
        """Replace the file durably; raises OSError."""
        checkpoint.write_document(os.path.join(directory, FILE_NAME), self.to_document())

    @classmethod
    def read(cls, directory: str) -> PartitionMetadata | None:
        """Read the file; None when there is none.

        Raises:
            CorruptCheckpointError: it does not check out.
            UnsupportedFormatError: a later version wrote it.
        """
        path = os.path.join(directory, FILE_NAME)
        document = checkpoint.read_document(path)
        if document is None:
            return None
        if document.get("version") != VERSION:
            raise UnsupportedFormatError(path=path, version=document.get("version"))
        known = {*cls._fields, "version"}
        try:
            return cls(
                document["topic"],
                document["partition"],
                bytes.fromhex(document["topic_id"]),
                document["generation"],
                document["log_start_offset"],
                LogConfig.from_dict(document["config"]),
                document["moving"],
                {key: value for key, value in document.items() if key not in known},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                path=path, position=0, reason=f"a field is missing or wrong: {error}"
            ) from error
