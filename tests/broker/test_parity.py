"""Test that the broker answers like Kafka 4.1; `make kafka-parity` asks a new Kafka."""

from __future__ import annotations

import json
from pathlib import Path

from support.kafka_parity import KEPT, answers_of_ours


def test_the_answers_are_those_of_kafka(tmp_path: Path) -> None:
    """More than 150 questions: settings, partitions, log dirs, groups, offsets, static members."""
    theirs = json.loads(KEPT.read_text(encoding="utf-8"))
    ours = answers_of_ours(tmp_path)
    assert len(theirs) > 150 and ours.keys() == theirs.keys()
    assert {name: ours[name] for name in ours if ours[name] != theirs[name]} == {}
