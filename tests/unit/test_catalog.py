"""The catalog names the replicas on a missing disk; it is only a hint."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import (
    LogDirOfflineError,
    LogStore,
    PartitionExistsError,
    StoreConfig,
    UnknownPartitionError,
)
from logstore.disk.documents.catalog_file import (
    CATALOG_NAME,
    DELETED,
    Place,
    append_catalog,
    decode_catalog,
    encode_catalog,
    line_of,
)
from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition
from logstore.store import catalog
from logstore.store.catalog import SPARE_LINES, Catalog
from support.inside import abandon

KEY = TopicPartition("orders", 0)
KEYS = st.builds(TopicPartition, st.from_regex(r"[a-z._-]{1,9}", fullmatch=True), st.integers(0, 9))
PLACES = st.builds(Place, st.integers(0, 99), st.sampled_from(["a" * 32, "b" * 32, DELETED]))


@given(places=st.dictionaries(KEYS, PLACES), more=st.lists(st.tuples(KEYS, PLACES)))
def test_a_catalog_is_read_back(
    places: dict[TopicPartition, Place], more: list[tuple[TopicPartition, Place]]
) -> None:
    """Both the written and the appended entries are read; the highest sequence counts."""
    data = encode_catalog(places) + b"".join(line_of(*one) for one in more)
    found = decode_catalog(data)
    expected = dict(places)
    for key, place in more:
        if place.sequence >= expected.get(key, Place(-1, "")).sequence:
            expected[key] = place
    assert found == (expected, 1 + len(places) + len(more), True, False)


@given(data=st.data())
def test_damage_costs_the_lines_it_is_in(data: st.DataObject) -> None:
    """If any byte is wrong, or the file is cut anywhere, no entry is invented."""
    places = {TopicPartition("orders", n): Place(n, "a" * 32) for n in range(4)}
    whole = encode_catalog(places)
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged = whole[:at]
    else:
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    found = decode_catalog(damaged)
    assert not found.is_whole or whole.startswith(damaged)
    assert found.places.items() <= places.items()
    assert decode_catalog(damaged + b"\n" + whole).places.items() <= places.items()


@pytest.mark.parametrize("end", [b"3f", b"\0" * 40, b"0123456789abcdef 9 x 0 orders\n", b"\0\n"])
def test_regression_a_torn_end_is_no_damage(end: bytes) -> None:
    """A crash during an append causes a torn end; with a valid line after it, it is damage."""
    places = {KEY: Place(1, "a" * 32)}
    found = decode_catalog(encode_catalog(places) + end)
    assert found.places == places and found.is_torn and not found.is_whole
    again = encode_catalog(places) + end + b"\n" + line_of(KEY, Place(2, DELETED))
    assert not decode_catalog(again).is_torn and not decode_catalog(again).is_whole


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Make a store of three disks with a partition on each, and close it."""
    disks = [tmp_path / f"disk{number}" for number in range(3)]
    with LogStore.open(disks) as store:
        for number in range(3):
            store.create("orders", number, log_dir=disks[number])
        store.create("gone", 0, log_dir=disks[0])
        store.delete("gone", 0)
    return disks


def named_in(disk: Path) -> list[str]:
    """List the replicas that the catalog of a disk knows, and that are not deleted."""
    places = decode_catalog((disk / CATALOG_NAME).read_bytes()).places
    return [str(key) for key, place in places.items() if place.directory_id != DELETED]


def test_all_dirs_carry_the_same_catalog(disks: list[Path]) -> None:
    """All bytes are equal, so that a start decodes only one file."""
    assert len({(disk / CATALOG_NAME).read_bytes() for disk in disks}) == 1
    assert named_in(disks[0]) == [f"orders-{n}" for n in range(3)]


