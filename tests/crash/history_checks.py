"""Open what a power cut left of a history, and hold it against what was known at that moment.

    partitions    what was created is there, what was deleted is not, and its name is free
    logs          every durable record is read, nothing that was not appended, nothing deleted;
                  offsets without a gap from the log start to the end; epochs that fit the records
    disks         one live directory each; after the purges no other copy that may come back

A cut that takes whatever is not synced, or a suffix of it, leaves a prefix of each log: nothing is
damaged. One that takes any part of it may leave whole batches behind lost ones; these count as
damage until `repair` (they might as well be what is left of rot), and nothing durable is lost.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from crash.checks import PowerCutViolation
from crash.history_machine import DIRS, in_one_thread, open_store, purge_all
from crash.history_oracle import Key, Known, Oracle, State
from crash.history_steps import CONFIGS
from crash.power_cut import UNSEEN
from logstore import CorruptionError, Log, LogStore, LogStoreError, OffsetOutOfRangeError
from logstore.log.host import replicated_to
from logstore.names import parse_dir_name
from mover import MoveState, ReplicaMover
from support.crash_model import CrashModel, Image, Op
from support.inside import abandon, keepers_of
from support.recorder import lay_out

LATE_OPS = 60  # of so many operations before a cut an ordered journal may have lost any suffix


def found_in(log: Log, *, is_ordered: bool) -> dict[int, tuple[bytes, int]]:
    """Read every record with its epoch; of a damaged log those that can be read."""
    found: dict[int, tuple[bytes, int]] = {}
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            value = log[offset].value
        except OffsetOutOfRangeError:
            continue  # compacted, or a record is missing that has to be there
        except CorruptionError as error:
            if is_ordered:
                raise PowerCutViolation(
                    f"offset {offset} of {log!r} is not read: {error}"
                ) from None
            continue
        assert value is not None
        entries = [epoch for epoch, start in log.leader_epochs if start <= offset]
        found[offset] = (value, entries[-1] if entries else 0)
    return found


def check_log(log: Log, known: Known, *, is_ordered: bool) -> None:
    """Hold the records of a log against those that it must and may have."""
    found = found_in(log, is_ordered=is_ordered)
    states = [state for state in known.possible() if state is not None]
    name = f"{log.topic}-{log.partition}"
    for offset, record in known.required().items():
        if found.get(offset, (b"", 0))[0] != record[0]:
            got = found.get(offset)
            raise PowerCutViolation(f"{name}: offset {offset} was durable, and reads {got}")
    for offset, record in found.items():
        if all(state.records.get(offset) != record for state in states):
            known_as = [state.records.get(offset) for state in states]
            raise PowerCutViolation(f"{name}: offset {offset} has {record}, not one of {known_as}")
    start, end = log.log_start_offset, log.log_end_offset
    if not known.start <= start <= max(state.start for state in states) or start > end:
        raise PowerCutViolation(f"{name}: {start} to {end}, start known {known.start}")
    if is_ordered and not any(is_prefix(found, start, state) for state in states):
        raise PowerCutViolation(f"{name}: {sorted(found)} is no prefix of any of its states")
    check_epochs(log, found, is_ordered=is_ordered)
    check_high_watermark(log, found, known)


def check_epochs(log: Log, found: dict[int, tuple[bytes, int]], *, is_ordered: bool) -> None:
    """Hold the history of epochs, and where each one ended, against those of the records."""
    name, epochs, end = f"{log.topic}-{log.partition}", log.leader_epochs, log.log_end_offset
    if any(one[0] >= two[0] or one[1] >= two[1] for one, two in pairwise(epochs)):
        raise PowerCutViolation(f"{name}: epochs {epochs}")
    if not (is_ordered and found):
        return
    of_records = {offset: epoch for offset, (_, epoch) in found.items()}
    for epoch in range(max(of_records.values()) + 2):
        below = {offset: e for offset, e in of_records.items() if e <= epoch}
        above = [offset for offset, e in of_records.items() if e > epoch]
        expected = (max(below.values()), min(above, default=end)) if below else (-1, -1)
        told = log.end_offset_for_epoch(epoch)
        if told != expected and not (log.config.is_compacted and _fits(told, epoch, below, above)):
            raise PowerCutViolation(f"{name}: epoch {epoch} ended at {told}, not {expected}")


def _fits(told: tuple[int, int], epoch: int, below: dict[int, int], above: list[int]) -> bool:
    """Check a word about an epoch against the records that compaction has left of it."""
    latest, end = max(below.values(), default=-1), max(below, default=-1) + 1
    return latest <= told[0] <= epoch and end <= told[1] <= min(above, default=told[1])


def check_high_watermark(log: Log, found: dict[int, tuple[bytes, int]], known: Known) -> None:
    """Check that only records that were replicated are below it, and that it is kept."""
    name, at = f"{log.topic}-{log.partition}", replicated_to(log)
    states = [state for state in known.possible() if state is not None]
    if all((state.replicated_to is None) != (at is None) for state in states):
        raise PowerCutViolation(f"{name}: its high watermark is {at}, not one of {states}")
    if at is None:
        return
    for offset, record in found.items():
        if offset < at and not any(state.has_replicated(offset, record) for state in states):
            raise PowerCutViolation(f"{name}: {offset} is below {at}, and was not replicated")
    if at < min(known.kept(), log.log_end_offset):
        raise PowerCutViolation(f"{name}: its high watermark is {at}; {known.kept()} was kept")


def is_prefix(found: dict[int, Any], start: int, state: State) -> bool:
    """Tell whether a log holds what a state has up to some offset."""
    end = max(found, default=-1) + 1
    values = {offset: value for offset, (value, _) in found.items()}
    epochs_fit = all(state.records.get(o) == record for o, record in found.items())
    return epochs_fit and state.may_read(values, start, end)


def check_partition(store: LogStore, key: Key, known: Known, *, is_ordered: bool) -> None:
    """Check that a partition is there or not, and its log."""
    possible = known.possible()
    is_there = key in store.host.replicas
    if known.is_left:
        return
    if is_there and all(state is None for state in possible):
        raise PowerCutViolation(f"{key} was deleted, or never created, and is there")
    if not is_there and None not in possible:
        raise PowerCutViolation(f"{key} is gone")
    if is_there:
        try:
            log = store.log(*key)
            if not isinstance(log, Log):
                raise PowerCutViolation(f"{key} is incomplete: {store.recovery_report}")
            check_log(log, known, is_ordered=is_ordered)
        except LogStoreError as error:
            raise PowerCutViolation(f"{key}: {type(error).__name__}: {error}") from error


def copies(root: Path, names: Sequence[str]) -> dict[Key, list[str]]:
    """List the directories of each replica in some log dirs, with their kinds."""
    found: dict[Key, list[str]] = {}
    for log_dir in names:
        for name in os.listdir(root / log_dir) if (root / log_dir).exists() else ():
            parsed = parse_dir_name(name)
            if parsed is not None:
                found.setdefault((parsed.topic, parsed.partition), []).append(parsed.kind)
    return found


def check_store(root: Path, oracle: Oracle, *, is_ordered: bool, is_thorough: bool) -> None:
    """Open a store and read all; thoroughly: repair, end moves, purge, append, open it again."""
    try:
        with in_one_thread():
            names = oracle.dirs or DIRS
            if oracle.changing is not None:
                names = tuple(dict.fromkeys((*names, oracle.changing)))
                is_thorough = False  # which log dirs there are is not known
            if any(known.is_left for known in oracle.partitions.values()):
                is_thorough = False
            store = open_store(root, names=names)
            try:
                _check_opened(store, oracle, is_ordered=is_ordered)
                ends = _go_on(store, root, names, oracle, is_ordered) if is_thorough else {}
            finally:
                abandon(store)
            if is_thorough:
                _check_again(root, names, ends)
    except LogStoreError as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


def _check_opened(store: LogStore, oracle: Oracle, *, is_ordered: bool) -> None:
    report, changing = store.recovery_report, oracle.changing
    away = {one.path for one in report.offline_dirs}
    is_half_way = changing is not None and all(path.endswith(changing) for path in away)
    left = {key for key, known in oracle.partitions.items() if known.is_left}
    incomplete = [one for one in report.incomplete if one.topic_partition not in left]
    is_sound = not (report.problems or report.offline or incomplete or report.lost)
    if is_ordered and not (is_sound and (is_half_way or not away)):
        raise PowerCutViolation(f"it is not sound: {report}")
    if changing is None and store.host.replicas.missing_ids:
        raise PowerCutViolation(f"log dirs are missing: {store.host.replicas.missing_ids}")
    for key, known in oracle.partitions.items():
        check_partition(store, key, known, is_ordered=is_ordered)


def _go_on(
    store: LogStore, root: Path, names: Sequence[str], oracle: Oracle, is_ordered: bool
) -> dict[Key, int]:
    """Work with what was opened; give where its logs ended."""
    ends: dict[Key, int] = {}
    for key in list(oracle.partitions):
        if key in store.host.replicas and store.repair(*key).lost and is_ordered:
            raise PowerCutViolation(f"{key}: a repair lost something")
    purge_all(store)
    _end_moves(store)
    for key, known in oracle.partitions.items():
        if key in store.host.replicas:
            check_partition(store, key, known, is_ordered=is_ordered)
        log = (
            store.log(*key)
            if key in store.host.replicas
            else store.create(*key, config=CONFIGS[key])
        )
        ends[key] = log.log_end_offset
        if log.append(b"goes on", key=b"goes on", durable=True) != ends[key]:
            raise PowerCutViolation(f"{key}: an append left a gap")
        if log.verify():
            raise PowerCutViolation(f"{key}: {log.verify()}")
    for keeper in keepers_of(store).values():
        keeper.run_one("checkpoint")
    purge_all(store)
    for key, kinds in copies(root, names).items():
        left = {one.dir_name for one in store.host.replicas.copies.superseded.values()}
        if kinds.count("live") != 1 or (len(kinds) > 1 and not left):
            raise PowerCutViolation(f"{key}: its directories are {kinds}")
    return ends


def _end_moves(store: LogStore) -> None:
    for log_dir in store.log_dirs:  # the cut may have come while one was cordoned
        store.uncordon(log_dir)
    with ReplicaMover(store) as mover:
        for move in mover.moves():
            if move.state is not MoveState.DONE:
                raise PowerCutViolation(f"{move}: {move.error}")


def _check_again(root: Path, names: Sequence[str], ends: dict[Key, int]) -> None:
    store = open_store(root, names=names)
    try:
        if not store.recovery_report.is_sound:
            raise PowerCutViolation(f"opened again: {store.recovery_report}")
        for key, end in ends.items():
            if store.log(*key)[end].value != b"goes on":
                raise PowerCutViolation(f"{key}: opened again, its last record is another")
    finally:
        abandon(store)


class HistoryExplorer:
    """Draws images of a record, and checks them.

    Attributes:
        states: how many were checked.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self.root, self.rng, self.states = base / f"state-{seed}", random.Random(seed), 0

    def explore(self, ops: list[Op], cuts: int) -> None:
        """Cut the power at so many moments of a record, in three ways each."""
        changes = [n for n, op in enumerate(ops, 1) if op[0] not in UNSEEN]
        moments = set(self.rng.sample(changes, min(cuts, len(changes))))
        model, oracle = CrashModel(), Oracle()
        for number, op in enumerate(ops, 1):
            if op[0] == "mark":
                oracle.hear(op[1])
            else:
                model.apply(op)
            if number in moments:
                self.check(model.lost(), oracle, is_ordered=True)
                self.check(self.ordered(ops, number), oracle, is_ordered=True)
                self.check(model.crash(self.rng), oracle, is_ordered=False)

    def ordered(self, ops: list[Op], number: int) -> Image:
        """Give what is left when a journal had written a prefix of what was done."""
        before = max(0, number - self.rng.randrange(LATE_OPS))
        model = CrashModel()
        for op in ops[:before]:
            model.apply(op)
        model.settle()
        for op in ops[before:number]:
            model.apply(op)
        return model.lost()

    def check(self, image: Image, oracle: Oracle, *, is_ordered: bool) -> None:
        self.states += 1
        shutil.rmtree(self.root, ignore_errors=True)
        lay_out(image, self.root)
        for name in DIRS:  # mount points
            (self.root / name).parent.mkdir(exist_ok=True)
        is_thorough = self.states % 4 == 0
        check_store(self.root, oracle, is_ordered=is_ordered, is_thorough=is_thorough)
