"""Build the directory of a copy while its log changes, and find it again after a stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogStore
from logstore.disk import bulk, files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError
from logstore.log import relocation
from logstore.log.epochs import LeaderEpochs
from logstore.log.metadata import CAUGHT_UP, COPYING, MoveRecord, PartitionMetadata
from logstore.names import TopicPartition
from mover.copying.catch_up import copy_all, is_caught_up
from mover.copying.copy_segments import Ends
from mover.copying.target import NOBODYS, Target, bytes_standing
from support.gate import Gate
from support.moving import CONFIG, fill, records_on_disk, replica_dirs

KEY, MOVE_ID = TopicPartition("orders", 0), "ab" * 16


def log_dir_of(store: LogStore, path: Path) -> LogDir:
    """Return a log dir of the store."""
    found = store.host.replicas.find_dir(str(path))
    assert found is not None
    return found


@pytest.fixture
def ends(store: LogStore, base: Path) -> Ends:
    """Lead from the first log dir to the second."""
    source, target = (log_dir_of(store, base / name) for name in "ab")
    return Ends(source, target, Gate(), lambda: False, lambda count: None)  # type: ignore[arg-type]


def target_of(ends: Ends, move_id: str = MOVE_ID, key: TopicPartition = KEY) -> Target:
    """Name the directory of a move, without making it."""
    return Target(ends, key, move_id, CONFIG.index_interval_bytes)


def record_of(target: Target) -> MoveRecord:
    """Read the move record of the copy."""
    metadata = PartitionMetadata.read(target.path)
    assert metadata is not None and metadata.move_record is not None
    return metadata.move_record


def test_a_copy_is_marked_before_it_has_a_byte(log: Log, ends: Ends) -> None:
    """The mark names the move and the source, and its generation outranks the log's."""
    target = target_of(ends)
    target.begin(relocation.metadata_of(log))
    assert record_of(target) == (MOVE_ID, ends.source.directory_id, COPYING, 0)
    metadata = PartitionMetadata.read(target.path)
    assert metadata is not None
    assert metadata.generation == relocation.metadata_of(log).generation + 1
    assert (target.copied_bytes, bytes_standing(ends.target, KEY, MOVE_ID)) == (0, 0)


def test_a_copy_follows_truncation_retention_and_appends(log: Log, ends: Ends) -> None:
    """After each pass, all bytes of the copy equal the log's bytes, in every segment."""
    target = target_of(ends)
    target.begin(relocation.metadata_of(log))
    changes: list[Callable[[], object]] = [
        list,
        lambda: log.truncate_to(333),
        lambda: fill(log, 9),
        lambda: log.delete_records_before(200),
        lambda: log.truncate_to(200),
        lambda: fill(log, 30),
        lambda: log.start_at(log.log_end_offset + 50),
        lambda: fill(log, 30),
    ]
    for change in changes:
        change()
        copy_all(log, target, ends)
        target.sync()
        assert is_caught_up(relocation.segments_of(log), target)
        assert target.copied_bytes == log.size_bytes
        assert bytes_standing(ends.target, KEY, MOVE_ID) == log.size_bytes
    made = target.segments(target.path)
    assert [one.end_offset for one in made][-1] == log.log_end_offset
    assert [one.base_offset for one in made] == [s.base_offset for s in relocation.segments_of(log)]
    found = [row for row in records_on_disk(Path(target.path)) if row[0] >= log.log_start_offset]
    assert found == [(record.offset, record.value) for record in log]


@pytest.mark.parametrize("changes_generation", [False, True])
def test_a_copy_that_was_left_is_taken_up_only_if_it_is_of_this_log(
    log: Log, ends: Ends, changes_generation: bool
) -> None:
    """Bytes of another generation of the log are removed; others are not copied again."""
    first = target_of(ends)
    first.begin(relocation.metadata_of(log))
    copy_all(log, first, ends)
    first.sync()
    first.let_go()
    metadata = relocation.metadata_of(log)
    if changes_generation:
        metadata = metadata._replace(generation=metadata.generation + 1)
    second = target_of(ends)
    second.begin(metadata)
    assert second.copied_bytes == (0 if changes_generation else log.size_bytes)
    assert bytes_standing(ends.target, KEY, MOVE_ID) == second.copied_bytes


def test_other_moves_of_the_same_replica_are_removed(
    store: LogStore, log: Log, base: Path, ends: Ends
) -> None:
    """Copies of other partitions stay, even if their names begin the same way."""
    store.create("orders", 1, log_dir=base / "a")
    other = target_of(ends, "cd" * 16, TopicPartition("orders", 1))
    other.begin(relocation.metadata_of(store["orders", 1]))
    earlier = target_of(ends, "ef" * 16)
    earlier.begin(relocation.metadata_of(log))
    target = target_of(ends)
    target.begin(relocation.metadata_of(log))
    found = [str(base / name) for name in replica_dirs(base) if name.startswith("b/")]
    assert found == sorted([other.path, target.path])


def test_regression_the_keeper_removes_the_copy_of_another_move_at_the_same_time(
    log: Log, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new move continues, because the directory is gone."""
    other = target_of(ends, "cd" * 16)
    other.begin(relocation.metadata_of(log))
    other.let_go()
    entries = files.entries

    def meanwhile(path: str) -> list[files.Entry]:
        found = entries(path)
        if path == other.path:
            monkeypatch.undo()
            bulk.remove_tree(path)
        return found

    monkeypatch.setattr(files, "entries", meanwhile)
    target = target_of(ends)
    target.begin(relocation.metadata_of(log))
    assert os.path.isdir(target.path) and not os.path.exists(other.path)


def test_a_place_that_is_taken_is_left_alone(log: Log, base: Path, ends: Ends) -> None:
    """The error names the existing object, and the object is not changed."""
    target = target_of(ends)
    target.check_vacant()
    os.mkdir(target.live_path)
    with pytest.raises(LogDirError, match="exists already"):
        target.check_vacant()
    assert os.listdir(target.live_path) == []


def test_a_mark_says_how_far_the_copy_has_come(log: Log, ends: Ends) -> None:
    """The returned metadata is that of the copy when it is live, without marks."""
    target = target_of(ends)
    target.begin(relocation.metadata_of(log))
    copy_all(log, target, ends)
    target.sync()
    target.write_epochs([(0, 0), (7, 600)], relocation.whose_epochs(log))
    clean = target.mark_caught_up(relocation.metadata_of(log), log.log_end_offset)
    assert record_of(target) == (MOVE_ID, ends.source.directory_id, CAUGHT_UP, log.log_end_offset)
    assert (clean.move_record, clean.moving) == (None, None)
    epochs = LeaderEpochs.read(target.path)
    assert epochs is not None and epochs.entries == [(0, 0), (7, 600)]


def test_a_copy_is_disowned_and_removed(log: Log, ends: Ends) -> None:
    """A disowned copy belongs to no move; a removal, even a second one, leaves nothing."""
    target = target_of(ends)
    target.disown()  # there is none yet
    target.begin(relocation.metadata_of(log))
    copy_all(log, target, ends)
    target.disown()
    assert record_of(target).move_id == NOBODYS
    target.remove()
    target.remove()
    assert not os.path.exists(target.path)
    assert bytes_standing(ends.target, KEY, MOVE_ID) == 0
