"""Lay out the golden log dirs of a Kafka broker, and say what its consumers were given."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logstore import TopicPartition

GOLDEN = Path(__file__).resolve().parents[1] / "format" / "kafka_golden"
Rows = list[tuple[Any, ...]]


class Given(NamedTuple):
    """What consumers were given of a partition, in each isolation level, and its offsets."""

    start: int
    end: int
    uncommitted: Rows
    committed: Rows


def bytes_of(text: str | None) -> bytes | None:
    """Read base64."""
    return None if text is None else base64.b64decode(text)


def row_of(row: Sequence[Any]) -> tuple[Any, ...]:
    """Make what a Record begins with of offset, timestamp, key, value and headers."""
    offset, timestamp, key, value, headers = row[:5]
    pairs = tuple((name, bytes_of(cell)) for name, cell in headers)
    return offset, timestamp, bytes_of(key), bytes_of(value), pairs


def given(name: str) -> dict[TopicPartition, Given]:
    """Read what consumers were given of `stopped` or `killed`.

    Behind the line of a partition stands one for each of its records; the last number in it says
    whether a committed read was given it too.
    """
    found: dict[TopicPartition, Given] = {}
    for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        if isinstance(row, dict):
            expected = Given(row["start"], row["end"], [], [])
            found[TopicPartition(row["topic"], row["partition"])] = expected
            continue
        expected.uncommitted.append(row_of(row))
        if row[5]:
            expected.committed.append(row_of(row))
    return found


def log_dirs(name: str, target: Path) -> list[Path]:
    """Copy the log dirs of `stopped` or `killed`; the latter are the former and what changed."""
    for each in ("a", "b"):
        shutil.copytree(GOLDEN / "stopped" / each, target / each)
        if name == "killed":
            shutil.copytree(GOLDEN / name / each, target / each, dirs_exist_ok=True)
            (target / each / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return [target / "a", target / "b"]
