"""Test the files with a log dir's generation, and with the generations that it recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logstore.disk.documents import checkpoint
from logstore.disk.documents.generations import (
    GENERATION_NAME,
    STARTS_KEPT,
    WITNESS_NAME,
    DirGeneration,
    Generation,
    Seen,
)
from logstore.disk.documents.meta_properties import new_id
from logstore.names import TopicPartition

KEY = TopicPartition("orders", 0)
DIRECTORY_ID = "0" * 32


def generation(path: Path) -> DirGeneration:
    one = DirGeneration(str(path))
    one.directory_id = DIRECTORY_ID
    return one


def read(path: Path) -> DirGeneration:
    one = generation(path)
    assert one.load() == []
    return one


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Starts, steps, doubts and recorded generations are read back."""
    one = generation(tmp_path)
    one.begin(None, {KEY: 3})
    one.step({KEY: 4})
    assert one.current is not None and one.current[::2] == (1, 1)
    seen = {"a" * 32: Seen(Generation(7, new_id(), 2), {KEY: 5}), "b" * 32: Seen(one.current)}
    one.witness(seen, {})
    one.doubt({KEY: 9}, one.current)
    again = read(tmp_path)
    assert (again.starts, again.doubts, again.seen) == (one.starts, {KEY: 9}, seen)
    assert again.doubted_at == one.current and again.is_frozen
    again.settle(KEY, Generation(20, new_id(), 0))
    assert [start.number for start in read(tmp_path).starts] == [21]


def test_a_frozen_generation_takes_no_step(tmp_path: Path) -> None:
    """The current disk must be recognised as later than an old copy that is still used."""
    one = generation(tmp_path)
    one.begin(None, {})
    one.doubt({KEY: 1}, None)
    before = one.starts
    one.step({KEY: 2})
    assert one.starts == read(tmp_path).starts == before


def test_only_the_last_starts_are_kept(tmp_path: Path) -> None:
    """A state from before the remembered starts is neither earlier nor later."""
    one = generation(tmp_path)
    one.begin(None, {})
    first = one.starts[0]
    for _ in range(STARTS_KEPT):
        one.begin(None, {})
    assert len(read(tmp_path).starts) == STARTS_KEPT and first not in one.starts
    assert not one.is_behind(first._replace(step=9))
    last = one.starts[-1]
    assert one.is_behind(last._replace(step=1)) and one.is_behind(last._replace(start_id=new_id()))
    assert one.is_behind(last._replace(number=last.number + 1)) and not one.is_behind(last)


@pytest.mark.parametrize("name", [GENERATION_NAME, WITNESS_NAME])
@pytest.mark.parametrize(
    "change",
    [
        {"kind": "log-dir-settings"},
        {"directory_id": "1" * 32},
        {"starts": [[True, "0" * 32, 0]], "seen": {DIRECTORY_ID: [1, 2]}},
        {"starts": [[2**70, "0" * 32, 0]], "seen": {DIRECTORY_ID: [2**70, "0" * 32, 0, None]}},
        {"starts": [[float("inf"), "0" * 32, 0]], "seen": []},
        {"starts": None, "seen": None},
        {"starts": [["1", "0" * 32, 0]], "seen": {DIRECTORY_ID: [1, "x", 0, None]}},
        {"doubts": [["t", 0, 1.5]], "seen": {DIRECTORY_ID: [1, "0" * 32, 0, [[1, 0, 0]]]}},
        {"doubts": [[]], "seen": {DIRECTORY_ID: None}},
        {"doubted_at": 5, "seen": {DIRECTORY_ID: []}},
    ],
)
def test_a_file_with_other_contents_is_unknown(
    tmp_path: Path, name: str, change: dict[str, object]
) -> None:
    """There is a warning, and nothing is concluded from the file."""
    one = generation(tmp_path)
    one.begin(None, {})
    one.witness({"a" * 32: Seen(Generation(1, new_id(), 0))}, {})
    path = str(tmp_path / name)
    document = checkpoint.read_document(path)
    assert document is not None
    checkpoint.write_document(path, {**document, **change})
    again = generation(tmp_path)
    (warning,) = again.load()
    assert name in warning
    assert (again.starts if name == GENERATION_NAME else tuple(again.seen)) == ()


@pytest.mark.parametrize("name", [GENERATION_NAME, WITNESS_NAME])
def test_the_documented_keys_are_those_written(tmp_path: Path, name: str) -> None:
    """The rows of docs/FORMAT.md name each key."""
    one = generation(tmp_path)
    one.begin(None, {})
    one.witness({"a" * 32: Seen(Generation(1, new_id(), 0))}, {})
    text = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text()
    row = re.search(rf"^\| `{name}` \| `(.*)` \|$", text, re.M)
    document = checkpoint.read_document(str(tmp_path / name))
    assert row is not None and document is not None
    assert list(document) == re.findall(r'"(\w+)":', row.group(1))
