"""Cut the power at every call of a compaction, and of the recovery after it.

All that was appended is flushed before. So whatever the cut leaves, the latest record of each key
is there, no older one takes its place, and the log is whole and takes records.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.checks import PowerCutViolation
from crash.power_cut import QUIET, UNSEEN
from logstore import LogStore, LogStoreError
from support.crash_model import CrashModel, Image, Op
from support.keyed_logs import COMPACTED, Keyed
from support.places import fast_directory
from support.recorder import Recorder, lay_out

LAYOUTS = ("columnar", "kafka")
IMAGES = int(os.environ.get("LOGSTORE_COMPACTION_CUTS", "3"))  # at each call
SWAPS = 3  # images in the middle of a replacement, whose recovery is cut again


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def record(root: Path, layout: str) -> tuple[list[Op], int, Keyed]:
    """Compact twice, so that segments merge; give the calls, and which of them was the first."""
    root.mkdir()
    config = COMPACTED.replace(record_format=layout, segment_bytes=700)
    with Recorder(root) as recorder:
        store = LogStore.open(root / "logs", config=QUIET, admin_socket=False)
        keep = Keyed(store.create("orders", 0, config=config), key_count=6)
        keep.append(14)
        keep.log.compact()
        keep.append(8)
        begun = len(recorder.ops)
        merged = keep.log.compact()
        ended = len(recorder.ops)
        store.close()
    assert merged.segments_made < merged.segments_replaced
    return recorder.ops[:ended], begun, keep


def check(image: Image, root: Path, keep: Keyed) -> None:
    """Open what is left, read all of it, and go on."""
    shutil.rmtree(root, ignore_errors=True)
    lay_out(image, root)
    try:
        with LogStore.open(root / "logs", config=QUIET, admin_socket=False) as store:
            log = store.log("orders", 0)
            if not store.recovery_report.is_sound:
                raise PowerCutViolation(str(store.recovery_report))
            names = [path.name for path in Path(log.directory).iterdir()]
            if [name for name in names if name.endswith((".cleaned", ".swap", ".tmp"))]:
                raise PowerCutViolation(str(names))
            end = max(keep.appended) + 1
            keep.check(log)
            if log.verify() or log.append(b"goes on", key=b"k", durable=True) != end:
                raise PowerCutViolation(f"{log.verify()}, {log.log_end_offset}")
    except (LogStoreError, AssertionError) as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


def explore(
    ops: list[Op], begun: int, keep: Keyed, root: Path, images: int = IMAGES
) -> list[Image]:
    """Check images of every moment; give those that a replacement was in the middle of."""
    model, rng, swaps = CrashModel(), random.Random(len(ops)), []
    for number, op in enumerate(ops):
        if op[0] != "mark":
            model.apply(op)
        if number < begun or op[0] in UNSEEN:
            continue
        for image in [model.lost(), *(model.crash(rng) for _ in range(images))]:
            check(image, root, keep)
            if any(path.endswith(".swap") for path in image):
                swaps.append(image)
    return swaps


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_power_cut_in_a_compaction_loses_and_brings_back_nothing(base: Path, layout: str) -> None:
    """Nor one in the recovery from it."""
    ops, begun, keep = record(base / "made", layout)
    swaps = explore(ops, begun, keep, base / "cut")
    assert len(swaps) > SWAPS
    for image in random.Random(1).sample(swaps, SWAPS):
        shutil.rmtree(base / "again", ignore_errors=True)
        lay_out(image, base / "again")
        with Recorder(base / "again", image) as recorder:
            LogStore.open(base / "again" / "logs", config=QUIET, admin_socket=False).close()
        model, rng = CrashModel(image), random.Random(2)
        for op in recorder.ops:
            if op[0] != "mark":
                model.apply(op)
                check(model.crash(rng), base / "cut", keep)


def directory_syncs(ops: list[Op], begun: int) -> list[int]:
    """Find the syncs of names within the replacement of several segments."""
    first = next(n for n, op in enumerate(ops) if n >= begun and op[0] == "link")
    return [n for n, op in enumerate(ops) if n > first and op[:2] == ("sync dir", "logs/orders-0")]


def without(number: int) -> Callable[[list[Op], int], list[Op]]:
    """Leave out one of the syncs of the first replacement."""
    return lambda ops, begun: [
        op for n, op in enumerate(ops) if n != directory_syncs(ops, begun)[number]
    ]


def without_data(ops: list[Op], begun: int) -> list[Op]:
    """Leave out the sync of what was written."""
    paths = {op[2]: op[1] for op in ops if op[0] == "create"}
    return [
        op for op in ops if not (op[0] == "sync" and str(paths.get(op[1])).endswith(".cleaned"))
    ]


def without_second_name(ops: list[Op], begun: int) -> list[Op]:
    """Leave out the `.swap`."""
    return [op for op in ops if op[0] != "link" and not str(op[1]).endswith(".swap")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "worse", [without(0), without(1), without(2), without_data, without_second_name]
)
def test_each_step_of_a_replacement_is_needed(
    base: Path, worse: Callable[[list[Op], int], list[Op]]
) -> None:
    """Without one of its syncs, or without the second name, some cut breaks the log."""
    ops, begun, keep = record(base / "made", "columnar")
    ended = next(n for n, op in enumerate(ops) if op[0] == "remove" and op[1].endswith(".swap"))
    begun = next(n for n, op in enumerate(ops) if n >= begun and op[0] == "link")
    with pytest.raises(PowerCutViolation):
        explore(worse(ops[: ended + 1], begun), begun - 1, keep, base / "cut", images=60)
