"""Fuzz record batches of both layouts, by their structure, through every way in and out of a log.

    make fuzz-batches                                              1,000,000 batches on all cores
    python tests/media/batch_fuzz.py --count 10000 --seed 7        fewer

Workers are processes of their own, so that a crash is seen and its seed printed. The checksums of a
mutant hold. What may come out of it: a ValueError, a RecordExpansionError or UnsupportedFormatError
at the append; or records that are the same in every way of reading them. What is on a disk and
cannot be read is found by `verify` and taken out by `repair`. A worker's memory may grow by the
bound of a batch and 64 MiB. The C library fills memory that is freed with junk, and Python checks
the edges of its blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from logstore import (
    CorruptRecordBatchError,
    Log,
    LogConfig,
    LogStore,
    RecordExpansionError,
    UnsupportedFormatError,
)
from logstore.arrow import to_record_batch
from logstore.format import layouts
from logstore.format.batch import RecordBatch, WrongMaxTimestampError
from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka.header import CONTROL
from logstore.log.encoded.raw_batches import parse
from logstore.spark.read.columns import SPARK_TYPES, ArrowColumns
from media.mutant_logs import (
    REFUSALS,
    Rows,
    arrow_rows,
    check_log,
    followed_one_by_one,
    is_watched,
    moved,
    one_by_one,
    rows_of,
)
from support.hanging import QUIET
from support.hostile import plant
from support.mutants import mutant, seeds
from support.places import fast_directory

BOUND_BYTES = 4 << 20
GROWTH_BYTES_MAX = BOUND_BYTES + (64 << 20)
BATCH = 1000  # mutants of one seed; then they go through stores
HELD_BYTES_MAX = 320 << 10  # of a round all batches are held at once, but of larger ones few
TOGETHER = 500  # go through one store
STORE_STEP = 1  # of so many mutants one goes through a store
READS = 20  # of planted batches of one layout that cannot be read, by offset
SPAN_MAX = 2**20  # a hole on the disk is no longer, so that offsets do not run out
US_MAX = 2**63 // 1000
UNREADABLE = (CorruptRecordBatchError, RecordExpansionError, UnsupportedFormatError)
GUARDED = {
    "PYTHONMALLOC": "debug",
    "MALLOC_PERTURB_": "165",
    "MALLOC_CHECK_": "3",
    "MALLOC_MMAP_THRESHOLD_": "131072",  # else the C library keeps up to 32 MiB of each block freed
}


def through_spark(batches: list[RecordBatch]) -> None:
    """Lay batches out together as Spark's workers do; all is validated, and no row is missing."""
    groups: dict[bool, list[RecordBatch]] = {False: [], True: []}
    for batch in batches:
        times = batch.timestamps
        groups[int(times.max()) >= US_MAX or int(times.min()) <= -US_MAX].append(batch)
    for is_out, group in groups.items():
        names = [name for name in SPARK_TYPES if name != "timestamp" or not is_out]
        values: list[bytes | None] = []
        for table in ArrowColumns("t", 0, names).stream(group):
            table.validate(full=True)
            values += table.column(table.schema.names.index("value")).to_pylist()
        assert values == [value for batch in group for value in batch.values.to_list()]


def check_alike(batch: RecordBatch, rng: random.Random) -> Rows:
    """Read a decoded batch in every way; give its records."""
    rows = rows_of(batch.records())
    assert len(rows) == batch.count == len(batch)
    for at in rng.sample(range(batch.count), min(batch.count, 3)):
        assert rows_of([batch.record(at)]) == [rows[at]]
    columns = zip(
        batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, batch.headers,
        strict=True,
    )  # fmt: skip
    assert list(columns) == rows
    start, stop = sorted((rng.randrange(batch.count + 1), rng.randrange(batch.count + 1)))
    part = batch.slice(start, stop)
    assert rows_of(part.records()) == rows[start:stop]
    assert arrow_rows(to_record_batch(batch)) == rows
    assert arrow_rows(to_record_batch(part)) == rows[start:stop]
    assert batch.expansion_bytes <= BOUND_BYTES + len(batch.values.data) + batch.header.size_bytes
    offsets = [row[0] for row in rows]
    assert offsets == sorted(set(offsets))
    assert not rows or batch.header.base_offset <= min(offsets) <= max(offsets) <= batch.last_offset
    return rows


