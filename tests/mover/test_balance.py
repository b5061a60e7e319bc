"""Compare the chosen assignment with all possible assignments, for small numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mover.planning.balance import Assignment, DirFacts, ReplicaFacts, bands, bytes_on, choose

GIB = 1 << 30


def a_dir(
    number: int,
    usable_bytes: int = 1000,
    *,
    may_give: bool = True,
    may_receive: bool = True,
    is_leaving: bool = False,
) -> DirFacts:
    path, disk = f"/d{number}", f"disk{number}"
    return DirFacts(path, disk, usable_bytes, may_give, may_receive, is_leaving)


@st.composite
def small_stores(draw: st.DrawFn) -> tuple[list[DirFacts], list[ReplicaFacts], float]:
    """Draw one to three log dirs, up to six replicas, and a tolerance."""
    likely = st.sampled_from([True, True, True, False])
    dirs = [
        a_dir(
            number,
            draw(st.integers(0, 100)),
            may_give=draw(likely),
            may_receive=draw(likely),
            is_leaving=not draw(likely),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    replicas = [
        ReplicaFacts("t", number, draw(st.sampled_from(dirs)).path, draw(st.integers(0, 30)))
        for number in range(draw(st.integers(0, 6)))
    ]
    return dirs, replicas, draw(st.sampled_from([0.05, 0.1, 0.3]))


def places_of(dirs: Sequence[DirFacts], replica: ReplicaFacts, taking_part: set[str]) -> list[str]:
    """List the log dirs in which a replica may be after the plan."""
    home = next(one for one in dirs if one.path == replica.log_dir)
    if not home.may_give or home.path not in taking_part:
        return [home.path]
    receiving = [one for one in dirs if one.may_receive and not one.is_leaving]
    places = {one.path for one in receiving if one.path in taking_part}
    return sorted(places - {home.path} if home.is_leaving else places | {home.path})


def cheapest(
    dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], tolerance: float
) -> int | None:
    """Try every assignment; return None if none of them meets every band."""
    wanted = bands(dirs, replicas, tolerance)
    best: int | None = None
    for places in itertools.product(*(places_of(dirs, one, set(wanted)) for one in replicas)):
        assignment = dict(enumerate(places))
        if is_met(dirs, replicas, tolerance, assignment):
            cost = sum(
                one.size_bytes
                for one, place in zip(replicas, places, strict=True)
                if place != one.log_dir
            )
            best = cost if best is None else min(best, cost)
    return best


def is_met(
    dirs: Sequence[DirFacts],
    replicas: Sequence[ReplicaFacts],
    tolerance: float,
    assignment: Assignment,
) -> bool:
    sizes = bytes_on(dirs, replicas, assignment)
    wanted = bands(dirs, replicas, tolerance)
    return all(not band.miss(sizes[path]) for path, band in wanted.items())


def cost_of(replicas: Sequence[ReplicaFacts], assignment: Assignment) -> int:
    return sum(replicas[number].size_bytes for number in assignment)


@given(small_stores())
def test_no_assignment_is_cheaper(case: tuple[list[DirFacts], list[ReplicaFacts], float]) -> None:
    """If the bands can be met, the chosen assignment meets them at the lowest possible cost."""
    dirs, replicas, tolerance = case
    best = cheapest(dirs, replicas, tolerance)
    chosen = choose(dirs, replicas, tolerance)
    if best is not None:
        assert is_met(dirs, replicas, tolerance, chosen)
        assert cost_of(replicas, chosen) == best


@given(small_stores())
def test_what_may_not_is_not_done(
    case: tuple[list[DirFacts], list[ReplicaFacts], float],
) -> None:
    """No replica leaves a dir that may not give, or goes to a dir that may not receive."""
    dirs, replicas, tolerance = case
    by_path = {one.path: one for one in dirs}
    for number, target in choose(dirs, replicas, tolerance).items():
        home = replicas[number].log_dir
        assert target != home
        assert by_path[home].may_give
        assert by_path[target].may_receive
        assert not by_path[target].is_leaving


@given(small_stores())
def test_bands_hold_all_bytes_there_are(
    case: tuple[list[DirFacts], list[ReplicaFacts], float],
) -> None:
    """The shares sum up to the bytes of the dirs that take part, and no band is impossible."""
    dirs, replicas, tolerance = case
    wanted, sizes = bands(dirs, replicas, tolerance), bytes_on(dirs, replicas, {})
    if any(not one.is_leaving and one.path in wanted for one in dirs):
        held, shares = sum(sizes[path] for path in wanted), sum(b.share for b in wanted.values())
        assert shares == 0 or abs(held - shares) < 1e-6  # 0: there is no room at all
    for one in dirs:
        if one.path in wanted and not one.is_leaving:
            assert one.may_receive or sizes[one.path] >= wanted[one.path].share - 1e-9
            assert one.may_give or sizes[one.path] <= wanted[one.path].share + 1e-9


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, GIB)), min_size=30, max_size=200),
    st.integers(3, 6),
)
def test_many_replicas_cost_little_more_than_they_must(
    replicas_in: list[tuple[int, int]], dir_count: int
) -> None:
    """The greedy choice moves what must move, plus less than one largest replica for each dir."""
    dirs = [a_dir(number, 1 << 40) for number in range(dir_count)]
    replicas = [
        ReplicaFacts("t", number, f"/d{place}", size)
        for number, (place, size) in enumerate(replicas_in)
    ]
    wanted, sizes = bands(dirs, replicas, 0.05), bytes_on(dirs, replicas, {})
    must_leave = sum(max(sizes[path] - band.high, 0) for path, band in wanted.items())
    must_come = sum(max(band.low - sizes[path], 0) for path, band in wanted.items())
    largest = max(size for _, size in replicas_in)
    chosen = choose(dirs, replicas, 0.05)
    assert cost_of(replicas, chosen) <= max(must_leave, must_come) + dir_count * largest
    after = bytes_on(dirs, replicas, chosen)
    missed_before = sum(band.miss(sizes[path]) for path, band in wanted.items())
    assert sum(band.miss(after[path]) for path, band in wanted.items()) <= missed_before


def test_shares_follow_what_a_disk_can_hold() -> None:
    """A disk of twice the size gets twice the bytes."""
    dirs = [a_dir(0, 900), a_dir(1, 2000)]
    replicas = [ReplicaFacts("t", number, "/d0", 10) for number in range(10)]
    wanted = bands(dirs, replicas, 0.0)
    assert wanted["/d0"].share == 100 * 1000 / 3000
    assert wanted["/d1"].share == 100 * 2000 / 3000


def test_dirs_of_one_disk_share_alike() -> None:
    """Two dirs on one disk count as equally large, whatever each of them holds."""
    dirs = [DirFacts("/a", "disk", 50), DirFacts("/b", "disk", 50)]
    replicas = [ReplicaFacts("t", 0, "/a", 20), ReplicaFacts("t", 1, "/a", 20)]
    assert [band.share for band in bands(dirs, replicas, 0.05).values()] == [20, 20]
    assert choose(dirs, replicas, 0.05) in ({0: "/b"}, {1: "/b"})


def test_empty_replicas_leave_too() -> None:
    """If a dir is to be emptied, replicas without records leave it, too."""
    dirs = [a_dir(0, is_leaving=True), a_dir(1)]
    replicas = [ReplicaFacts("t", number, "/d0", 0) for number in range(3)]
    assert choose(dirs, replicas, 0.05) == {0: "/d1", 1: "/d1", 2: "/d1"}
