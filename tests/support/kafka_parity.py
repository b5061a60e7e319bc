"""Ask a real Kafka 4.1 and this broker the same questions, and keep Kafka's answers.

    PYTHONPATH=src:tests:. python -m support.kafka_parity

Needs Java 17 and Maven. The answers go to kafka_answers.json; `test_parity.py` compares this broker
with them, without Java.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from broker import Broker
from support import kafka_peer
from support.broker_questions import answers_of
from support.kafka_client import KafkaClient

KEPT = Path(__file__).parents[1] / "broker" / "kafka_answers.json"


def answers_of_kafka(place: Path) -> dict[str, str]:
    """Ask a broker of Kafka with three log dirs."""
    dirs = [place / name for name in "abc"]
    kafka = kafka_peer.Broker(place, dirs)
    kafka.format()
    kafka.start()
    try:
        with KafkaClient(kafka.bootstrap) as client:
            node_id = client.call("DescribeCluster", 0).brokers[0].broker_id
            return answers_of(client, node_id, list(map(str, dirs)))
    finally:
        kafka.stop()


def answers_of_ours(place: Path) -> dict[str, str]:
    """Ask this broker, with three log dirs, too."""
    dirs = [place / name for name in "abc"]
    with Broker.start(dirs) as broker, KafkaClient(broker.bootstrap_servers) as client:
        return answers_of(client, broker.store.broker_id, broker.store.log_dirs)


def main() -> int:
    """Compare; returns 1 if an answer differs."""
    missing = kafka_peer.missing_tools()
    if missing:
        print(f"this needs a real Kafka: {missing}")
        return 1
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        theirs, ours = answers_of_kafka(Path(one)), answers_of_ours(Path(two))
    KEPT.write_text(json.dumps(theirs, indent=0) + "\n", encoding="utf-8")
    differing = [name for name in theirs if ours.get(name) != theirs[name]]
    for name in differing:
        print(f"{name}\n  kafka {theirs[name]}\n  ours  {ours.get(name)}")
    print(f"{len(theirs)} questions, {len(differing)} answers differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
