"""Small files are read back as written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.disk.documents import checkpoint
from logstore.disk.documents.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

DIRECTORY_ID = "0123456789abcdef" * 2


def test_a_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Any text in the document is read back unchanged."""
    document = {"version": 1, "topic": "örders", "offsets": [1, 2, 3], "none": None}
    path = str(tmp_path / "small")
    checkpoint.write_document(path, document)
    assert checkpoint.read_document(path) == document
    assert [entry.name for entry in tmp_path.iterdir()] == ["small"]


def test_a_document_that_is_not_there_is_none(tmp_path: Path) -> None:
    """A missing file does not count as damage."""
    assert checkpoint.read_document(str(tmp_path / "small")) is None


def test_every_flipped_bit_cut_and_extension_is_found_out() -> None:
    """A damaged document is never read as another document."""
    data = checkpoint.encode_document({"version": 1, "n": 12})
    damaged = [data[:size] for size in range(len(data))] + [data + b"\n", b"\0" * len(data)]
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            damaged.append(bytes(flipped))
    for bad in damaged:
        with pytest.raises(CorruptCheckpointError):
            checkpoint.decode_document(bad, "small")


def test_an_empty_document_says_so() -> None:
    """The error says that the document is empty."""
    with pytest.raises(CorruptCheckpointError, match="the document is empty"):
        checkpoint.decode_document(b"", "small")


def test_a_later_version_is_refused_as_one() -> None:
    """A valid document of a later version does not count as damage."""
    with pytest.raises(UnsupportedFormatError):
        checkpoint.decode_document(checkpoint.encode_document({"version": 2}), "small")


@pytest.mark.parametrize("line", [b"[]", b"{}", b"not json", b"null", b"[" * 100_000])
def test_a_line_that_is_no_document_is_corrupt(line: bytes) -> None:
    """A line with a right checksum is not enough to be a document."""
    import xxhash

    data = line + b"\nxxh3-64 " + xxhash.xxh3_64_hexdigest(line).encode() + b"\n"
    with pytest.raises(CorruptCheckpointError):
        checkpoint.decode_document(data, "small")


def test_a_directory_in_the_place_of_a_document_is_corrupt(tmp_path: Path) -> None:
    """A directory is not a document, and does not count as a failure of the disk."""
    with pytest.raises(CorruptCheckpointError, match="directory"):
        checkpoint.read_document(str(tmp_path))


def test_offsets_come_back(tmp_path: Path) -> None:
    """An offsets checkpoint holds one offset for each topic and partition."""
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("x.move", 11): 2**62}
    path = str(tmp_path / "offsets")
    found = checkpoint.Offsets(offsets, {TopicPartition("orders", 0): bytes(range(16))})
    checkpoint.write_offsets(path, RECOVERY_POINTS, DIRECTORY_ID, found)
    assert checkpoint.read_offsets(path, RECOVERY_POINTS, DIRECTORY_ID) == found
    assert checkpoint.read_offsets(path + "x", RECOVERY_POINTS, DIRECTORY_ID) is None


def test_a_whole_offsets_checkpoint_in_the_wrong_place_is_corrupt(tmp_path: Path) -> None:
    """A checkpoint of another kind, or from another log dir, is refused."""
    path = str(tmp_path / "offsets")
    checkpoint.write_offsets(path, RECOVERY_POINTS, DIRECTORY_ID, checkpoint.Offsets({}, {}))
    is_here = f"this is the file {RECOVERY_POINTS} of log dir {DIRECTORY_ID}"
    expected = f"{is_here}, not {LOG_START_OFFSETS} of log dir {DIRECTORY_ID}"
    with pytest.raises(CorruptCheckpointError, match=expected):
        checkpoint.read_offsets(path, LOG_START_OFFSETS, DIRECTORY_ID)
    expected = f"{is_here}, not {RECOVERY_POINTS} of log dir {'f' * 32}"
    with pytest.raises(CorruptCheckpointError, match=expected):
        checkpoint.read_offsets(path, RECOVERY_POINTS, "f" * 32)


@pytest.mark.parametrize("rows", [None, [[1]], [["a", "b", 1]], [["a", 0, -1]], [["a", 0, True]]])
def test_rows_that_are_no_offsets_are_corrupt(tmp_path: Path, rows: object) -> None:
    """Each row is checked separately."""
    path = str(tmp_path / "offsets")
    document = {
        "version": 1,
        "kind": RECOVERY_POINTS,
        "directory_id": DIRECTORY_ID,
        "offsets": rows,
    }
    checkpoint.write_document(path, document)
    with pytest.raises(CorruptCheckpointError):
        checkpoint.read_offsets(path, RECOVERY_POINTS, DIRECTORY_ID)
