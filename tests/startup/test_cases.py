"""Every combination of directories, as the table decides it and as a start leaves it on disk."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logstore import (
    LogDirOfflineError,
    LogStore,
    LogStoreError,
    ReplicaIncompleteError,
    UnknownPartitionError,
)
from logstore.log.metadata import (
    CAUGHT_UP,
    COPYING,
    DELETED_BY_USER,
    DELETION,
    MoveRecord,
    Moving,
    PartitionMetadata,
    Superseded,
)
from logstore.names import parse_dir_name
from logstore.store.start.startup_table import decide, is_covered
from startup.cases import Case, all_cases, expected, live_copies
from startup.decided_cases import decided
from support.keepers import wait_for_keepers
from support.moves import directory_id_of, metadata_of
from support.places import fast_directory

CASES = list(all_cases())
KEY = ("orders", 0)
NAMED, OTHER = "a" * 32, "b" * 32
LENGTHS = {"superseded, longer": 12}


class Template(NamedTuple):
    """A closed store of four log dirs, and one replica with 10 records and one with 12."""

    root: Path
    replicas: dict[int, Path]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """Make the directories that all cases are copied from."""
    with fast_directory() as base:
        root = base / "template"
        disks = [root / f"disk{number}" for number in range(4)]
        replicas = {}
        with LogStore.open(disks) as store:
            for length in (10, 12):
                log = store.create("orders", length, log_dir=disks[0])
                log.extend([b"record %d" % number for number in range(length)])
        for length in (10, 12):
            replicas[length] = base / str(length)
            (disks[0] / f"orders-{length}").rename(replicas[length])
            for path in replicas[length].glob("*index"):
                path.unlink()
        for disk in disks:
            (disk / "replica-catalog").unlink()
        yield Template(root, replicas)


def put(template: Template, path: Path, metadata: PartitionMetadata, length: int = 10) -> None:
    """Put a directory of the partition on a disk."""
    shutil.copytree(template.replicas[length], path)
    metadata.write(str(path))


def stage(template: Template, case: Case, root: Path) -> list[Path]:
    """Put what a case finds on the disks; gives those that are there."""
    shutil.copytree(template.root, root)
    disks = [root / f"disk{number}" for number in range(4)]
    ids = [directory_id_of(disk) for disk in disks]
    plain = metadata_of(template.replicas[10])._replace(partition=0, generation=1)
    topics = {"t": bytes(15) + b"t", "u": bytes(15) + b"u"}
    plain = plain._replace(topic_id=topics["t"])
    for disk, (topic, generation) in live_copies(case).items():
        live = plain._replace(topic_id=topics[topic], generation=generation)
        if case.live == "names the move":
            live = live._replace(moving=Moving(NAMED, ids[1]))
        put(template, disks[disk] / "orders-0", live)
    move_id = OTHER if case.move == "of another move" else NAMED
    move = disks[1] / f"orders-0.{move_id}.move"
    if case.move == "bare":
        move.mkdir()
    elif case.move != "none":
        state = COPYING if case.move == "copying" else CAUGHT_UP
        record = MoveRecord(move_id, ids[0], state, 10)
        put(template, move, plain._replace(generation=2).with_move_record(record))
    path = disks[0] / f"orders-0.{'c' * 32}.delete"
    if case.delete == "by the user":
        put(template, path, plain._replace(extra={DELETION: DELETED_BY_USER}))
    elif case.delete == "unknown":
        put(template, path, plain)
        (path / "partition.metadata").write_bytes(b"garbage")
    elif case.delete != "none":
        generation = 3 if case.delete == "superseded later" else 2
        old = plain.with_superseded_by(Superseded(generation, ids[1]))
        put(template, path, old, LENGTHS.get(case.delete, 10))
    return disks[:3] if case.is_a_dir_bad else disks


def state_of(store: LogStore, disks: list[Path], end_offset: int) -> tuple[str, int]:
    """Tell how the partition is served, and from which disk."""
    try:
        log = store.log(*KEY)
    except UnknownPartitionError:
        return "gone", -1
    except LogDirOfflineError:  # with a dir bad, and no catalog: who knows
        return ("offline" if KEY in store else "gone"), -1
    except LogStoreError:
        return "offline", -1
    where = disks.index(Path(log.log_dir))
    try:
        offset = log.append(b"one more")
    except ReplicaIncompleteError:
        return "incomplete", where
    assert offset == end_offset and log[9].value == b"record 9"
    return "whole", where


def left_on(disks: list[Path]) -> frozenset[tuple[int, str]]:
    """List disk and kind of every directory of the partition."""
    found = set()
    for number, disk in enumerate(disks):
        for path in disk.iterdir():
            parsed = parse_dir_name(path.name)
            if parsed is not None:
                assert (number, parsed.kind) not in found
                found.add((number, parsed.kind))
    return frozenset(found)


def test_there_are_many_cases() -> None:
    """Hundreds, and each state comes out of several of them."""
    states = Counter(expected(case).state for case in CASES)
    assert len(set(CASES)) == 360
    assert set(states) == {"whole", "incomplete", "offline", "gone"}
    assert min(states.values()) >= 5, states


def test_the_table_alone_decides_them_so() -> None:
    """Without a disk: what its decisions come to is what is expected."""
    for case in CASES:
        assert decided(case, decide, is_covered) == expected(case), case


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_start_makes_of_it_what_it_should(template: Template, case: Case) -> None:
    """The state its users see, the directories that are left, and the same at the next start."""
    outcome = expected(case)
    with fast_directory() as base:
        disks = stage(template, case, base / "store")
        for turn in range(2):
            with LogStore.open(disks, admin_socket=False) as store:
                assert state_of(store, disks, 10 + turn) == (outcome.state, outcome.where)
                wait_for_keepers(store)
                assert left_on(disks) == outcome.left
                assert (KEY in store.host.replicas.copies.moves) is outcome.is_move_kept
        if outcome.is_move_kept and case.move != "bare":
            record = metadata_of(disks[1] / f"orders-0.{NAMED}.move").move_record
            assert record is not None and not record.is_caught_up
