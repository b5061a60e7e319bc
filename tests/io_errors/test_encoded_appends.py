"""Fail the N-th call of an append of 2 to 50 encoded batches, for every N and every kind of error.

Either all batches are in the log afterwards or none is, in memory and after the next start, and
the exception says which. Only if the disk refuses even the call that cuts off what was written,
the exception says that nobody knows. A seed makes the batches, the log and the kind of append.
LOGSTORE_STRIDE=1 takes every number of batches with every fault, else some.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from io_errors.scenarios import QUIET, SECONDS_MAX
from logstore import Log, LogConfig, LogStore, LogStoreError
from logstore.log.encoded import follower_appends, leader_appends
from logstore.log.write import batch_group
from support.faulty import FAULTS, INTERRUPTED, MORE_FAULTS, Fault, FaultyFiles, do_a_part
from support.hostile import column, columnar_batch, kafka_batch, row
from support.interrupts import WRITING, InterruptAt
from support.places import fast_directory

pytestmark = pytest.mark.timeout(SECONDS_MAX)
BATCHES_MAX = 50
IS_WHOLE = os.environ.get("LOGSTORE_STRIDE") == "1"
COUNTS = range(2, BATCHES_MAX + 1)
FIRST = 3  # records in the log before
NTH_MAX = 200
ERRORS = [fault for fault in (*FAULTS, *MORE_FAULTS) if "close" not in fault.name]
# Ctrl-C comes before a call, after it, or after a part of a write.
INTERRUPTS = [
    Fault(f"Ctrl-C {when}", None, INTERRUPTED) for when in ("before", "after", "after a part")
]


class InterruptedFiles(FaultyFiles):
    """Raises KeyboardInterrupt at the N-th call."""

    def _fail(self, name: str, path: str, original: Any, args: Any, kwargs: Any) -> Any:
        assert self.fault is not None
        self.injected.append((name, path))
        if self.fault.name.endswith("part") and name in ("pwrite", "pwritev"):
            do_a_part(name, original, args)
        elif not self.fault.name.endswith("before"):
            result = original(*args, **kwargs)
            if name == "open_file":
                os.close(result)  # nobody is given it
        raise KeyboardInterrupt


class Case:
    """One append, as a seed makes it.

    Attributes:
        count: of the batches.
    """

    def __init__(self, seed: int, count: int) -> None:
        chance, self.count = random.Random(seed), count
        self.is_kafka = chance.random() < 0.5
        self.is_follower, self.is_durable = chance.random() < 0.4, chance.random() < 0.3
        sizes = [chance.choice((1, 2, 3)) for _ in range(count)]
        self.values = [
            [b"%d of %d" % (at, number) + bytes(chance.randrange(60)) for at in range(size)]
            for number, size in enumerate(sizes)
        ]
        size = len(self.raw())
        self.config = LogConfig(
            segment_bytes=max(256, chance.choice((size // 7, size // 2, 4 * size))),
            index_interval_bytes=chance.choice((0, 256, 4096)),
            record_format="kafka" if self.is_kafka else "columnar",
        )

    def raw(self) -> bytes:
        """Encode the batches, with the offsets that they get."""
        made, offset = [], FIRST
        for values in self.values:
            if self.is_kafka:
                rows = b"".join(row(value, 0, at) for at, value in enumerate(values))
                data = bytearray(kafka_batch(rows, len(values)))
                data[:8] = offset.to_bytes(8, "big")
                made.append(bytes(data))
            else:
                cells: list[bytes | None] = [*values]
                made.append(columnar_batch(column(cells), len(cells), base_offset=offset))
            offset += len(values)
        return b"".join(made)

    def begin(self, store: LogStore) -> Log:
        """Make a log with some records."""
        log = store.create("t", 0, config=self.config)
        for number in range(FIRST):
            log.append(b"first %d" % number)
        log.flush()
        return log

    def append(self, log: Log, raw: bytes) -> None:
        """Do the append."""
        call: Callable[..., object] = (
            log.append_as_follower if self.is_follower else log.append_encoded
        )
        call(raw, durable=self.is_durable, leader_epoch=0)

    @property
    def before(self) -> list[bytes]:
        """The values before the append."""
        return [b"first %d" % number for number in range(FIRST)]

    @property
    def after(self) -> list[bytes]:
        """The values after the append."""
        return self.before + [value for values in self.values for value in values]


def values_of(log: Log) -> list[bytes | None]:
    """Read the whole log."""
    return [record.value for record in log]


def run(case: Case, fault: Callable[[str], Any], *, is_lasting: bool) -> tuple[str, Any]:
    """Append under a fault, and hold what was said against the log and the next start.

    Args:
        fault: makes a context in which the log dir fails.
        is_lasting: the disk refuses whatever comes after it, too.

    Returns:
        What was said, and the context.
    """
    raw, said = case.raw(), "done"
    with fast_directory() as place:
        with LogStore.open(place, config=QUIET, admin_socket=False) as store:
            log = case.begin(store)
            context = fault(str(place))
            try:
                with context:
                    case.append(log, raw)
            except LogStoreError as error:
                assert "is_written" in vars(error), f"it does not say it: {error!r}"
                said = str(error.is_written)
            except KeyboardInterrupt as interrupt:  # or it came before the append began
                said = str(vars(interrupt).get("is_written", False))
            assert said != "None" or is_lasting or case.is_durable
            expected = {
                "done": [case.after], "True": [case.after], "False": [case.before],
                "None": [case.before, case.after],
            }[said]  # fmt: skip
            try:
                found = values_of(log)
            except LogStoreError:
                assert said != "done"  # the log dir is offline
            else:
                assert found in expected, (said, len(found))
                if said == "False":
                    case.append(log, raw)
                    expected = [case.after]
        with LogStore.open(place, config=QUIET, admin_socket=False) as store:
            log = store.log("t", 0)
            found = values_of(log)
            if said == "None" and is_lasting:  # the disk refused to be cut
                assert found == case.after[: len(found)] and len(found) >= FIRST
            else:
                assert found in expected, (said, len(found), "after a start")
            assert log.verify() == []
            assert log.append(b"next") == len(found)
    return said, context


def run_all(case: Case, fault: Fault) -> Counter[str]:
    """Run a case with the fault at each call; count what was said."""
    seen: Counter[str] = Counter()
    kind = InterruptedFiles if fault in INTERRUPTS else FaultyFiles
    for nth in range(1, NTH_MAX):
        make = partial(kind, fault=fault, nth=nth)
        said, faulty = run(case, make, is_lasting=fault.is_sticky)
        seen[said] += 1
        if not faulty.injected:
            return seen
    raise AssertionError(f"{case.count} batches took more than {NTH_MAX} calls")


@pytest.mark.parametrize("fault", [*ERRORS, *INTERRUPTS], ids=lambda fault: fault.name)
def test_a_failed_append_is_whole_or_nothing(fault: Fault) -> None:
    """At each of its calls; only a disk that fails for good may leave it unknown."""
    seen: Counter[str] = Counter()
    chance = random.Random(fault.name)
    for count in COUNTS if IS_WHOLE else chance.sample(COUNTS, 2):
        seen += run_all(Case(chance.randrange(2**32), count), fault)
    print(fault.name, dict(seen))
    assert seen["done"] > 0


@pytest.mark.parametrize("count", [2, 17])
@pytest.mark.parametrize("seed", range(4))
def test_an_interrupt_at_any_line_is_whole_or_nothing(seed: int, count: int) -> None:
    """Ctrl-C before each line of the modules that append, and every so many lines."""
    case, number, was_hit = Case(seed, count), 0, True
    seen: Counter[str] = Counter()
    modules = (leader_appends, follower_appends, batch_group, *WRITING)
    while was_hit:
        number += 1 if IS_WHOLE else 1 + number // 8
        it = InterruptAt(number, *modules)
        said, _ = run(case, lambda _, it=it: it, is_lasting=False)  # type: ignore[misc]
        seen[said] += 1
        was_hit = it.was_hit
    assert seen["False"] > 0 and seen["True"] > 0, seen
