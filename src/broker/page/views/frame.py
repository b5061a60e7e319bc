"""Write the parts of all pages: the head, the menu, the search, and the page numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.page.facts import Facts
from broker.page.paging import SHOWN, Asked, Part
from broker.page.text import seconds_text
from broker.page.views.markup import Html, element, joined, link, number

MENU = {"/": "Overview", "/partitions": "Partitions", "/topics": "Topics", "/groups": "Groups"}
SHOWN_TEXTS = {
    "all": "all",
    "offline": "offline",
    "offline-here": "offline on this broker",
    "under-replicated": "under-replicated",
    "here": "with a replica on this broker",
    "elr": "with an ELR",
}


def document(facts: Facts, path: str, title: str, form: Html, live: Html) -> str:
    """Write a whole page.

    Args:
        path: the path of the present entry of the menu.
        form: the part that the script must not replace, such as the search.
        live: the part that the script replaces.
    """
    broker = f"Broker {facts.about['broker_id']}"
    menu = [
        element("a", text, href=target, aria_current="page" if target == path else None)
        for target, text in MENU.items()
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – {broker}"),
        element("link", rel="icon", href="/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/style.css"),
        element("script", src="/page.js", defer=True),
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element(
            "header",
            element("strong", broker, class_="name"),
            element("nav", *menu, aria_label="Pages"),
            element(
                "div",
                element("span", id="freshness", role="status"),
                element("button", "Pause", id="pause", type="button", hidden=True),
                class_="refresh",
            ),
        ),
        element(
            "main", element("h1", title), form, element("div", live, id="live"),
            id="content", tabindex="-1",
        ),
    )  # fmt: skip
    return "<!doctype html>" + element("html", head, body, lang="en")


def moment(facts: Facts) -> Html:
    """Write the time when the facts were gathered, and the time when the broker was started."""
    seconds, rest = divmod(facts.at_ms // 1000, 60)
    minutes = seconds % 60
    hours = seconds // 60 % 24
    up = seconds_text((facts.at_ms - facts.about["started_ms"]) / 1000)
    text = f"As of {hours:02}:{minutes:02}:{rest:02} UTC. Up for {up}. Version "
    return element("p", text, facts.about["version"], class_="moment")


def search(path: str, asked: Asked, label: str, *, has_show: bool = False) -> Html:
    """Write the form that searches a list."""
    choice = Html()
    if has_show:
        options = [
            element("option", SHOWN_TEXTS[key], value=key, selected=key == asked.show)
            for key in SHOWN
        ]
        choice = element("label", element("span", "Show"), element("select", *options, name="show"))
    return element(
        "form",
        element(
            "label", element("span", label),
            element("input", type="search", name="search", value=asked.search, maxlength=300),
        ),
        choice,
        element("button", "Search", type="submit"),
        action=path, method="get", class_="search", role="search",
    )  # fmt: skip


def pager(path: str, asked: Asked, part: Part[Any], noun: str) -> Html:
    """Write the number of rows, and the links to the other pages."""
    first = (part.number - 1) * asked.size + 1
    last = first + len(part.rows) - 1
    told = [number(part.total, "total"), f" {noun}"]
    if part.pages == 1:
        return element("p", element("span", *told), class_="pager")
    told += [f", here {first:,} to {last:,}"]
    near = {1, part.pages, *range(part.number - 1, part.number + 2)}
    links: list[object] = [element("span", *told)]
    before = 0
    for page in sorted(one for one in near if 1 <= one <= part.pages):
        if page > before + 1:
            links.append(element("span", "…", aria_hidden="true"))
        before = page
        is_here = page == part.number
        target = path + asked.query(page=page)
        label = f"Page {page}"
        links.append(
            element("span", page, aria_current="page", aria_label=label)
            if is_here
            else link(str(page), target, aria_label=label)
        )
    return element("nav", *links, class_="pager", aria_label="Pages of this list")


def section(title: str, *content: object) -> Html:
    """Write a section with a heading."""
    return element("section", element("h2", title), joined(content))


def brokers_text(ids: Sequence[int]) -> str:
    """Write a list of broker ids; a dash if there is none."""
    return ", ".join(map(str, ids)) or "–"
