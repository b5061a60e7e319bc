"""Move a partition to another disk, as a step of the demo, while flights are appended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import xxhash

from logstore import Log, LogStore
from logstore.cli.demo.flights import Flights
from logstore.cli.demo.second_load import TOPIC
from logstore.cli.demo.steps import append_flights

MOVE_SECONDS = 1.5  # the throttle makes the move take this long, so that a person can watch it
RATE_MIN = 1 << 20
PACE_SECONDS = 0.02  # the pause between two rounds of appends during the move
READ_BYTES = 4 << 20


class Moved(NamedTuple):
    """Hold the result of the move, with the checksums of the old and the new copy."""

    partition: int
    source: str
    target: str
    state: str
    error: str | None
    records: int
    size_bytes: int
    checksum_before: str
    checksum_after: str
    appended_meanwhile: int
    throttled_rate: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """Report whether the copy arrived unchanged and the log grew during the move."""
        is_same = self.checksum_before == self.checksum_after
        return self.state == "done" and is_same and self.appended_meanwhile > 0


def checksum(log: Log, end_offset: int) -> str:
    """Hash the record batches of a log up to an offset, as they are now on the log's disk."""
    digest = xxhash.xxh3_64()
    for batch in log.read_batches(log.log_start_offset, end_offset=end_offset):
        # `read_raw` returns at least one whole batch, so it returns exactly one here.
        digest.update(log.read_raw(batch.base_offset, max_bytes=1))
    return digest.hexdigest()


def move_live(
    store: LogStore,
    parts: Sequence[Flights],
    start: int,
    show: Callable[[dict[str, Any]], object],
) -> Moved:
    """Move the largest partition to another log dir while flights from `start` on are appended.

    Args:
        show: called with the move's progress a few times per second.
    """
    logs = [store.log(TOPIC, partition) for partition in range(len(parts))]
    log = max(logs, key=lambda log: log.size_bytes)
    source = log.log_dir
    target = next(path for path in reversed(store.log_dirs) if path != source)
    end, size = log.log_end_offset, log.size_bytes
    before = checksum(log, end)
    rate = max(round(size / MOVE_SECONDS), RATE_MIN)
    is_moved = threading.Event()
    appender = threading.Thread(
        target=append_flights, args=(logs, parts), kwargs={"start": start, "pace": pace(is_moved)}
    )
    started = time.perf_counter()
    appender.start()
    try:
        facts = store.admin.call(
            "move.run",
            {"moves": [[TOPIC, log.partition, target]], "throttle": rate},
            lambda told: show(told["moves"][0]),
        )
        seconds, grown = time.perf_counter() - started, log.log_end_offset - end
    finally:
        is_moved.set()
        appender.join()
    (move,) = facts["moves"]
    return Moved(
        partition=log.partition,
        source=source,
        target=log.log_dir,
        state=move["state"],
        error=move["error"],
        records=end,
        size_bytes=size,
        checksum_before=before,
        checksum_after=checksum(log, end),
        appended_meanwhile=grown,
        throttled_rate=rate,
        seconds=seconds,
    )


def pace(is_over: threading.Event) -> Callable[[], object]:
    """Return a function that waits briefly; the wait ends early when `is_over` is set."""
    return lambda: is_over.wait(PACE_SECONDS)
