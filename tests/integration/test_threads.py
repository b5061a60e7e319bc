"""Read in many threads while the log is written, rolled, truncated, retained and deleted from."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.second_reader import RECORDS_MIN, Reader
from integration.test_second_process import Owner
from logstore import LogConfig, LogStore, OffsetOutOfRangeError
from support.places import fast_directory
from support.samples import facts, fill

READS = 500
READERS = 4
COLD_THREADS = 64


def run_all(works: list[Callable[[], None]]) -> None:
    """Run functions in threads and raise the first error of any."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.timeout(300)
def test_threads_never_see_a_wrong_record() -> None:
    """Readers take no lock, and see each record at its offset and nothing that was truncated."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"threads: seed {seed}")
    with fast_directory() as base, LogStore.open(base / "logs") as store:
        owner = Owner(store, base / "ledger", random.Random(seed))
        owner.recreate = owner.append  # type: ignore[method-assign]
        owner.append()
        readers = [Reader("", str(base / "ledger"), seed + n) for n in range(READERS)]
        ended: list[Reader] = []

        def write() -> None:
            """Change the log until every reader has ended, however it did."""
            while len(ended) < READERS:
                owner.step()

        def read(reader: Reader) -> None:
            try:
                # An empty log gives nothing, and its readers may be faster than its owner.
                while reader.counts["reads"] < READS or reader.counts["records"] <= RECORDS_MIN:
                    reader.counts["reads"] += 1
                    try:
                        reader.once(owner.log)
                    except OffsetOutOfRangeError:
                        reader.counts["out of range"] += 1
            finally:
                ended.append(reader)

        run_all([write, *(functools.partial(read, reader) for reader in readers)])
        for reader in readers:
            assert reader.counts["records"] > RECORDS_MIN, reader.counts
            print(f"threads: {dict(reader.counts)}")
        print(f"threads: the owner did {owner.counts}")


@pytest.mark.timeout(180)
def test_64_threads_touch_a_cold_log_at_once(tmp_path: Path) -> None:
    """The first touch of each segment by 64 threads at once gives all of them the same records."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=8192))
        fill(log, 200, seed=1)
        records = {r.offset: facts(r) for r in log}
    for path in sorted((tmp_path / "orders-0").glob("*.index"))[::2]:
        path.unlink()
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        gate = threading.Barrier(COLD_THREADS)

        def touch(number: int) -> None:
            rng = random.Random(number)
            gate.wait()
            for offset in rng.sample(sorted(records), 40):
                assert facts(log[offset]) == records[offset]
                assert facts(log.read(offset, max_records=1)[0]) == records[offset]
                time_ms = records[offset][1]
                first = log.offset_for_timestamp(time_ms)
                assert first is not None and first <= offset

        run_all([functools.partial(touch, number) for number in range(COLD_THREADS)])
