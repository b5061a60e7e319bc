"""No small file is believed before its kind, its log and its values are checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore
from logstore.disk.documents import checkpoint
from logstore.log.epochs import LeaderEpochs
from startup.small_files import encode

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=256)
COUNT = 60
METADATA, EPOCHS = "t-0/partition.metadata", "t-0/leader-epoch-checkpoint"
STARTS, POINTS = "log-start-offset-checkpoint", "recovery-point-offset-checkpoint"


def fill(log: Any, end: int = COUNT) -> None:
    """Append records up to an offset, three to a batch."""
    while log.log_end_offset < end:
        log.extend([b"%d" % log.log_end_offset * 20] * 3)


def offsets(store: LogStore) -> list[int]:
    """Read the offsets of the log."""
    return [record.offset for record in store["t", 0]]


def told(store: LogStore) -> str:
    """Give the report of the opening."""
    return str(store.recovery_report)


def change(path: Path, **changes: Any) -> None:
    """Change fields of a document; its checksum is right."""
    document = json.loads(path.read_bytes().split(b"\n")[0])
    path.write_bytes(encode(json.dumps({**document, **changes})))


def segments(base: Path) -> list[str]:
    """List the segments."""
    return sorted(path.name for path in base.glob("t-0/*.log"))


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """Make a log of many segments that was closed in order; each record is to be there after."""
    with LogStore.open(tmp_path / "s", admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        fill(log, 30)
        log.leader_epoch = 3
        fill(log)
    before = segments(tmp_path / "s")
    yield tmp_path / "s"
    assert segments(tmp_path / "s")[: len(before)] == before


def check(base: Path, *sentences: str, is_once: bool = True) -> None:
    """Everything is read, by a view and by the owner; what was wrong is reported, once."""
    with LogStore.open(base, read_only=True) as view:
        assert view.describe_dirs().log_dirs[0].is_live
        assert offsets(view) == list(range(COUNT))
    with LogStore.open(base, admin_socket=False) as store:
        for sentence in sentences:
            assert sentence in told(store)
        assert offsets(store) == list(range(COUNT))
        assert store["t", 0].leader_epoch == 3
        store["t", 0].append(b"next")
        store["t", 0].truncate_to(COUNT)
    with LogStore.open(base, admin_socket=False) as store:
        assert offsets(store) == list(range(COUNT))
        assert store.recovery_report.is_sound
        assert not store.recovery_report.warnings or not is_once
        assert not [one for entry in store.recovery_report.entries for one in entry.warnings]


@pytest.mark.parametrize("start", [1, 33, COUNT, COUNT + 1, 2**40, 2**62])
def test_regression_a_log_start_in_one_file_deletes_nothing(base: Path, start: int) -> None:
    """The file of the leader epochs does not name it; it once deleted every segment."""
    change(base / METADATA, log_start_offset=start)
    told = f"partition.metadata has the log start {start}"
    check(base, f"{told}, which leader-epoch-checkpoint does not confirm")


@pytest.mark.parametrize("start", [33, 2**40])
def test_regression_a_log_start_that_only_one_file_can_name_deletes_nothing(
    base: Path, start: int
) -> None:
    """In a store of an earlier version it stands alone: it hides what it can, and no more."""
    (base / EPOCHS).unlink()
    (base / STARTS).unlink()
    change(base / METADATA, log_start_offset=start)
    with LogStore.open(base, admin_socket=False) as store:
        hidden = start if start < COUNT else 0
        assert offsets(store) == list(range(hidden, COUNT))
        assert hidden or "This start is ignored" in told(store)


@pytest.mark.parametrize(
    ("start", "is_checkpoint_lost", "found"), [(1, False, 1), (1, True, 0), (50, True, 50)]
)
def test_an_older_file_of_epochs_brings_back_records_of_one_segment_at_most(
    tmp_path: Path, start: int, is_checkpoint_lost: bool, found: int
) -> None:
    """DURABILITY.md: only if no checkpoint names the newer start and no segment is gone."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        log.leader_epoch = 3
        fill(log)
    older = (tmp_path / EPOCHS).read_bytes()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        store["t", 0].delete_records_before(start)
    (tmp_path / EPOCHS).write_bytes(older)
    if is_checkpoint_lost:
        (tmp_path / STARTS).unlink()
    with LogStore.open(tmp_path, admin_socket=False) as store:
        assert store["t", 0].log_start_offset == found
        assert ("does not confirm" in told(store)) is (found != start)


