"""Queries are checked, and a list is shown page by page."""

from __future__ import annotations

import pytest

from broker.page.facts import PartitionRow
from broker.page.paging import Asked, found_partitions, parse, part_of

ROWS = [
    PartitionRow("Orders", 0, 1, 5, (1, 2), (1, 2), (), None, "/d1", 0, 9, 9, 100),
    PartitionRow("Orders", 1, -1, 5, (1, 2), (2,), (1, 2), (1,)),
    PartitionRow("clicks", 0, 2, 1, (2,), (2,), (), ()),
]


def test_a_query_is_read() -> None:
    """What is not given has its default; what nobody knows is ignored."""
    assert parse("") == Asked()
    asked = parse("search=a%20b&show=offline&page=3&size=10&name=%3Cb%3E&fragment=1&other=1")
    assert asked == Asked("a b", "offline", 3, 10, "<b>", True)
    assert parse(asked.query()[1:]) == asked._replace(is_fragment=False)
    assert asked.query(page=1, show="all") == "?search=a+b&size=10&name=%3Cb%3E"
    assert len(parse("search=" + "x" * 5000).search) == 300


@pytest.mark.parametrize(
    "query",
    [
        "page=0", "page=-1", "page=x", "page=1e3", "page=99999999999", "page=%D9%A3", "size=1001",
        "size=0", "show=none", "&".join(f"a{n}=1" for n in range(20)),
    ],
)  # fmt: skip
def test_a_query_that_makes_no_sense_is_refused(query: str) -> None:
    """With an error that says what is allowed."""
    with pytest.raises(ValueError, match=r"must be|fields"):
        parse(query)


def test_partitions_are_found() -> None:
    """By a part of their name in any case, by their state, and by their topic."""

    def names(asked: Asked) -> list[str]:
        return [f"{one.topic}-{one.partition}" for one in found_partitions(ROWS, asked)]

    assert names(Asked()) == ["Orders-0", "Orders-1", "clicks-0"]
    assert names(Asked(search=" orders-")) == ["Orders-0", "Orders-1"]
    assert names(Asked(search="0")) == ["Orders-0", "clicks-0"]
    assert names(Asked(show="offline")) == names(Asked(show="under-replicated")) == ["Orders-1"]
    assert names(Asked(show="elr")) == ["Orders-1"]
    assert names(Asked(show="here")) == ["Orders-0"]
    assert names(Asked(name="clicks")) == ["clicks-0"]
    assert names(Asked(search="nothing")) == []


def test_pages_cover_a_list_once() -> None:
    """The last page is short; a page after it is the last one."""
    rows = [*range(23)]
    parts = [part_of(rows, Asked(number=number, size=10)) for number in (1, 2, 3)]
    assert [row for part in parts for row in part.rows] == rows
    assert {(part.pages, part.total) for part in parts} == {(3, 23)}
    assert part_of(rows, Asked(number=9, size=10)) == parts[2]
    assert part_of([], Asked(number=4)) == ([], 1, 1, 0)