def test_without_a_disk_what_lives_there_is_missed_by_name(disks: list[Path]) -> None:
    """A name that never existed is unknown, and the gauge is right."""
    for some in (disks[:2], [*disks[:2], disks[2].parent / "empty mount point"]):
        with LogStore.open(some) as store:
            with pytest.raises(LogDirOfflineError, match="orders-2 is in the log dir with id"):
                store.log("orders", 2)
            for never in (("orders", 3), ("gone", 0)):
                with pytest.raises(UnknownPartitionError):
                    store.log(*never)
                assert never not in store
            assert ("orders", 2) in store and len(store) == 3
            assert [str(key) for key in store] == ["orders-0", "orders-1", "orders-2"]
            assert store.metrics().OfflineReplicaCount == 1
            for is_new in (False, True):
                with pytest.raises(LogDirOfflineError):
                    store.create("orders", 2, is_new=is_new)
            with pytest.raises(LogDirOfflineError):
                store.create("orders", 3)


@pytest.mark.parametrize("away", range(3))
@pytest.mark.parametrize("is_orderly", [True, False], ids=["taken offline", "killed"])
def test_regression_a_deletion_is_known_without_its_log_dir(
    disks: list[Path], away: int, is_orderly: bool
) -> None:
    """Other dirs got the deletion at a checkpoint: after a kill, it was unknown to them."""
    with_incomplete = disks[0].with_name("backup")
    shutil.copytree(disks[0], with_incomplete)
    with LogStore.open(disks) as store:
        store["orders", 0].append(b"missing in the old copy", durable=True)
    shutil.rmtree(disks[0])
    with_incomplete.rename(disks[0])
    store = LogStore.open(disks, admin_socket=False)
    store.delete("orders", away)  # that of the first disk is incomplete
    if is_orderly:
        store.create("orders", 7, log_dir=disks[away], is_new=True)
        store.take_offline(disks[away])
    abandon(store)
    disks[away].rename(disks[away].with_name("away"))
    with LogStore.open(disks, admin_socket=False) as store:
        assert ("orders", away) not in store
        assert (("orders", 7) in store) is is_orderly
        store.create("orders", away, is_new=True)
        lost = (TopicPartition("orders", 7),) if is_orderly else ()
        assert store.remove_dir(disks[away], lost=True) == lost


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_deletion_does_not_fail_because_another_disk_does(
    disks: list[Path], error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk gets the deletion later; a dead disk goes offline, as after any call."""
    with LogStore.open(disks, admin_socket=False) as store:
        lines: list[str] = []

        def fail(path: str, pending: object) -> None:
            lines.append(path)
            raise OSError(error, os.strerror(error), path)

        with monkeypatch.context() as patched:
            patched.setattr(catalog, "append_catalog", fail)
            store.delete("orders", 0)
        assert ("orders", 0) not in store and {str(disk) for disk in disks[1:]} <= {*lines}
        is_dead = error == errno.EIO
        states = [row.state == "offline" for row in store.describe_dirs().log_dirs[1:]]
        assert states == [is_dead, is_dead]
    if not is_dead:
        for disk in disks:
            assert named_in(disk) == ["orders-1", "orders-2"]


def test_a_deletion_does_not_wait_for_a_disk_that_hangs(
    disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion waits until the log dir is SUSPECT, and is written to the other catalogs."""
    answered = threading.Event()

    def hang(path: str, lines: list[bytes]) -> None:
        if path == str(disks[1]):
            answered.wait(60)
        append_catalog(path, lines)

    config = StoreConfig(log_dir_suspect_ms=500)
    with LogStore.open(disks, config=config, admin_socket=False) as store:
        monkeypatch.setattr(catalog, "append_catalog", hang)
        try:
            store.delete("orders", 0)
            assert ("orders", 0) not in store and not answered.is_set()
            assert [row.state for row in store.describe_dirs().log_dirs][1] == "suspect"
        finally:
            answered.set()
        assert named_in(disks[2]) == ["orders-1", "orders-2"]


def test_a_failed_disk_is_missed_by_name_and_no_other(disks: list[Path]) -> None:
    """This holds while the store runs, too."""
    with LogStore.open(disks) as store:
        store.host.replicas.log_dirs[2].take_offline("pulled out")
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 2)
        with pytest.raises(UnknownPartitionError):
            store.log("orders", 3)
        assert store.metrics().OfflineReplicaCount == 1
        store.create("new", 0, is_new=True)
    with LogStore.open(disks) as store:
        assert len(store) == 4 and not store.recovery_report.warnings