def test_regression_metadata_of_an_earlier_topic_is_made_anew(tmp_path: Path) -> None:
    """It was believed, and what it says was deleted went, before the topic ids were compared."""
    base = tmp_path / "s"
    with LogStore.open(base, admin_socket=False) as store:
        log = store.create("t", 0, config=CONFIG)
        fill(log)
        log.delete_records_before(50)
    earlier = {name: (base / name).read_bytes() for name in (METADATA, EPOCHS, STARTS, POINTS)}
    with LogStore.open(base, admin_socket=False) as store:
        store.delete("t", 0)
        log = store.create("t", 0, config=CONFIG)
        fill(log, 30)
        log.leader_epoch = 3
        fill(log)
        topic_id = log.topic_id
    for name, data in earlier.items():
        copy = tmp_path / "copy"
        shutil.copytree(base, copy)
        (copy / name).write_bytes(data)
        check(copy, "another topic with the same name" if name != EPOCHS else "it is rewritten")
        with LogStore.open(copy, admin_socket=False) as store:
            assert store["t", 0].topic_id == topic_id
        shutil.rmtree(copy)


def test_regression_a_log_start_checkpoint_without_topic_ids_hides_nothing(base: Path) -> None:
    """It names no topic id: it may be of an earlier topic of the same name."""
    document = json.loads((base / STARTS).read_bytes().split(b"\n")[0])
    document.pop("topic_ids", None)  # version 0.1.0 wrote none
    document["offsets"] = [["t", 0, 50]]
    (base / STARTS).write_bytes(encode(json.dumps(document)))
    check(base, "the log start offset 50 in the checkpoint is not used")


@pytest.mark.parametrize(
    ("epochs", "sentence"),
    [
        ([[0, 0]], "has epoch 0 at offset"),
        ([[7, 0]], "has epoch 7 at offset"),
        ([[0, 0], [3, 31]], "rebuilt from the batches: epoch 3 does not begin at offset 31"),
        ([[0, 6], [3, 30]], "epoch"),
        ([[3, 0], [0, 30]], "epochs and their offsets must rise"),
        ([[0, 0], [3, 30], [4, 2**61]], "corrected: the file has an epoch that begins after"),
        ([[0, 0], [3, 2**61]], "begins after the log end offset"),
        ([[0, 0], [2**63, 30]], "an epoch is 9223372036854775808"),
        ([[0, 0], [3, -1]], "the first offset of an epoch is -1"),
        ([[0, 0], ["x", 30]], "an epoch is x"),
        (None, "epochs is None, not a list"),
    ],
)
def test_regression_leader_epochs_that_the_batches_contradict(
    base: Path, epochs: object, sentence: str
) -> None:
    """They are found in the batches again, and a leader of the right epoch may append."""
    change(base / EPOCHS, epochs=epochs)
    check(base, sentence)
    found = LeaderEpochs.read(str(base / "t-0"))
    assert found is not None and found.entries == [(0, 0), (3, 30)]


@pytest.mark.parametrize("other", [METADATA, EPOCHS, STARTS, POINTS, ".lock", "log-dir-settings"])
def test_regression_a_file_of_another_kind_takes_no_replica_offline(base: Path, other: str) -> None:
    """It was `KeyError: 'epochs'`."""
    with LogStore.open(base, admin_socket=False) as store:
        store.cordon(base)
    data = (base / other).read_bytes()
    for name in {METADATA, EPOCHS, STARTS, POINTS, "log-dir-settings"} - {other}:
        copy = base.parent / "copy"
        shutil.copytree(base, copy)
        (copy / name).write_bytes(data)
        # What the user decided is not made anew: it is reported until it is decided again.
        check(copy, Path(name).name, is_once=name != "log-dir-settings")
        shutil.rmtree(copy)


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999", "1" * 5000, "null", '"x"'])
def test_regression_a_wrong_number_in_the_settings_keeps_no_store_shut(
    base: Path, number: str
) -> None:
    """It was an OverflowError out of `LogStore.open`."""
    with LogStore.open(base, admin_socket=False) as store:
        directory_id = store.describe_dirs().log_dirs[0].directory_id
    fields = f'"version": 1, "directory_id": "{directory_id}", "is_cordoned": false'
    line = f'{{{fields}, "preferred": [["t", 1, {number}]]}}'
    (base / "log-dir-settings").write_bytes(encode(line))
    with LogStore.open(base, admin_socket=False) as store:
        assert "log-dir-settings is not used" in told(store)
        assert offsets(store) == list(range(COUNT))


