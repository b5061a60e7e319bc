"""Write the pages with long lists: partitions, topics, groups, and one topic or group."""

from __future__ import annotations

from urllib.parse import urlencode

from broker.page.documents import NoSuchThingError, group_named
from broker.page.facts import Facts, PartitionRow
from broker.page.history import Curves, Rates
from broker.page.paging import Asked, found, found_partitions, part_of
from broker.page.text import shortened
from broker.page.views.frame import brokers_text, moment, pager, section
from broker.page.views.markup import Html, column, element, joined, link, number, size, table
from broker.page.views.plots import plots
from broker.page.views.tables import groups_table, lag, state, topics_table


def partitions(facts: Facts, asked: Asked) -> Html:
    """Write a page of the partitions of the cluster, or of one topic."""
    return joined([_partitions(facts, asked, "/partitions"), moment(facts)])


def _partitions(facts: Facts, asked: Asked, path: str) -> Html:
    part = part_of(found_partitions(facts.partitions, asked), asked)
    columns = [
        column("Partition", _name, is_head=True),
        column("State", _state),
        column("Leader", _leader, is_number=True),
        column("Replicas", lambda one: brokers_text(one.replicas)),
        column("ISR", lambda one: brokers_text(one.isr)),
        column("ELR", lambda one: "–" if one.elr is None else brokers_text(one.elr)),
        column("Start", lambda one: number(one.start), is_number=True),
        column("High watermark", lambda one: number(one.high_watermark), is_number=True),
        column("End", lambda one: number(one.end), is_number=True),
        column("Bytes", lambda one: size(one.size_bytes), is_number=True),
        column("Log dir", lambda one: element("code", shortened(one.log_dir or "–"))),
    ]
    shown = table("Partitions", columns, part.rows, "There is no such partition.")
    return joined([pager(path, asked, part, "partitions"), shown])


def _name(one: PartitionRow) -> Html:
    target = "/topic?" + urlencode({"name": one.topic})
    return joined([link(one.topic, target), f"-{one.partition}"])


def _state(one: PartitionRow) -> Html:
    """Write the state of a partition, and why this broker cannot use its own replica."""
    if not one.reason:
        return _state_word(one)
    return joined([_state_word(one), element("div", shortened(one.reason, 300), class_="reason")])


def _state_word(one: PartitionRow) -> Html:
    if one.is_offline:
        return state("offline", is_good=False)
    if one.is_under_replicated:
        return state("under-replicated", is_good=False)
    return state("online", is_good=True)


def _leader(one: PartitionRow) -> object:
    return "–" if one.is_offline else one.leader


def topics(facts: Facts, asked: Asked) -> Html:
    """Write a page of the topics."""
    part = part_of(found(facts.topics, asked, lambda one: one.name), asked)
    return joined(
        [pager("/topics", asked, part, "topics"), topics_table([*part.rows]), moment(facts)]
    )


def topic(facts: Facts, asked: Asked) -> Html:
    """Write the page of one topic."""
    row = next((one for one in facts.topics if one.name == asked.name), None)
    if row is None:
        raise NoSuchThingError("there is no topic with this name")
    curves = facts.topic_curves.get(row.name, Curves([], []))
    latest = row.rates if curves.rates else Rates()
    return joined(
        [
            section("The last hour", plots(curves, latest, facts.at_ms / 1000)),
            section("Partitions", _partitions(facts, asked, "/topic")),
            moment(facts),
        ]
    )


def groups(facts: Facts, asked: Asked) -> Html:
    """Write a page of the groups that this broker coordinates."""
    part = part_of(found(facts.groups, asked, lambda one: one.name), asked)
    return joined(
        [pager("/groups", asked, part, "groups"), groups_table([*part.rows]), moment(facts)]
    )


def group(facts: Facts, asked: Asked) -> Html:
    """Write the page of one group: its members, and its lag in each partition."""
    one = group_named(facts, asked.name)
    about = element(
        "dl",
        *[
            element("div", element("dt", name), element("dd", value))
            for name, value in (
                ("State", one.state),
                ("Protocol", shortened(one.protocol or "–")),
                ("Lag", lag(one)),
            )
        ],
        class_="tiles few",
    )  # fmt: skip
    members = table(
        "Members",
        [
            column("Client id", lambda each: shortened(each.client_id) or "–", is_head=True),
            column("Host", lambda each: shortened(each.host)),
            column("Instance id", lambda each: shortened(each.instance_id) or "–"),
            column("Member id", lambda each: shortened(each.id)),
        ],
        one.members[: asked.size],
        "The group has no members.",
    )
    part = part_of(one.offsets, asked)
    offsets = table(
        "Committed offsets",
        [
            column("Partition", lambda each: f"{each.topic}-{each.partition}", is_head=True),
            column("Committed", lambda each: number(each.offset), is_number=True),
            column("High watermark", lambda each: number(each.end), is_number=True),
            column("Lag", lambda each: number(each.lag), is_number=True),
        ],
        part.rows,
        "The group has not committed an offset.",
    )
    return joined(
        [
            about,
            section("Members", members),
            section("Committed offsets", pager("/group", asked, part, "partitions"), offsets),
            moment(facts),
        ]
    )