def test_a_store_without_catalogs_says_what_it_knows(disks: list[Path]) -> None:
    """What is not found may be on the bad dir; when all dirs are good, a catalog is made."""
    for disk in disks:
        (disk / CATALOG_NAME).unlink()
    with LogStore.open(disks[:2]) as store, pytest.raises(LogDirOfflineError):
        store.log("orders", 3)
    assert not (disks[0] / CATALOG_NAME).exists()
    LogStore.open(disks).close()
    assert (disks[0] / CATALOG_NAME).exists()
    with LogStore.open(disks[:2]) as store, pytest.raises(UnknownPartitionError):
        store.log("orders", 3)


def test_the_directories_are_right_and_a_disagreement_is_told(disks: list[Path]) -> None:
    """One replica was moved by hand, and one was removed by hand."""
    (disks[0] / "orders-0").rename(disks[1] / "orders-0")
    shutil.rmtree(disks[2] / "orders-2")
    with LogStore.open(disks) as store:
        told = "\n".join(store.recovery_report.warnings)
        assert f"recorded orders-0 in {disks[0]}, but it is in {disks[1]}" in told
        assert f"recorded orders-2 in {disks[2]}, but none of" in told
        assert list(store) == [("orders", 0), ("orders", 1)]
        store.create("orders", 2)
        with pytest.raises(PartitionExistsError):
            store.create("orders", 2, is_new=True)
    with LogStore.open(disks) as store:
        assert not store.recovery_report.warnings


@pytest.mark.parametrize("damaged", [1, 2])
def test_regression_a_damaged_catalog_beside_a_missing_dir_is_reported_as_what_is_done_with_it(
    disks: list[Path], damaged: int
) -> None:
    """It was said to be rewritten also where it was left, as no catalog named what was missing."""
    for disk in disks[:damaged]:
        (disk / CATALOG_NAME).write_bytes(b"x" * 5000)
    for number in range(2):
        with LogStore.open(disks[:2]) as store:
            told = [line for line in store.recovery_report.warnings if ": damaged;" in line]
        is_left = (disks[0] / CATALOG_NAME).read_bytes() == b"x" * 5000
        assert is_left is (damaged == 2)
        assert len(told) == (damaged if is_left or not number else 0)
        for line in told:
            assert ("it is not rewritten while a log dir is bad" in line) is is_left
    with LogStore.open(disks) as store:
        assert all(line.endswith("it is rewritten") for line in store.recovery_report.warnings)
    with LogStore.open(disks) as store:
        assert not store.recovery_report.warnings


@pytest.mark.parametrize("garbage", [b"", b"\0" * 64, b"replica-catalog 7\n", b"x" * 5000])
def test_a_damaged_catalog_is_written_anew(disks: list[Path], garbage: bytes) -> None:
    """One good copy is enough; without one, the directories are used."""
    (disks[0] / CATALOG_NAME).write_bytes(garbage)
    with LogStore.open(disks) as store:
        assert store.recovery_report.is_sound
        assert len(store.recovery_report.warnings) == 1
    for disk in disks:
        (disk / CATALOG_NAME).write_bytes(garbage)
    with LogStore.open(disks) as store:
        assert len(store) == 3
    with LogStore.open(disks[:2]) as store:
        assert ("orders", 2) in store