@pytest.mark.parametrize(
    "field", ["topic_id", "generation", "log_start_offset", "config", "moving", "partition"]
)
@pytest.mark.parametrize("wrong", ["x", -7, 2**63, 1.5, True, [1]])
def test_regression_a_wrong_type_in_the_metadata_is_found_at_once(
    base: Path, field: str, wrong: object
) -> None:
    """It came out later, of whatever used it, and of a view's `describe_dirs` for all replicas."""
    change(base / METADATA, **{field: wrong})
    check(base, "partition.metadata is damaged (a field is missing or wrong")


@pytest.mark.parametrize("field", ["seen", "paths"])
def test_regression_a_witness_of_no_log_dir_is_reported(tmp_path: Path, field: str) -> None:
    """What it said of something that is not a log dir was passed over in silence."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    for _ in range(2):
        with LogStore.open(dirs, admin_socket=False):
            pass
    change(dirs[0] / "log-dir-witness", **{field: {"x": 1}})
    with LogStore.open(dirs, admin_socket=False) as store:
        assert "log-dir-witness is not used: 'x' is not the id of a log dir" in told(store)


def test_a_recovery_point_that_cannot_be_takes_nothing_offline(base: Path) -> None:
    """No disk loses so many flushed records; a repair would fill them up."""
    with LogStore.open(base, admin_socket=False) as store:
        directory_id = store.describe_dirs().log_dirs[0].directory_id
        topic_id, key = store["t", 0].topic_id, next(iter(store))
    found = checkpoint.Offsets({key: 2**61}, {key: topic_id})
    checkpoint.write_offsets(str(base / POINTS), POINTS, directory_id, found)
    check(base, f"the recovery point {2**61} is ignored")


def test_files_that_are_old_together_bring_back_no_more_than_is_there(base: Path) -> None:
    """Both files of the log are older than the deletion of whole segments: it starts behind it."""
    older = {name: (base / name).read_bytes() for name in (METADATA, EPOCHS)}
    copy = base.parent / "copy"
    shutil.copytree(base, copy)
    with LogStore.open(copy, admin_socket=False) as store:
        store["t", 0].delete_records_before(50)
    for name, data in older.items():
        kept = (copy / name).read_bytes()
        (copy / name).write_bytes(data)
        with LogStore.open(copy, admin_socket=False) as store:
            assert offsets(store) == list(range(50, COUNT))
            assert "is older" in told(store)
        (copy / name).write_bytes(kept)


def test_regression_a_leader_epoch_that_the_file_should_know_is_reported(tmp_path: Path) -> None:
    """No checksum covers the epoch. Before, a flipped bit of a last batch was accepted silently."""
    with LogStore.open(tmp_path / "live", admin_socket=False) as store:
        log = store.create("t", 0, config=LogConfig(record_format="kafka"))
        for number in range(6):
            if number == 3:
                log.leader_epoch = 9  # a kill before a flush may leave a new epoch in a batch
            log.append(b"%d" % number, durable=number < 3)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    (path,) = (tmp_path / "killed/t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    for count, at, bit, words in ((6, 15, 3, ""), (6, 13, 0, ""), (6, 12, 0, "up to 9")):
        root = tmp_path / f"{at}-{bit}"
        shutil.copytree(tmp_path / "killed", root)
        changed = bytearray(data)
        changed[len(data) - len(data) // 6 + at] ^= 1 << bit
        (root / "t-0" / path.name).write_bytes(changed)
        with LogStore.open(root, admin_socket=False) as store:
            assert offsets(store) == list(range(count))
            assert (words in told(store)) and (("flipped bit" in told(store)) == bool(words))
