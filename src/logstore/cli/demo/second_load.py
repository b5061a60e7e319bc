"""Append the flights again in a child process of the demo; print how many are acknowledged.

Run as `python -m logstore.cli.demo.second_load DIR...`. Each line on stdout is `<partition> <end
offset>`. The line is written only when all records before the end offset are appended durably. This
process does not know that the demo will kill it.
"""

from __future__ import annotations

import sys

from logstore import LogStore
from logstore.cli.demo.flights import AIRPORTS, load_flights

TOPIC = "flights"
BATCH_RECORDS = 100


def main(log_dirs: list[str]) -> None:
    """Append every flight again in small durable batches; the airports take turns."""
    parts = load_flights()
    with LogStore.open(log_dirs) as store:
        logs = [store.log(TOPIC, partition) for partition in range(len(AIRPORTS))]
        start = 0
        while start < max(len(flights.values) for flights in parts):
            stop = start + BATCH_RECORDS
            for log, flights in zip(logs, parts, strict=True):
                if start >= len(flights.values):
                    continue
                offsets = log.extend(
                    flights.values[start:stop],
                    keys=flights.keys[start:stop],
                    timestamps=flights.timestamps[start:stop],
                    durable=True,
                )
                sys.stdout.write(f"{log.partition} {offsets.stop}\n")
                sys.stdout.flush()
            start = stop


if __name__ == "__main__":
    main(sys.argv[1:])
