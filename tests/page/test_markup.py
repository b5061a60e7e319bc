"""No text becomes markup, whatever a client calls its topics and groups."""

from __future__ import annotations

import pytest

from broker.page.views.markup import Html, column, element, joined, link, table
from support.pages import HOSTILE, Seen


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text: str) -> None:
    """As a child and as an attribute."""
    seen = Seen(element("p", text, title=text, class_="x", hidden=False, data_a_b=1))
    assert seen.tags == ["p"]
    names = [name for name, _ in seen.attributes]
    assert names == ["title", "class", "data-a-b"]
    assert seen.text == seen.attributes[0][1]
    if text.isprintable():
        assert seen.text == text
    seen.text.encode()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_link_leads_to_this_broker(text: str) -> None:
    """The name of a group is a part of the query only."""
    seen = Seen(link(text, f"/group?name={text}"))
    target = dict(seen.attributes)["href"]
    assert seen.tags == ["a"] and target is not None and target.startswith("/group?name=")


def test_a_table_names_its_cells() -> None:
    """Each cell has the heading as a label, for the layout of a narrow screen."""
    columns = [column("A<", lambda row: row, is_head=True), column("B", lambda row: 1)]
    seen = Seen(table("rows", columns, ["<i>"], "none"))
    assert seen.tags.count("td") == 1 and "i" not in seen.tags
    assert ("data-label", "A<") in seen.attributes and ("scope", "row") in seen.attributes
    assert Seen(table("rows", columns, [], "none <b>")).text == "none <b>"


def test_what_is_html_is_not_escaped_again() -> None:
    """Parts are put together as they are."""
    part = element("b", "&")
    assert isinstance(joined([part, "<"], ", "), Html)
    assert joined([part, "<"], ", ") == "<b>&amp;</b>, &lt;"
