"""Write the first page: the broker's health, its traffic, and its log dirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.page.facts import NOBODY, SOUND, BrokerRow, DirRow, Facts, SlowRow
from broker.page.paging import Asked
from broker.page.ranking import largest_lags, most_traffic
from broker.page.text import rate_text, seconds_text, shortened
from broker.page.views.frame import moment, section
from broker.page.views.markup import (
    Html,
    byte_rate,
    column,
    element,
    joined,
    number,
    rate,
    size,
    table,
)
from broker.page.views.plots import plots
from broker.page.views.tables import groups_table, state, topics_table

PROBLEMS = {
    "bad_log_dirs": ("log dir does not serve as it should", "log dirs do not serve as they should"),
    "offline_partitions": ("partition is offline", "partitions are offline"),
    "offline_replicas": (
        "replica of this broker is offline",
        "replicas of this broker are offline",
    ),
    "under_replicated_partitions": (
        "partition is under-replicated",
        "partitions are under-replicated",
    ),
    "failed_moves": ("move failed", "moves failed"),
}
TARGETS = {
    "bad_log_dirs": "#log-dirs",
    "offline_partitions": "/partitions?show=offline",
    "offline_replicas": "/partitions?show=offline-here",
    "under_replicated_partitions": "/partitions?show=under-replicated",
    "failed_moves": "#moves",
}
PHASES = ("queue", "local", "remote", "send")
BAR_WIDTH = 100


def overview(facts: Facts, asked: Asked) -> Html:
    """Write the part of the first page that changes."""
    return joined(
        [
            health(facts),
            tiles(facts),
            section("The last hour", plots(facts.curves, facts.rates, facts.at_ms / 1000)),
            element("div", section("Log dirs", dirs(facts)), id="log-dirs"),
            element("div", section("Moves between log dirs", moves(facts)), id="moves"),
            section("Brokers", brokers(facts)),
            section("Busiest topics", topics_table(most_traffic(facts.topics))),
            section("Groups with the largest lag", groups_table(largest_lags(facts.groups))),
            section("Slow requests", slow(facts)),
            moment(facts),
        ]
    )


def health(facts: Facts) -> Html:
    """Write in one line whether an operator must do something."""
    troubles = {key: count for key, count in facts.trouble().items() if count}
    if not troubles:
        return element("p", mark("ok"), "All log dirs and partitions serve.", class_="health ok")
    links = [
        element(
            "li",
            element("a", number(count, key), " ", PROBLEMS[key][count != 1], href=TARGETS[key]),
        )
        for key, count in troubles.items()
    ]
    return element("div", mark("bad"), element("ul", *links), class_="health bad")


def mark(kind: str) -> Html:
    """Write a sign, whose shape and colour both show whether there is a problem."""
    return element("span", "✓" if kind == "ok" else "!", class_="mark", aria_hidden="true")


def tiles(facts: Facts) -> Html:
    """Write the most important numbers."""
    rates, counts = facts.rates, facts.counts
    shown = {
        "Bytes in": byte_rate(rates.bytes_in, "bytes_in"),
        "Bytes out": byte_rate(rates.bytes_out, "bytes_out"),
        "Records in": rate(rates.records_in, "records_in"),
        "Requests": rate(rates.requests, "requests"),
        "Topics": number(len(facts.topics), "topic_count"),
        "Partitions": number(len(facts.partitions), "partition_count"),
        "Connections": number(counts["connection_count"], "connection_count"),
        "Groups": number(len(facts.groups), "group_count"),
    }
    pairs = [
        element("div", element("dt", name), element("dd", value)) for name, value in shown.items()
    ]
    return element("dl", *pairs, class_="tiles")


def dirs(facts: Facts) -> Html:
    """Write the log dirs, and the reasons why some do not work."""
    columns = [
        column("Log dir", lambda one: element("code", shortened(one.path)), is_head=True),
        column("State", _dir_state),
        column("Replicas", lambda one: number(one.partition_count), is_number=True),
        column("Records", lambda one: size(one.size_bytes), is_number=True),
        column("Free", lambda one: size(one.usable_bytes), is_number=True),
        column("Disk used", _disk),
    ]
    return table("Log dirs", columns, facts.dirs, "There is no log dir.")


def _dir_state(one: DirRow) -> Html:
    parts: list[object] = [state(one.state, is_good=one.state in SOUND)]
    if one.reason:
        parts.append(element("div", shortened(one.reason, 300), class_="reason"))
    if one.longest_call_seconds >= 1:
        parts.append(
            element(
                "div",
                f"A call to the disk has been running for "
                f"{seconds_text(one.longest_call_seconds)}.",
                class_="reason",
            )
        )
    return joined(parts)


def _disk(one: DirRow) -> Html:
    if not one.total_bytes:
        return element("span", "–", title="not known to this broker")
    used = 1 - one.usable_bytes / one.total_bytes
    return bar(used, joined([f"{100 * used:.0f} % of ", size(one.total_bytes)]))


def bar(part: float, label: Html) -> Html:
    """Draw a fraction as a bar, with its text."""
    width = round(BAR_WIDTH * min(max(part, 0.0), 1.0), 1)
    drawn = element(
        "svg",
        element("rect", width=BAR_WIDTH, height=8, rx=4, class_="whole"),
        element("rect", width=width, height=8, rx=4, class_="full" if part > 0.9 else "part"),
        viewBox=f"0 0 {BAR_WIDTH} 8", class_="bar", aria_hidden="true",
    )  # fmt: skip
    return element("span", drawn, element("span", label), class_="barred")


def moves(facts: Facts) -> Html:
    """Write the moves between log dirs, and their progress."""
    columns = [
        column("Partition", lambda one: f"{one['topic']}-{one['partition']}", is_head=True),
        column("From", lambda one: element("code", shortened(str(one["source"] or "–")))),
        column("To", lambda one: element("code", shortened(str(one["target"] or "–")))),
        column("State", _move_state),
        column("Copied", _copied),
        column("Lag", lambda one: size(one["lag_bytes"]), is_number=True),
        column("Rate", lambda one: byte_rate(one["bytes_per_second"]), is_number=True),
        column("Time left", lambda one: seconds_text(one["eta_seconds"]), is_number=True),
    ]
    return table("Moves", columns, facts.moves, "No replica is moved.")


def _move_state(one: Mapping[str, Any]) -> Html:
    word = state(one["state"].replace("_", " "), is_good=one["state"] != "failed")
    if not one["error"]:
        return word
    return joined([word, element("div", shortened(one["error"], 300), class_="reason")])


def _copied(one: Mapping[str, Any]) -> Html:
    total = one["bytes_total"]
    part = one["bytes_done"] / total if total else 1.0
    return bar(part, joined([size(one["bytes_done"]), " of ", size(total)]))


def brokers(facts: Facts) -> Html:
    """Write the live brokers of the cluster, and which of them is the controller."""
    own = facts.about["broker_id"]

    def name(one: BrokerRow) -> object:
        return joined([one.id, " (this broker)" if one.id == own else ""])

    columns = [
        column("Broker", name, is_head=True),
        column("Address", lambda one: shortened(f"{one.host}:{one.port}")),
        column("Rack", lambda one: shortened(one.rack) or "–"),
        column("Controller", lambda one: "yes" if one.is_controller else "no"),
        column("Leads", lambda one: number(one.leads), is_number=True),
        column("Replicas", lambda one: number(one.replicas), is_number=True),
    ]
    shown = table("Brokers", columns, facts.brokers, "No broker is known.")
    if facts.about["controller_id"] == NOBODY:
        return joined([element("p", "No controller is known.", class_="reason"), shown])
    return shown


def slow(facts: Facts) -> Html:
    """Write the latest slow requests, and the phases in which they were slow."""
    columns = [
        column("Request", lambda one: one.api, is_head=True),
        column("Client", lambda one: shortened(one.address)),
        column("Ago", lambda one: seconds_text(max(facts.at_ms - one.at_ms, 0) / 1000)),
        *[
            column(name.capitalize(), _phase(number), is_number=True)
            for number, name in enumerate(PHASES)
        ],
    ]
    return table("Slow requests", columns, facts.slow, "No request was slow.")


def _phase(place: int) -> Any:
    def content(one: SlowRow) -> object:
        return f"{rate_text(one.seconds[place])} s"

    return content