def look_at(
    data: bytes, rng: random.Random, decoded: list[RecordBatch] | None = None
) -> tuple[str, Rows]:
    """Put one mutant through the checks and the decoder, which have to agree.

    Args:
        decoded: is given the batch if it has records.
    """
    try:
        (found,) = parse(data, BOUND_BYTES)
        kind, header = "accepted", found[1]
    except REFUSALS:
        kind = "refused"
        if layouts.fault(data, 0, None) is not None:
            return "damaged", []
        header = layouts.read_header(data, 0)
        if header.last_offset - header.base_offset > SPAN_MAX and not header.record_count:
            return "refused", []
    is_sound, batch = is_readable(data, header), None
    try:
        batch = layouts.decoder_of(data, 0, "", BOUND_BYTES)(data, 0, header)
    except REFUSALS:
        assert not is_sound and kind == "refused", (kind, is_sound)
        return "unreadable", []
    assert is_sound or is_control(header), "the decoder takes it, and the check does not"
    rows = check_alike(batch, rng)
    if batch.expansion_bytes > HELD_BYTES_MAX:
        through_spark([batch])
    elif decoded is not None and rows:
        decoded.append(batch)
    if kind == "refused" and is_sound:
        fault = layouts.records_fault(data, [(0, header)], BOUND_BYTES)
        assert fault is None or isinstance(fault, WrongMaxTimestampError), fault
        kind = "refused" if fault is None else "lying"
    if kind == "accepted":
        check_rewriting(data, header, rows, rng)
    return kind if is_sound else "unreadable control", rows


def held_bytes(rows: Rows) -> int:
    """Reckon what rows take."""
    return sum(320 + len(row[2] or b"") + len(row[3] or b"") for row in rows)


def is_control(header: BatchHeader) -> bool:
    """Tell whether a batch ends a transaction: readers are not given it."""
    return header.magic == layouts.KAFKA_MAGIC and bool(header.attributes & CONTROL)


def is_readable(data: bytes, header: BatchHeader) -> bool:
    """Ask the check that `verify` and appends share."""
    try:
        layouts.check_run(data, [(0, header)], BOUND_BYTES)
    except REFUSALS:
        return False
    return True


def check_rewriting(data: bytes, header: BatchHeader, rows: Rows, rng: random.Random) -> None:
    """Cut a batch, and give it another time and place: the records stay what they are."""
    if header.last_offset > header.base_offset:
        cut = rng.randint(header.base_offset + 1, header.last_offset)
        part = b"".join(layouts.part_until(data, cut, BOUND_BYTES))
        assert layouts.fault(part, 0, None) is None
        records = [] if is_control(header) else layouts.decode_all(part).records()
        kept = [row for row in rows if row[0] < cut]
        assert rows_of(records) == kept, (header, cut, rows_of(records)[:2], kept[:2])
    if header.record_count:
        late = layouts.with_append_time(data, header, 77)
        ((found, stamped),) = parse(late, BOUND_BYTES)
        batch = layouts.decoder_of(found, 0, "", BOUND_BYTES)(found, 0, stamped)
        assert [row[2:] for row in rows_of(batch.records())] == [row[2:] for row in rows]
        assert set(batch.timestamps.tolist()) <= {77}


# --- through a store ------------------------------------------------------------------------------


def through_a_store(mutants: list[tuple[str, bytes, Rows]], rng: random.Random) -> None:
    """Append what is accepted, plant what is not, and read, verify and repair all of it."""
    config = QUIET.replace(record_expansion_bytes_max=BOUND_BYTES)
    with (
        fast_directory() as path,
        LogStore.open(path, config=config, admin_socket=False) as store,
    ):
        segment_bytes = rng.choice((16 << 10, 1 << 20, 1 << 30))
        topic = LogConfig(segment_bytes=segment_bytes, message_timestamp_after_max_ms=None)
        accepted = [one for one in mutants if one[0] == "accepted" and not is_watched(one[1])]
        log = store.create("accepted", 0, config=topic)
        raw = b"".join(data for _, data, _ in accepted)
        offsets = log.append_encoded(raw)
        check_log(log, moved([each[1:] for each in accepted]), rng)
        assert len(offsets) == log.log_end_offset
        follower = store.create("follower", 0, config=topic)
        offset = 0
        while raw := log.read_raw(offset, 64 << 10):
            offset = follower.append_as_follower(raw).stop
        assert rows_of(list(iter(follower))) == rows_of(list(iter(log))) and follower.verify() == []
        if len(log):
            cut = rng.randrange(log.log_start_offset, log.log_end_offset)
            kept = [row for row in rows_of(list(iter(log))) if row[0] < cut]
            log.truncate_to(cut)
            assert rows_of(list(iter(log))) == kept and log.verify() == []
        one_by_one(store.create("led", 0, config=topic), mutants, rng)
        followed_one_by_one(store.create("followed", 0, config=topic), mutants, rng)
        # Behind each damage a scan begins a new window: small segments keep these short.
        small = LogConfig(segment_bytes=16 << 10)
        for magic in (layouts.KAFKA_MAGIC, layouts.MAGICS["columnar"]):
            planted = [each for each in mutants if each[1][layouts.MAGIC_AT] == magic]
            check_planted(store.create("planted", magic, config=small), planted, rng)


