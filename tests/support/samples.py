"""Make sample partitions and observe everything that a log lets its readers see."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from logstore import Record

DAY_MS = 86_400_000


class Observation(NamedTuple):
    """All that reading tells about a log."""

    start: int
    end: int
    records: list[tuple[Any, ...]]
    by_offset: list[tuple[Any, ...]]
    by_timestamp: list[int | None]
    raw: bytes


def facts(record: Record) -> tuple[Any, ...]:
    """Give what of a record has to survive."""
    return record[:5]


def read_everything(log: Any) -> list[tuple[Any, ...]]:
    """Read a log from its start to its end by `read`."""
    found: list[tuple[Any, ...]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, max_bytes=1 << 14)
        if not records:
            break
        found += map(facts, records)
        offset = records[-1].offset + 1
    return found


def read_raw(log: Any) -> bytes:
    """Read all encoded batches of a log."""
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        parts.append(log.read_raw(offset, 1 << 14))
        batch = log.read(offset, max_records=1)
        offset = next_base(parts[-1])
        assert batch
    return b"".join(parts)


def next_base(raw: bytes) -> int:
    """Give the end offset of the last batch in a run of encoded batches."""
    from support.reader import batches

    end = 0
    for batch in batches(raw):
        end = batch.end_offset
    return end


def observe(log: Any) -> Observation:
    """Read a log in every way there is."""
    start, end = log.log_start_offset, log.log_end_offset
    records = [facts(record) for record in log]
    assert records == read_everything(log)
    step = max(1, (end - start) // 40)
    by_offset = [facts(log[offset]) for offset in range(start, end, step)]
    times = sorted({t for _, t, *_ in records})
    probes = [0, *(t + d for t in times[:: max(1, len(times) // 25)] for d in (-1, 0, 1)), 1 << 50]
    by_timestamp = [log.offset_for_timestamp(t) for t in probes]
    return Observation(start, end, records, by_offset, by_timestamp, read_raw(log))


def sample_values(rng: random.Random, count: int) -> list[bytes | None]:
    """Make values of mixed sizes, some null, some empty."""
    return [
        None if rng.random() < 0.05 else rng.randbytes(rng.choice((0, 1, 7, 8, 20, 100, 100)))
        for _ in range(count)
    ]


def fill(log: Any, batches: int, seed: int) -> None:
    """Append batches of every shape: keys or none, headers or none, times in and out of order."""
    rng = random.Random(seed)
    now = 1_700_000_000_000 + log.log_end_offset * 1000
    for _ in range(batches):
        now += rng.randrange(5000)
        count = rng.choice((1, 1, 2, 9, 30))
        values = sample_values(rng, count)
        shape = rng.random()
        if shape < 0.4:
            log.append(rng.randbytes(90), timestamp=now)
        elif shape < 0.7:
            log.extend(values, timestamps=[now + rng.randrange(-900, 900) for _ in values])
        elif shape < 0.9:
            keys = [None if rng.random() < 0.2 else b"k%d" % rng.randrange(9) for _ in values]
            log.extend(values, keys=keys, timestamps=[now] * count)
        else:
            log.append(b"v", key=b"k", timestamp=now, headers=(("h", b"1"), ("g", None)))
