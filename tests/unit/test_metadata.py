"""The metadata of a partition and of its move is read back unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.disk.documents import checkpoint
from logstore.errors import CorruptCheckpointError
from logstore.log.metadata import (
    CAUGHT_UP,
    COPYING,
    FILE_NAME,
    MoveRecord,
    Moving,
    PartitionMetadata,
    Superseded,
)

MOVE_ID, DIRECTORY_ID = "0123456789abcdef" * 2, "fedcba9876543210" * 2
PLAIN = PartitionMetadata("orders", 0, bytes(range(16)), generation=4)
RECORD = MoveRecord(MOVE_ID, DIRECTORY_ID, COPYING, 17)


def write(directory: Path, **changes: Any) -> None:
    """Write a document with some of its keys changed."""
    document = {**PLAIN.to_document(), **changes}
    (directory / FILE_NAME).write_bytes(checkpoint.encode_document(document))


@pytest.mark.parametrize(
    "metadata",
    [
        PLAIN,
        PLAIN._replace(moving=Moving(MOVE_ID, DIRECTORY_ID)),
        PLAIN.with_move_record(RECORD),
        PLAIN.with_move_record(RECORD._replace(move_state=CAUGHT_UP)),
        PLAIN.with_superseded_by(Superseded(5, DIRECTORY_ID)),
        PLAIN._replace(extra={"deletion": "user", "of a later version": [1]}),
    ],
)
def test_metadata_is_read_back(tmp_path: Path, metadata: PartitionMetadata) -> None:
    """The metadata has every mark of a move or a deletion, and unknown keys."""
    metadata.write(str(tmp_path))
    assert PartitionMetadata.read(str(tmp_path)) == metadata


def test_the_marks_of_a_move_come_and_go() -> None:
    """A mark can be set and removed, and all other keys stay."""
    kept = PLAIN._replace(extra={"kept": 1})
    moved = kept.with_move_record(RECORD).with_superseded_by(Superseded(5, DIRECTORY_ID))
    assert moved.move_record == RECORD and not RECORD.is_caught_up
    assert moved.superseded_by == Superseded(5, DIRECTORY_ID)
    assert moved.with_move_record(None).with_superseded_by(None) == kept
    assert kept.move_record is None and kept.superseded_by is None


@pytest.mark.parametrize(
    "changes",
    [
        {"moving": {"move_id": MOVE_ID}},
        {"moving": [MOVE_ID, DIRECTORY_ID]},
        {"moving": {"move_id": 7, "target_directory_id": DIRECTORY_ID}},
        {"move_id": MOVE_ID},
        {**RECORD._asdict(), "source_end_offset": "17"},
        {**RECORD._asdict(), "source_end_offset": True},
        {"superseded_by": {"generation": 1}},
        {"superseded_by": {"generation": None, "directory_id": DIRECTORY_ID}},
    ],
)
def test_a_mark_of_another_shape_is_corruption(tmp_path: Path, changes: dict[str, Any]) -> None:
    """An incomplete mark counts neither as a mark nor as no mark."""
    write(tmp_path, **changes)
    with pytest.raises(CorruptCheckpointError, match="missing or wrong"):
        PartitionMetadata.read(str(tmp_path))
