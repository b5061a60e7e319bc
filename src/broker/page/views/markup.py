"""Build HTML. All texts are escaped, so no text can become markup."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from broker.page.text import bytes_text, count_text, rate_text, shortened, visible

VOID = frozenset({"input", "link", "meta"})


class Html(str):
    """Text that is already HTML. Only this module makes `Html` from other text."""

    __slots__ = ()


def escaped(child: object) -> str:
    """Escape a text, and make invisible characters visible. Leave `Html` unchanged."""
    return child if isinstance(child, Html) else html.escape(visible(str(child)), quote=True)


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Write an element.

    Args:
        attributes: `class_` is written as class, and `aria_label` as aria-label. None and False
            leave an attribute out, and True writes it without a value.
    """
    parts = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escaped(value)}"')
    opening = f"<{name}{''.join(parts)}>"
    if name in VOID:
        return Html(opening)
    return Html(f"{opening}{''.join(map(escaped, children))}</{name}>")


def joined(parts: Iterable[object], separator: object = "") -> Html:
    """Concatenate parts."""
    return Html(escaped(separator).join(map(escaped, parts)))


class Cell(NamedTuple):
    """A column of a table: its heading, the content of its cells, and their alignment.

    Attributes:
        is_head: whether the cells name their rows.
    """

    heading: str
    content: Callable[[object], object]
    is_number: bool = False
    is_head: bool = False


def column(
    heading: str,
    content: Callable[..., object],
    *,
    is_number: bool = False,
    is_head: bool = False,
) -> Cell:
    """Describe a column of a table; see `Cell`."""
    return Cell(heading, content, is_number, is_head)


def table(caption: str, columns: Sequence[Cell], rows: Sequence[object], empty: str) -> Html:
    """Write a table. On a narrow screen, the style sheet shows each row as a card.

    Because of the attributes `role`, screen readers still read such a page as a table.
    """
    if not rows:
        return element("p", empty, class_="empty")
    headings = [
        element("th", one.heading, scope="col", role="columnheader", class_=_class_of(one))
        for one in columns
    ]
    body = [
        element("tr", *[_cell(one, one.content(row)) for one in columns], role="row")
        for row in rows
    ]
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", *headings, role="row"), role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        role="table",
    )


def _class_of(one: Cell) -> str | None:
    return "number" if one.is_number else None


def _cell(one: Cell, content: object) -> Html:
    if one.is_head:
        return element("th", content, scope="row", role="rowheader", data_label=one.heading)
    inside = element("div", content)
    return element("td", inside, role="cell", class_=_class_of(one), data_label=one.heading)


def link(text: str, target: str, **attributes: object) -> Html:
    """Write a link to another page of this broker."""
    return element("a", shortened(text), href=target, **attributes)


def _data(text: str, value: float | None, key: str | None) -> Html:
    if value is None:
        return element("span", text, title="not known to this broker")
    return element("data", text, value=f"{value:.15g}", data_key=key)


def number(value: float | None, key: str | None = None) -> Html:
    """Write a number, and give programs its exact value and `key` in the attributes."""
    return _data(count_text(None if value is None else int(value)), value, key)


def size(value: float | None, key: str | None = None) -> Html:
    """Write a size in bytes."""
    return _data(bytes_text(value), value, key)


def rate(value: float, key: str | None = None) -> Html:
    """Write a number per second."""
    return _data(f"{rate_text(value)}/s", value, key)


def byte_rate(value: float, key: str | None = None) -> Html:
    """Write a number of bytes per second."""
    return _data(f"{bytes_text(value)}/s", value, key)