def test_regression_a_torn_catalog_is_no_warning(disks: list[Path]) -> None:
    """A killed owner leaves a torn catalog; it is rewritten, and nothing is reported."""
    before = (disks[0] / CATALOG_NAME).read_bytes()
    (disks[0] / CATALOG_NAME).write_bytes(before + b"77f0")
    with LogStore.open(disks) as store:
        assert not store.recovery_report.warnings
    assert decode_catalog((disks[0] / CATALOG_NAME).read_bytes()).is_whole


def test_a_dir_that_was_away_learns_what_changed(disks: list[Path]) -> None:
    """The dir does not bring back replicas that were deleted in its absence."""
    with LogStore.open(disks[:2]) as store:
        store.create("new", 0, is_new=True)
        store.delete("orders", 1)
    assert len({(disk / CATALOG_NAME).read_bytes() for disk in disks}) == 2
    LogStore.open(disks).close()
    with LogStore.open([disks[2], disks[0]]) as store:
        assert ("orders", 1) not in store


def test_regression_a_returned_dir_teaches_the_others_what_it_knows(disks: list[Path]) -> None:
    """The other dirs only wrote changes while they served, so its replicas were unknown to them."""
    with LogStore.open(disks[1:], admin_socket=False) as store:
        store.create("new", 0, log_dir=disks[2], is_new=True)
    for disk in disks[1:]:
        disk.rename(disk.with_name(f"{disk.name}.away"))
    with LogStore.open(disks, admin_socket=False) as store:
        assert ("new", 0) not in store
        disks[2].with_name(f"{disks[2].name}.away").rename(disks[2])
        store.reopen_dir(disks[2])
        assert ("new", 0) in store
    with LogStore.open(disks[:1], admin_socket=False) as store:
        assert ("new", 0) in store and named_in(disks[0])[0] == "new-0"


def test_it_is_compacted(tmp_path: Path) -> None:
    """The file does not grow with each creation and deletion."""
    catalog, log_dir = Catalog(), LogDir(str(tmp_path))
    catalog.load([log_dir], is_a_dir_bad=False)
    catalog.write(log_dir)
    sizes = []
    for number in range(SPARE_LINES):
        catalog.note(KEY, "a" * 32 if number % 2 == 0 else None)
        if number % 100 == 99:
            catalog.write(log_dir)
            sizes.append((tmp_path / CATALOG_NAME).stat().st_size)
    catalog.note(KEY, "a" * 32)
    for number in range(10):
        catalog.note(KEY, "b" * 32 if number % 2 == 0 else None)
    catalog.write(log_dir)
    assert (tmp_path / CATALOG_NAME).stat().st_size < 1000 < max(sizes) < 50_000
    again = Catalog()
    again.load([log_dir], is_a_dir_bad=True)
    assert again.is_known and again.directory_of(KEY) is None


def test_giving_a_missing_dir_up_names_what_it_held(disks: list[Path]) -> None:
    """After that, the replicas of the dir are unknown."""
    with LogStore.open(disks[:2]) as store:
        (lost,) = store.host.replicas.missing_ids
        assert store.host.replicas.catalog.on(lost) == [("orders", 2)]
        assert store.remove_dir(lost, lost=True) == (("orders", 2),)
        assert ("orders", 2) not in store


def test_ten_thousand_replicas_are_read_in_little_time(tmp_path: Path) -> None:
    """Twelve dirs have the catalog in the same bytes, which are decoded once."""
    places = {TopicPartition("orders", n): Place(n, f"{n % 12:032x}") for n in range(10_000)}
    dirs = []
    for number in range(12):
        path = tmp_path / str(number)
        path.mkdir()
        (path / CATALOG_NAME).write_bytes(encode_catalog(places))
        dirs.append(LogDir(str(path)))
    began = time.process_time()
    catalog = Catalog()
    assert catalog.load(dirs, is_a_dir_bad=False) == []
    print(f"{(time.process_time() - began) * 1000:.0f} ms CPU for 10,000 replicas")
    assert len(catalog.on(f"{0:032x}")) == 834
