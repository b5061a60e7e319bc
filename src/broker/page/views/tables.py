"""Write the tables of topics and of groups with their lag, which several pages show."""

from __future__ import annotations

from urllib.parse import urlencode

from broker.page.facts import GroupRow, TopicRow
from broker.page.views.markup import (
    Html,
    byte_rate,
    column,
    element,
    joined,
    link,
    number,
    rate,
    size,
    table,
)


def state(word: str, *, is_good: bool) -> Html:
    """Write a state as a word; its colour has the same meaning."""
    return element("span", word.upper(), class_="state good" if is_good else "state bad")


def topics_table(rows: list[TopicRow]) -> Html:
    """Write topics and their rates."""
    columns = [
        column(
            "Topic",
            lambda one: link(one.name, "/topic?" + urlencode({"name": one.name})),
            is_head=True,
        ),
        column("Partitions", lambda one: number(one.partition_count), is_number=True),
        column("Bytes here", lambda one: size(one.size_bytes), is_number=True),
        column("Bytes in", lambda one: byte_rate(one.rates.bytes_in), is_number=True),
        column("Records in", lambda one: rate(one.rates.records_in), is_number=True),
        column("Bytes out", lambda one: byte_rate(one.rates.bytes_out), is_number=True),
        column("Requests", lambda one: rate(one.rates.requests), is_number=True),
    ]
    return table("Topics", columns, rows, "There is no such topic.")


def groups_table(rows: list[GroupRow]) -> Html:
    """Write groups and their lags."""
    columns = [
        column(
            "Group",
            lambda one: link(
                one.name or "(empty name)",
                "/group?" + urlencode({"name": one.name}, errors="surrogatepass"),
            ),
            is_head=True,
        ),
        column("State", lambda one: one.state),
        column("Members", lambda one: number(len(one.members)), is_number=True),
        column("Partitions", lambda one: number(len(one.offsets)), is_number=True),
        column("Lag", lag, is_number=True),
    ]
    return table("Groups", columns, rows, "There is no such group.")


def lag(one: GroupRow) -> object:
    """Write the lag of a group, and the number of partitions whose lag is not known."""
    if not one.unknown_count:
        return number(one.lag)
    return joined([number(one.lag), f" (not known for {one.unknown_count})"])
