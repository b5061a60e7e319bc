"""Write small log dirs with a metadata log by Apache Kafka itself; done once, kept for ever.

    PYTHONPATH=src:tests:. python tests/support/write_hands_golden.py TARGET

Makes TARGET/a and TARGET/b, the log dirs of one broker; the metadata log is in `a`. The broker was
stopped in order. There are two topics with settings of their own, one without, one that was
deleted, an offset of a group, and a transaction that was left open.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from support.kafka_peer import Broker, client_of

T0 = 1_700_000_000_000


def main(target: Path) -> None:
    """Run the broker once."""
    place = Path(tempfile.mkdtemp(prefix="kafka-golden-"))
    dirs = [place / "a", place / "b"]
    broker = Broker(place, dirs, metadata_log_dir=dirs[0], log_index_size_max_bytes=400)
    broker.format()
    try:
        broker.start()
        with client_of(broker) as client:
            client.ask("topic", "plain", 1)
            client.ask("topic", "kept", 2, "retention.ms=-1", "max.message.bytes=2000000")
            client.ask("topic", "keyed", 1, "cleanup.policy=compact", "min.insync.replicas=1")
            client.ask("topic", "doomed", 1, "retention.ms=5")
            client.ask("delete", "doomed")
            client.ask("config", "kept", "segment.bytes=3000000")
            client.ask("producer", "p", "none", "-", "true")
            for topic, partition in (("plain", 0), ("kept", 0), ("kept", 1), ("keyed", 0)):
                client.send("p", topic, b"k", b"of Kafka", timestamp=T0, partition=partition)
            client.ask("close", "p")
            client.ask("group", "plain", "readers")
            client.ask("producer", "open", "none", "open", "true")
            client.ask("begin", "open")
            client.send("open", "plain", b"k", b"of an open transaction", timestamp=T0)
            client.ask("flush", "open")
        broker.stop()
        for log_dir in dirs:
            shutil.copytree(log_dir, target / log_dir.name)
            (target / log_dir.name / ".lock").unlink(missing_ok=True)
    finally:
        broker.kill()
        shutil.rmtree(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
