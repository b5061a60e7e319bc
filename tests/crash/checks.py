"""Open what a power cut left, with a real store, and hold it against what was known."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crash.power_cut import QUIET, Known
from logstore import CorruptionError, LogStore, LogStoreError, OffsetOutOfRangeError
from support.crash_model import CrashModel, Image, Op
from support.recorder import Recorder, lay_out


class PowerCutViolation(AssertionError):
    """Says which promise a power cut broke."""


def readable(log: Any) -> Iterator[tuple[int, bytes]]:
    """Give every record that can be read, stepping over damage."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            yield offset, log[offset].value
        except (CorruptionError, OffsetOutOfRangeError):
            continue


def check_log(log: Any, known: Known) -> None:
    """Hold the records of a log against those that it must and may have."""
    found, required, possible = dict(readable(log)), known.required(), known.possible()
    for offset, value in required.items():
        if found.get(offset) != value:
            got = found.get(offset, b"")[:20]
            raise PowerCutViolation(f"offset {offset} was flushed, and reads {got!r}")
    for offset, value in found.items():
        if all(state.records.get(offset) != value for state in possible):
            raise PowerCutViolation(f"offset {offset} has {value[:20]!r}, not of this time")
    starts = [state.start for state in possible]
    if not known.start <= log.log_start_offset <= max(starts):
        raise PowerCutViolation(f"the log starts at {log.log_start_offset}, not {starts}")


def check_small_files(store: LogStore) -> None:
    """A crash leaves each small file old or new; one that is neither is made good elsewhere."""
    told = str(store.recovery_report)
    if "the checksum does not match the content" in told or "the document is empty" in told:
        raise PowerCutViolation(f"a small file is half written: {told}")


def check_store(root: Path, known: Known, *, is_thorough: bool) -> None:
    """Open a store, read all, repair what is damaged, append, and open it again."""
    try:
        with LogStore.open(root / "logs", config=QUIET, admin_socket=False) as store:
            if not known.created:
                return
            log = store.log("orders", 0)
            check_log(log, known)
            check_small_files(store)
            end = log.log_end_offset
            if is_thorough:
                if store.recovery_report.problems:
                    store.repair("orders", 0)
                    check_log(log := store.log("orders", 0), known)
                    end = log.log_end_offset
                if log.append(b"goes on", durable=True) != end:
                    raise PowerCutViolation("an append left a gap")
        if is_thorough:
            with LogStore.open(root / "logs", config=QUIET, admin_socket=False) as store:
                log = store.log("orders", 0)
                if store.recovery_report.problems or log[end].value != b"goes on":
                    raise PowerCutViolation(f"opened again: {store.recovery_report}")
    except LogStoreError as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


class Explorer:
    """Draws images and checks them.

    Attributes:
        states: how many were checked.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.rng, self.states = base, random.Random(seed), 0

    def check(self, image: Image, known: Known) -> None:
        """Check one image; one in eight thoroughly, one in eight with a second cut in recovery."""
        self.states += 1
        root = self.base / "state"
        shutil.rmtree(root, ignore_errors=True)
        lay_out(image, root)
        kind = self.states % 8
        if kind == 1:
            for second in self.cut_in_recovery(root, image):
                self.states += 1
                shutil.rmtree(root)
                lay_out(second, root)
                check_store(root, known, is_thorough=False)
        else:
            check_store(root, known, is_thorough=kind == 0)

    def cut_in_recovery(self, root: Path, image: Image) -> list[Image]:
        """Let recovery run on an image, and cut the power at a few moments of it."""
        with Recorder(root, image) as recorder:
            LogStore.open(root / "logs", config=QUIET, admin_socket=False).close()
        ops = recorder.ops
        moments = {self.rng.randrange(len(ops) + 1) for _ in range(2)}
        model, images = CrashModel(image), []
        for number, op in enumerate([*ops, ("nothing", "")]):
            if number in moments:
                images.append(model.crash(self.rng))
            model.apply(op)
        return images

    def explore(self, ops: list[Op], images_each: int, every: int = 1) -> None:
        """Cut the power after every change of the disk in a record."""
        from crash.power_cut import replay

        for number, (model, known) in enumerate(replay(ops)):
            if number % every:
                continue
            for _ in range(images_each):
                self.check(model.crash(self.rng), known)