def check_planted(log: Log, mutants: list[tuple[str, bytes, Rows]], rng: random.Random) -> None:
    """Put batches on the disk that no append takes: damage is found, taken out, and no more."""
    planted: list[tuple[bytes, Rows]] = []
    unreadable: list[int] = []
    problems: list[range] = []
    end = 0
    for kind, data, rows in mutants:
        if kind == "damaged" or not layouts.has_header(data):
            continue
        header = layouts.read_header(data, 0)
        if header.last_offset - header.base_offset > SPAN_MAX:
            continue
        planted.append((data, [] if kind.startswith("unreadable") else rows))
        start, end = end, end + header.last_offset - header.base_offset + 1
        if kind.startswith("unreadable"):
            problems.append(range(start, end))
        elif kind == "lying":
            problems.append(range(start, start))
        if kind == "unreadable":
            unreadable.append(start)
    assert plant(log, b"".join(data for data, _ in planted)) == range(end)
    for at in rng.sample(unreadable, min(READS, len(unreadable))):
        for read in (log.read, log.record_at, lambda at: next(log.read_batches(at))):
            try:
                read(at)
            except UNREADABLE:
                continue
            raise AssertionError(f"the unreadable batch at {at} is read")
    pairs = [(problem.offset, problem.end_offset) for problem in log.verify()]
    expected = [(each.start, each.stop) for each in problems]
    assert pairs == expected, sorted({*pairs} ^ {*expected})
    report = log.repair()
    assert sum(map(len, report.lost)) == sum(map(len, problems))
    assert log.verify() == [] and rows_of(list(iter(log))) == moved(planted)


# --- workers --------------------------------------------------------------------------------------


def work(seed: int, count: int, place: Path) -> None:
    """Fuzz in this process; the file at `place` has the seed and number of the mutant at hand."""
    batches, kinds = seeds(), Counter[str]()
    look_at(batches[0], random.Random(0))
    before = peak_bytes()
    fd = os.open(place, os.O_RDWR | os.O_CREAT)
    for start in range(0, count, BATCH):
        rng, mutants = random.Random(seed), []
        decoded: list[RecordBatch] = []
        for number in range(min(BATCH, count - start)):
            data = mutant(rng, batches)
            os.pwrite(fd, f"{seed} {number:8}\n".encode(), 0)
            kind, rows = look_at(data, rng, decoded)
            kinds[kind] += 1
            if not number % STORE_STEP and held_bytes(rows) <= HELD_BYTES_MAX:
                mutants.append((kind, data, rows))
        seen = peak_bytes() - before
        through_spark(decoded)
        for at in range(0, len(mutants), TOGETHER):
            through_a_store(mutants[at : at + TOGETHER], rng)
        grown = peak_bytes() - before
        assert grown <= GROWTH_BYTES_MAX, f"seed {seed}: {seen >> 20} to {grown >> 20} MiB"
        seed += 1
    print(json.dumps([kinds, (peak_bytes() - before) >> 20]))


def peak_bytes() -> int:
    """Give the most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> int:
    """Share the work among processes; a round of each is short, so that a leak does not add up."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--round", type=int, default=20_000)
    parser.add_argument("--worker", type=Path)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.seed, options.count, options.worker)
        return 0
    print(f"seed {options.seed}", flush=True)
    started, kinds, grown = time.monotonic(), Counter[str](), 0
    left, seed = options.count, options.seed
    running: dict[subprocess.Popen[str], tuple[int, Path]] = {}
    with fast_directory() as directory:
        while left > 0 or running:
            while left > 0 and len(running) < options.jobs:
                count = min(options.round, left)
                place = Path(directory) / str(seed)
                running[start(seed, count, place)] = (seed, place)
                left, seed = left - count, seed + -(-count // BATCH)
            process = next(iter(running))
            output, errors = process.communicate()
            first, place = running.pop(process)
            if process.returncode:
                at = place.read_text() if place.exists() else str(first)
                print(f"FAILED ({process.returncode}) at seed and number {at}\n{errors}")
                for other in running:
                    other.kill()
                    other.wait()
                return 1
            more, most = json.loads(output.splitlines()[-1])
            kinds.update(more)
            grown = max(grown, most)
    seconds = time.monotonic() - started
    print(f"{kinds.total()} batches in {seconds:.0f} s: {dict(kinds)}; memory grew by {grown} MiB")
    return 0


def start(seed: int, count: int, place: Path) -> subprocess.Popen[str]:
    """Begin a worker."""
    command = [sys.executable, __file__, "--seed", str(seed), "--count", str(count)]
    return subprocess.Popen(
        [*command, "--worker", str(place)],
        env={**os.environ, **GUARDED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
