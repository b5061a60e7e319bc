"""Create the records that every side of a comparison appends, and define the sizes of a run."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

RECORD_BYTES = 100
BATCH_RECORDS = 1000
POOL_BATCHES = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """Define how much work each question does in a round, and how many rounds it has."""

    rounds: int = 11
    touch_bytes: int = 768 << 20
    extend_batches: int = 400
    single_appends: int = 20_000
    encoded_bytes: int = 96 << 20
    slow_share: int = 4  # a slow peer does only a quarter of the work, because rates are compared
    durable_threads: int = 32
    durable_each: int = 60
    durable_single: int = 400
    scan_batches: int = 500
    range_bytes: int = 64 << 20
    point_reads: int = 20_000
    first_touches: int = 400
    large_set_batches: int = 1_500
    recover_bytes: int = 1 << 30
    recover_batch_bytes: int = 64 << 10
    recover_rounds: int = 5
    segments: int = 10_000
    segment_rounds: int = 3
    import_rounds: int = 9
    move_bytes: int = 4 << 30
    move_rounds: int = 3
    throttle_rates: tuple[int, ...] = (50_000_000, 200_000_000)
    throttle_seconds: float = 10
    swaps: int = 200
    foreground_rate: int = 2000  # appends per second, of 10 records each
    foreground_seconds: float = 5
    foreground_rounds: int = 5
    automatic_seconds: float = 15


FULL = Sizes()
TINY = Sizes(
    rounds=2,
    touch_bytes=1 << 20,
    extend_batches=3,
    single_appends=20,
    encoded_bytes=2 << 20,
    slow_share=1,
    durable_threads=4,
    durable_each=2,
    durable_single=4,
    scan_batches=3,
    range_bytes=1 << 20,
    point_reads=20,
    first_touches=3,
    large_set_batches=4,
    recover_bytes=1 << 20,
    recover_rounds=2,
    segments=20,
    segment_rounds=1,
    import_rounds=1,
    move_bytes=2 << 20,
    move_rounds=1,
    throttle_rates=(1_000_000,),
    throttle_seconds=0.2,
    swaps=3,
    foreground_rate=500,
    foreground_seconds=0.1,
    foreground_rounds=1,
    automatic_seconds=0.3,
)
SMALL = replace(
    FULL,
    rounds=5,
    recover_bytes=256 << 20,
    recover_rounds=3,
    segments=2000,
    move_bytes=512 << 20,
    throttle_seconds=3,
    swaps=50,
    foreground_seconds=3,
    foreground_rounds=3,
    automatic_seconds=8,
)
SCALES = {"full": FULL, "small": SMALL, "tiny": TINY}


def equal_values(seed: int = 1) -> list[list[bytes]]:
    """Create different batches of records of 100 bytes, more than a processor cache holds."""
    source = random.Random(seed)
    return [
        [source.randbytes(RECORD_BYTES) for _ in range(BATCH_RECORDS)] for _ in range(POOL_BATCHES)
    ]


def mixed_values(seed: int = 2) -> list[list[bytes]]:
    """Create batches of records of 50 to 150 bytes, 100 bytes on average."""
    source = random.Random(seed)
    return [
        [source.randbytes(source.randint(50, 150)) for _ in range(BATCH_RECORDS)]
        for _ in range(POOL_BATCHES)
    ]


def offsets_at_random(count: int, end: int, seed: int = 3) -> list[int]:
    """Draw random offsets below `end`."""
    source = random.Random(seed)
    return [source.randrange(end) for _ in range(count)]


def touch_memory(size_bytes: int) -> None:
    """Write to new memory once, so that no measurement includes the first access to this memory."""
    memory = bytearray(size_bytes)
    memory[::4096] = b"\1" * len(range(0, size_bytes, 4096))
