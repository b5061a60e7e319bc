"""Stage segments that are missing, shortened or foreign: each is named, and the rest is served."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.places import fast_directory
from support.staged import Staged

SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture(scope="module", params=[True, False], ids=["stopped", "crashed"])
def staged(request: pytest.FixtureRequest) -> Iterator[Staged]:
    with fast_directory() as base:
        yield Staged(base, is_clean=request.param)


@pytest.fixture(autouse=True)
def restore(staged: Staged) -> None:
    staged.restore()


def test_a_segment_missing_in_the_middle_is_named(staged: Staged) -> None:
    """A segment whose files are all gone is a hole that is reported, and the rest is served."""
    path = staged.segments()[2]
    for suffix in SUFFIXES:
        path.with_suffix(suffix).unlink(missing_ok=True)
    staged.check_damaged(staged.offsets_of(path), is_missing=True)


def test_a_missing_log_file_beside_its_indexes_is_named(staged: Staged) -> None:
    """A segment of which only the indexes are left is missing too."""
    path = staged.segments()[2]
    path.unlink()
    staged.check_damaged(staged.offsets_of(path), is_missing=True)


def test_a_shortened_segment_in_the_middle_is_named(staged: Staged) -> None:
    """A sealed segment that lost its last batches is no torn tail."""
    path = staged.segments()[2]
    cut = staged.batches[path.name][-3]
    with path.open("r+b") as file:
        file.truncate(cut.position)
    staged.check_damaged(staged.offsets_of(path, -3))


def test_a_segment_shortened_inside_a_batch_is_named(staged: Staged) -> None:
    """A sealed segment that ends inside a batch is no torn tail."""
    path = staged.segments()[1]
    cut = staged.batches[path.name][-2]
    with path.open("r+b") as file:
        file.truncate(cut.position + 50)
    staged.check_damaged(staged.offsets_of(path, -2))


def test_a_middle_segment_emptied_is_named(staged: Staged) -> None:
    """A sealed segment of no bytes is not an empty segment."""
    path = staged.segments()[2]
    path.write_bytes(b"")
    staged.check_damaged(staged.offsets_of(path))


def test_a_foreign_segment_with_its_index_is_named(staged: Staged) -> None:
    """A segment of another partition, index and all, under a right name serves no record."""
    path = staged.segments()[2]
    foreign = staged.segments(partition=1)[2]
    for suffix in SUFFIXES:
        shutil.copyfile(foreign.with_suffix(suffix), path.with_suffix(suffix))
    staged.check_damaged(staged.offsets_of(path))


def test_a_foreign_log_file_is_named(staged: Staged) -> None:
    """A `.log` of another partition beside the right index serves no record."""
    path = staged.segments()[2]
    shutil.copyfile(staged.segments(partition=1)[2], path)
    staged.check_damaged(staged.offsets_of(path))


def test_an_index_from_elsewhere_changes_nothing(staged: Staged) -> None:
    """Indexes of other segments and partitions are found out and made anew."""
    paths = staged.segments()
    sealed = [p for p in paths if p.with_suffix(".index").exists()][:-1]
    for path, other in zip(sealed, [*sealed[1:], staged.segments(partition=1)[0]], strict=True):
        for suffix in SUFFIXES[1:]:
            shutil.copyfile(other.with_suffix(suffix), path.with_suffix(f"{suffix}.x"))
    for path in sealed:
        for suffix in SUFFIXES[1:]:
            path.with_suffix(f"{suffix}.x").rename(path.with_suffix(suffix))
    staged.check_sound()


def test_a_first_segment_missing_is_named(staged: Staged) -> None:
    """A log whose first segment is gone, though nobody deleted records, is damaged."""
    path = staged.segments()[0]
    for suffix in SUFFIXES:
        path.with_suffix(suffix).unlink(missing_ok=True)
    staged.check_damaged(staged.offsets_of(path), is_missing=True)


def test_a_damaged_length_in_the_middle_costs_one_batch(staged: Staged) -> None:
    """Behind a damaged length the next whole batch is found, and only one batch is lost."""
    path = staged.segments()[2]
    for length in (0, -1, 2**31 - 1, 80, 96, 4000):
        staged.restore()
        batch = staged.batches[path.name][2]
        with path.open("r+b") as file:
            file.seek(batch.position + 8)
            file.write(length.to_bytes(4, "big", signed=True))
        staged.check_damaged(staged.offsets_of(path, 2, 3), is_rot=True)


def test_zeros_in_the_middle_cost_the_batches_they_cover(staged: Staged) -> None:
    """A hole of zeros in a sealed segment (a discarded block) costs what it covers, no more."""
    path = staged.segments()[3]
    first, last = staged.batches[path.name][1], staged.batches[path.name][3]
    with path.open("r+b") as file:
        file.seek(first.position)
        file.write(bytes(last.position - first.position))
    staged.check_damaged(staged.offsets_of(path, 1, 3), is_rot=True)
