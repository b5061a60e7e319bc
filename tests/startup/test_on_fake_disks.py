"""What the table decides about any heap of directories is what a start does to their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyfakefs.fake_filesystem import FakeFilesystem

from logstore.config import StoreConfig
from logstore.disk.documents import checkpoint
from logstore.disk.log_dir import LogDir
from logstore.format.columnar import record_batch as columnar
from logstore.log.environment import LogEnvironment
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
from logstore.store.dirs.parallel import Outcome
from logstore.store.replicas import Replicas
from logstore.store.start import reconcile
from logstore.store.start.listing import purge_tree, with_metadata
from logstore.store.start.reconcile import settle
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts
from support.fake_disk import fake_disk, refusing

Fake = tuple[FakeFilesystem, list[str]]
EXAMPLES = int(os.environ.get("LOGSTORE_FAKE_DISK_EXAMPLES", "200"))
BATCHES = [columnar.frame_one(offset, 0, 1, b"record") for offset in range(3)]
IDS = [f"{number:032x}" for number in range(3)]
MOVE_IDS = ["a" * 32, "b" * 32]


@st.composite
def replica_dirs(draw: Any) -> tuple[int, str, bytes, int]:
    """Draw a directory: its disk, its name, its metadata and how many records are in it."""
    kind = draw(st.sampled_from(["live", "live", "move", "move", "delete", "delete", "stray"]))
    disk, move_id = draw(st.integers(0, 2)), draw(st.sampled_from(MOVE_IDS))
    topic_id = draw(st.sampled_from([bytes(15) + b"t", bytes(15) + b"t", bytes(15) + b"u"]))
    metadata = PartitionMetadata("orders", 0, topic_id, draw(st.integers(1, 3)))
    if kind == "live" and draw(st.booleans()):
        metadata = metadata._replace(moving=Moving(move_id, IDS[draw(st.integers(0, 2))]))
    if kind == "move":
        state = draw(st.sampled_from([COPYING, CAUGHT_UP]))
        metadata = metadata.with_move_record(MoveRecord(move_id, IDS[0], state, 3))
    if kind == "delete":
        why = draw(st.sampled_from(["user", "superseded", "superseded", "unknown"]))
        if why == "user":
            metadata = metadata._replace(extra={DELETION: DELETED_BY_USER})
        elif why == "superseded":
            by = Superseded(draw(st.integers(1, 3)), IDS[draw(st.integers(0, 2))])
            metadata = metadata.with_superseded_by(by)
    document = checkpoint.encode_document(metadata.to_document())
    data = draw(st.sampled_from([document] * 8 + [b"garbage"]))
    name = "orders-0" if kind == "live" else f"orders-0.{move_id}.{kind}"
    return disk, name, data, draw(st.integers(0, 3))


def in_turn(
    items: Sequence[LogDir], work: Callable[[LogDir], object], **_: object
) -> list[Outcome[LogDir]]:
    """Do the work without threads: the fake disks are this thread's."""
    for item in items:
        work(item)
    return [Outcome(item, None, True) for item in items]


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    """Give one fake file system to all examples."""
    with fake_disk() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconcile, "for_each", in_turn)
        yield made


def staged(fs: FakeFilesystem, dirs: list[tuple[int, str, bytes, int]]) -> list[LogDir]:
    """Put directories on three fake disks."""
    if fs.exists("/disks"):
        fs.remove_object("/disks")
    log_dirs = []
    for number in range(3):
        fs.create_dir(f"/disks/{number}")
        log_dirs.append(LogDir(f"/disks/{number}"))
        log_dirs[-1].belong("c" * 32, IDS[number])
    for disk, name, data, count in dirs:
        path = f"/disks/{disk}/{name}"
        fs.create_file(f"{path}/partition.metadata", contents=data)
        fs.create_file(f"{path}/{0:020d}.log", contents=b"".join(BATCHES[:count]))
    return log_dirs


def directories(log_dirs: list[LogDir]) -> set[str]:
    """List all directories of all disks."""
    names = [(d.path, name) for d in log_dirs for name in os.listdir(d.path)]
    return {f"{path}/{name}" for path, name in names if name.startswith("orders-")}


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    dirs=st.lists(replica_dirs(), max_size=5, unique_by=lambda one: one[:2]),
    is_a_dir_bad=st.sampled_from([False, False, True]),
)
def test_names_change_as_decided(
    fake: Fake, dirs: list[tuple[int, str, bytes, int]], is_a_dir_bad: bool
) -> None:
    """Each directory stays, is renamed, marked or purged as its decision says; no call is raw."""
    fs, tried = fake
    log_dirs = staged(fs, dirs)
    before = directories(log_dirs)
    replicas = Replicas(log_dirs, ["d" * 32] if is_a_dir_bad else [])
    settled = settle(replicas, LogEnvironment(StoreConfig(), None))
    assert not settled.failures and not any(log_dir.is_offline for log_dir in log_dirs)
    after = directories(log_dirs)
    assert len(after) == len(before)
    decided = {facts.path for decision in settled.decisions for facts in decision.replicas}
    assert decided == after
    for decision in settled.decisions:
        check(decision, before, is_a_dir_bad)
    for decision in settled.decisions:
        if decision.act is Act.PURGE:
            for path in decision.paths:
                purge_tree(path)
    gone = {path for d in settled.decisions if d.act is Act.PURGE for path in d.paths}
    assert directories(log_dirs) == after - gone
    assert tried == []


def check(decision: Decision, before: set[str], is_a_dir_bad: bool) -> None:
    """Check what one decision left of its directories before the purges."""
    for facts in decision.replicas:
        found = with_metadata(ReplicaFacts(*facts[:5]))
        if facts.topic_id:  # a live copy that stands alone is read when its log opens
            assert (found.topic_id, found.generation) == (facts.topic_id, facts.generation)
        if decision.act in (Act.INCOMPLETE, Act.OFFLINE, Act.RESUME, Act.PURGE_COVERED):
            assert facts.path in before
        if decision.act is Act.RESUME or (decision.act is Act.PURGE and facts.kind == "move"):
            assert not found.is_caught_up
        if decision.act is Act.OPEN and facts.path not in before:  # completed
            assert facts.kind == "live" and not is_a_dir_bad
        if decision.act is Act.PURGE:
            assert facts.kind != "live" and not (is_a_dir_bad and facts.is_deleted_by_user)


def test_the_guard_notices_a_raw_call(fake: Fake) -> None:
    """It would refuse, and count, what slips past the fake."""
    with pytest.raises(AssertionError):
        os.pread(3, 1, 0)
    assert fake[1] == ["pread"]
    fake[1].clear()
    assert callable(refusing("", []))
