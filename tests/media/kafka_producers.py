"""Let Apache Kafka and this library read each other's snapshots of producers.

    PYTHONPATH=src:tests:. python tests/media/kafka_producers.py       needs Java 17 and Maven

A broker writes transactions, committed, aborted and left open, and is stopped. The state that is
replayed here from the headers of each log must be the one in the broker's last snapshot, and the
aborted transactions those of its index. Then each snapshot is written anew by this library: Kafka's
dump tool prints the same of it, and the broker starts with it and continues.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from logstore.format.kafka.snapshots import decode_snapshot, encode_snapshot
from logstore.format.producer_file import name_of
from logstore.log.producers.kafka_snapshots import SUFFIX
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.replay import snapshot_offsets
from media.kafka_interop import TOPIC, produce
from support.kafka_peer import Broker, client_of, dump_log_segments, missing_tools
from support.producers import NOW, replayed


def compare(directory: Path) -> int:
    """Compare a broker's last snapshot with the replay, and write it anew; count the producers."""
    producers, indexes = replayed(directory)
    for path, entries in indexes.items():
        assert entries == (path.read_bytes() if path.exists() else b""), path
    offsets = snapshot_offsets([path.name for path in directory.iterdir()], 2**62, SUFFIX)
    if not offsets:
        assert len(producers) == 0, directory
        return 0
    path = directory / name_of(offsets[0], SUFFIX)
    assert offsets[0] == producers.end_offset, path
    theirs = Producers(decode_snapshot(path.read_bytes(), str(path), offsets[0], NOW))
    ours = [state._replace(batches=state.batches[:1]) for state in producers.states()]
    assert theirs.states() == ours, (path, theirs.states(), ours)
    end = producers.end_offset
    assert theirs.last_stable_offset(end) == producers.last_stable_offset(end)
    printed = sorted(dump_log_segments(path).splitlines())
    path.write_bytes(encode_snapshot(producers.snapshot()))
    again = sorted(dump_log_segments(path).splitlines())
    assert again == printed, (path, again, printed)
    assert sum("producerId: " in line for line in again) == len(producers)
    return len(producers)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if missing_tools():
        print(missing_tools(), file=sys.stderr)
        return 2
    rng = random.Random(options.seed)
    place = Path(tempfile.mkdtemp(prefix="kafka-producers-"))
    broker = Broker(place, [place / "a", place / "b"], num_partitions=1)
    broker.format()
    try:
        for number in range(options.rounds):
            broker.start()
            with client_of(broker) as client:
                if number == 0:
                    client.ask("topic", TOPIC, 3, "segment.bytes=1048576")
                produce(client, rng)
            broker.stop()
            found = [compare(path) for each in broker.log_dirs for path in each.glob("*-[0-9]")]
            print(f"round {number}: {sum(found)} producers in {len(found)} logs agree", flush=True)
            assert sum(found)
    finally:
        broker.kill()
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
