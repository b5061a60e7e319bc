"""Lay out the golden log dirs of a Kafka broker, and say what its consumers were given."""

from __future__ import annotations

import base64
import json
import shutil
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


def row_of(document: dict[str, Any]) -> tuple[Any, ...]:
    """Make what a Record begins with."""
    headers = tuple((name, bytes_of(value)) for name, value in document["headers"])
    key, value = bytes_of(document["key"]), bytes_of(document["value"])
    return document["offset"], document["timestamp"], key, value, headers


def given(name: str) -> dict[TopicPartition, Given]:
    """Read what consumers were given of `stopped` or `killed`."""
    uncommitted: dict[TopicPartition, Rows] = {}
    committed: dict[TopicPartition, Rows] = {}
    found = {}
    for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        key = TopicPartition(row["topic"], row["partition"])
        if "offset" in row:
            uncommitted.setdefault(key, []).append(row_of(row))
            if row["is_committed"]:
                committed.setdefault(key, []).append(row_of(row))
        else:
            rows = uncommitted.get(key, []), committed.get(key, [])
            found[key] = Given(row["start"], row["end"], *rows)
    return found


def log_dirs(name: str, target: Path) -> list[Path]:
    """Copy the log dirs of `stopped` or `killed`; the latter are the former and what changed."""
    for each in ("a", "b"):
        shutil.copytree(GOLDEN / "stopped" / each, target / each)
        if name == "killed":
            shutil.copytree(GOLDEN / name / each, target / each, dirs_exist_ok=True)
            (target / each / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return [target / "a", target / "b"]
