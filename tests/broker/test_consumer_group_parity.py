"""Groups of the new protocol answer as in Kafka 4.1, error for error."""

from __future__ import annotations

import json
from pathlib import Path

from support.consumer_group_questions import KEPT, answers_of_ours


def test_the_answers_are_those_of_kafka(tmp_path: Path) -> None:
    """More than 130 questions: heartbeats, commits, descriptions, static members, mixed groups."""
    theirs = json.loads(KEPT.read_text(encoding="utf-8"))
    ours = answers_of_ours(tmp_path)
    assert len(theirs) > 130 and ours.keys() == theirs.keys()
    assert {name: ours[name] for name in ours if ours[name] != theirs[name]} == {}
