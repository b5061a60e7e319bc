"""Cut the power at every call of a history of producers, transactions and truncations.

After the cut, what the log knows of its producers is what its batches tell: no batch is forgotten,
and none is known that is not there. So a batch that is sent again is appended once.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.checks import PowerCutViolation
from crash.power_cut import QUIET, UNSEEN
from logstore import Log, LogConfig, LogStore, LogStoreError
from logstore.log.producers import snapshots
from support.crash_model import CrashModel, Image, Op
from support.places import fast_directory
from support.producers import known, marker_of, sent, told
from support.recorder import Recorder, lay_out

CUTS = int(os.environ.get("LOGSTORE_PRODUCER_CUTS", "150"))
CONFIG = LogConfig(record_format="kafka", segment_bytes=700)
STEPS = 25


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


class Producing:
    """Sends batches as clients and coordinators do, and changes the log in between."""

    def __init__(self, store: LogStore, rng: random.Random) -> None:
        self.store, self.rng = store, rng
        self.log = store.create("orders", 0, config=CONFIG)

    def send(self) -> None:
        """Send the next batch of a producer, or end its transaction."""
        producer_id = self.rng.randrange(4)
        found = {state.producer_id: state for state in self.log.producer_states()}
        state = found.get(producer_id)
        if state is not None and state.open_offset >= 0 and self.rng.random() < 0.5:
            self.log.append_encoded(marker_of(producer_id, commit=self.rng.random() < 0.5))
            return
        next_sequence = 0 if state is None else state.last_sequence + 1
        values = (b"value",) * self.rng.randint(1, 3)
        raw = sent(producer_id, next_sequence, values, transactional=producer_id > 1)
        self.log.append_encoded(raw, durable=self.rng.random() < 0.2)

    def step(self) -> None:
        """Do anything."""
        dice = self.rng.random()
        if dice < 0.6:
            self.send()
        elif dice < 0.75:
            self.log.flush()
        elif dice < 0.9:
            span = self.log.log_end_offset - self.log.log_start_offset
            self.log.truncate_to(self.log.log_end_offset - self.rng.randint(0, min(span, 12)))
        else:
            self.log.checkpoint()


def record(root: Path, seed: int) -> list[Op]:
    """Write a history; the process is closed in order once."""
    root.mkdir()
    rng = random.Random(seed)
    with Recorder(root) as recorder:
        store = LogStore.open(root / "logs", config=QUIET, admin_socket=False)
        producing = Producing(store, rng)
        for _ in range(STEPS):
            producing.step()
        store.close()
        with LogStore.open(root / "logs", config=QUIET, admin_socket=False) as store:
            producing.store, producing.log = store, store.log("orders", 0)
            for _ in range(STEPS):
                producing.step()
    return recorder.ops


def send_again(log: Log) -> None:
    """Send the last batch of each producer again; it must be answered."""
    for state in log.producer_states():
        if not state.batches:
            continue
        last = state.batches[0]
        values = (b"value",) * (last.offset_delta + 1)
        first, is_open = last.last_sequence - last.offset_delta, state.open_offset >= 0
        answer = log.append_encoded(sent(state.producer_id, first, values, transactional=is_open))
        if answer.last_offset != last.last_offset:
            raise PowerCutViolation(f"{state} was appended again at {answer}")


def check(image: Image, root: Path) -> bool:
    """Open what is left; returns whether there is a log."""
    shutil.rmtree(root, ignore_errors=True)
    lay_out(image, root)
    try:
        with LogStore.open(root / "logs", config=QUIET, admin_socket=False) as store:
            if ("orders", 0) not in store:
                return False
            log = store.log("orders", 0)
            if not store.recovery_report.is_sound:
                raise PowerCutViolation(str(store.recovery_report))
            if known(log) != told(log):
                raise PowerCutViolation(f"knows {known(log)}, and its batches tell {told(log)}")
            send_again(log)
    except (LogStoreError, AssertionError) as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error
    return True


def explore(ops: list[Op], root: Path, seed: int, limit: int) -> int:
    """Check images of random moments; returns how many had a log."""
    model, rng, found = CrashModel(), random.Random(seed), 0
    moments = [number for number, op in enumerate(ops) if op[0] not in UNSEEN]
    chosen = set(rng.sample(moments, min(limit, len(moments))))
    for number, op in enumerate(ops):
        if op[0] != "mark":
            model.apply(op)
        if number in chosen:
            found += check(model.lost() if rng.random() < 0.3 else model.crash(rng), root)
    return found


@pytest.mark.timeout(300)
def test_a_power_cut_takes_no_producer_and_brings_none_back(base: Path) -> None:
    """At any call."""
    done = 0
    for seed in itertools.count():
        ops = record(base / f"made-{seed}", seed)
        try:
            done += explore(ops, base / "cut", seed, 50)
        except PowerCutViolation as error:
            pytest.fail(f"seed {seed}: {error}")
        if done >= CUTS:
            break
    print(f"crash: producers: {done} cuts")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["remove_after", "put"])
def test_a_mutant_is_found(base: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Snapshots that a truncation leaves, or that a flush does not write, are noticed."""
    monkeypatch.setattr(snapshots, name, lambda *_: None)
    with pytest.raises(PowerCutViolation):
        for seed in range(30):
            explore(record(base / f"made-{seed}", seed), base / "cut", seed, 40)
