"""Put the directories of a closed store into the states that a move leaves, step by step.

The steps are those of docs/FORMAT.md: the live copy names the move, a `.move` is built, marked as
caught up, the source is renamed, the target is renamed. A test stops after any of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from logstore.disk.documents.meta_properties import decode_meta
from logstore.log.metadata import (
    CAUGHT_UP,
    COPYING,
    MoveRecord,
    Moving,
    PartitionMetadata,
    Superseded,
)
from logstore.names import delete_dir_name, dir_name, move_dir_name

MOVE_ID = "0123456789abcdef" * 2


def directory_id_of(log_dir: Path) -> str:
    """Read the directory id of a log dir."""
    path = log_dir / "meta.properties"
    return decode_meta(path.read_bytes(), str(path)).directory_id


def metadata_of(directory: Path) -> PartitionMetadata:
    """Read the metadata of a replica."""
    metadata = PartitionMetadata.read(str(directory))
    assert metadata is not None
    return metadata


class StagedMove:
    """One move of a replica from one log dir of a closed store to another."""

    def __init__(
        self, source: Path, target: Path, topic: str, partition: int, end_offset: int
    ) -> None:
        self.source, self.target = source, target
        self.topic, self.partition, self.end_offset = topic, partition, end_offset
        self.live = source / dir_name(topic, partition)
        self.move = target / move_dir_name(topic, partition, MOVE_ID)
        self.new_live = target / dir_name(topic, partition)
        self.delete = source / delete_dir_name(topic, partition, MOVE_ID)

    def name(self) -> StagedMove:
        """Note in the live copy which move builds another."""
        moving = Moving(MOVE_ID, directory_id_of(self.target))
        metadata_of(self.live)._replace(moving=moving).write(str(self.live))
        return self

    def copy(self) -> StagedMove:
        """Copy every file of the live copy; its metadata says that it is a copy under way."""
        shutil.copytree(self.live, self.move)
        self._mark(COPYING)
        return self

    def catch_up(self) -> StagedMove:
        """Mark the copy as caught up, and note in the source what is to take its place."""
        self._mark(CAUGHT_UP)
        live = metadata_of(self.live)
        superseded = Superseded(live.generation + 1, directory_id_of(self.target))
        live.with_superseded_by(superseded).write(str(self.live))
        return self

    def _mark(self, state: str) -> None:
        live = metadata_of(self.live)
        record = MoveRecord(MOVE_ID, directory_id_of(self.source), state, self.end_offset)
        metadata = live.with_superseded_by(None)._replace(moving=None)
        metadata._replace(generation=live.generation + 1).with_move_record(record).write(
            str(self.move)
        )

    def rename_source(self) -> StagedMove:
        """Do the first rename of the swap."""
        self.live.rename(self.delete)
        return self

    def rename_target(self) -> StagedMove:
        """Do the second rename of the swap."""
        self.move.rename(self.new_live)
        return self
