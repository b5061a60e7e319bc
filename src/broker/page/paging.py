"""Read the query of a request, and choose the rows of one page of a long list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlencode

from broker.page.facts import PartitionRow

PAGE_ROWS, PAGE_ROWS_MAX = 50, 1000
FIELDS_MAX = 8
SEARCH_LETTERS_MAX = 300
Row = TypeVar("Row")

# The choices by which a user limits the list of partitions.
SHOWN: dict[str, Callable[[PartitionRow], bool]] = {
    "all": lambda one: True,
    "offline": lambda one: one.is_offline,
    "offline-here": lambda one: bool(one.reason),
    "under-replicated": lambda one: one.is_under_replicated,
    "here": lambda one: bool(one.log_dir),
    "elr": lambda one: bool(one.elr),
}


class Asked(NamedTuple):
    """The parameters of a request.

    Attributes:
        search: only rows whose name contains this text, in upper or lower case; "" for all rows.
        show: a key of `SHOWN`.
        number: the number of the page, from 1.
        size: the number of rows on a page.
        name: the topic or group, if the page is about one of them.
        is_fragment: whether the answer has only the part of the page that changes.
    """

    search: str = ""
    show: str = "all"
    number: int = 1
    size: int = PAGE_ROWS
    name: str = ""
    is_fragment: bool = False

    def query(self, **changes: object) -> str:
        """Write the query of this request with some changes. Leave out default values."""
        values = {"search": self.search, "show": self.show, "page": self.number, "size": self.size}
        values["name"] = self.name
        values.update(changes)
        plain = {"search": "", "show": "all", "page": 1, "size": PAGE_ROWS, "name": ""}
        kept = {key: value for key, value in values.items() if value != plain[key]}
        return "?" + urlencode(kept) if kept else "?"


class Part(NamedTuple, Generic[Row]):
    """The rows of one page, and where they are in the list."""

    rows: Sequence[Row]
    number: int
    pages: int
    total: int


def parse(query: str) -> Asked:
    """Read the query of a URL; raise ValueError if a value is not valid."""
    fields = parse_qs(query, max_num_fields=FIELDS_MAX, encoding="utf-8", errors="replace")
    texts = {key: values[-1] for key, values in fields.items()}
    show = texts.get("show", "all")
    if show not in SHOWN:
        raise ValueError(f"show must be one of {', '.join(SHOWN)}")
    return Asked(
        texts.get("search", "")[:SEARCH_LETTERS_MAX],
        show,
        _number(texts.get("page", "1"), "page", 10**6),
        _number(texts.get("size", str(PAGE_ROWS)), "size", PAGE_ROWS_MAX),
        texts.get("name", ""),
        texts.get("fragment", "") == "1",
    )


def _number(text: str, name: str, largest: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= largest):
        raise ValueError(f"{name} must be a number from 1 to {largest}")
    return int(text)


def part_of(rows: Sequence[Row], asked: Asked) -> Part[Row]:
    """Choose the rows of the requested page; if this page is missing, of the last page."""
    pages = max(-(-len(rows) // asked.size), 1)
    number = min(asked.number, pages)
    begin = (number - 1) * asked.size
    return Part(rows[begin : begin + asked.size], number, pages, len(rows))


def found(rows: Sequence[Row], asked: Asked, name_of: Callable[[Row], str]) -> Sequence[Row]:
    """Choose the rows whose name contains the search text."""
    wanted = asked.search.casefold().strip()
    return [one for one in rows if wanted in name_of(one).casefold()] if wanted else rows


def found_partitions(rows: Sequence[PartitionRow], asked: Asked) -> Sequence[PartitionRow]:
    """Choose the partitions that match a search text such as `orders-3`."""
    is_shown = SHOWN[asked.show]
    if asked.show != "all":
        rows = [one for one in rows if is_shown(one)]
    if asked.name:
        rows = [one for one in rows if one.topic == asked.name]
    return found(rows, asked, lambda one: f"{one.topic}-{one.partition}")
