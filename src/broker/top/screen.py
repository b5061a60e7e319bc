"""Lay out a document of a page as lines of a terminal, without any I/O.

The document is `/api/v1/summary` of a broker's page (`broker.page.documents`). The admin socket of
a store gives only a part of this document. The texts in a document may come from clients, so hidden
characters are made visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from broker.page.facts import SOUND
from broker.page.text import bytes_text, count_text, rate_text, seconds_text, visible

WIDTH_MIN = 60
NAME_LETTERS_MIN = 8
Row = Mapping[str, Any]
PROBLEMS = {
    "bad_log_dirs": "bad log dirs",
    "offline_partitions": "offline partitions",
    "under_replicated_partitions": "under-replicated",
    "failed_moves": "failed moves",
}
MS = 1000


class Line(NamedTuple):
    """A line and its style: "" (plain), "title", "bad" or "soft"."""

    text: str
    tone: str = ""


class Column(NamedTuple):
    """A column of numbers or short words: its heading, its width, and its content."""

    heading: str
    width: int
    content: Callable[[Row], str]


def screen(document: Row, width: int, height: int | None = None) -> list[Line]:
    """Lay out a document.

    Args:
        height: the largest number of lines; None means no limit.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, ArithmeticError: the document has another
        form than the document of a page.
    """
    width = max(width, WIDTH_MIN)
    lines = [*_head(document, width), *_dirs(document, width), *_moves(document, width)]
    lines += [*_brokers(document, width), *_topics(document, width), *_groups(document, width)]
    lines += _slow(document, width)
    lines = [line._replace(text=line.text[:width].rstrip()) for line in lines]
    if height is not None and len(lines) > height:
        left_out = len(lines) - height + 1
        lines = [*lines[: height - 1], Line(f"{left_out} more lines", "soft")]
    return lines


def _head(document: Row, width: int) -> list[Line]:
    seconds = int(document["at_ms"]) // MS
    clock = f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
    about = document.get("broker")
    name = "store" if about is None else f"broker {int(about['broker_id'])}"
    parts = [name]
    if about is None:
        parts.append(f"process {int(document['pid'])}")
    else:
        controller = int(about["controller_id"])
        parts.append("no controller" if controller < 0 else f"controller {controller}")
        parts.append(f"{count_text(document['counts']['connection_count'])} connections")
        parts.append(f"up {seconds_text((document['at_ms'] - about['started_ms']) / MS)}")
    text = "   ".join(parts)
    text += clock.rjust(max(width - len(text), len(clock) + 1))
    lines = [Line(text, "title"), _health(document)]
    if about is not None:
        rates = document["rates"]
        lines.append(
            Line(
                f"in {bytes_text(rates['bytes_in'])}/s, {rate_text(rates['records_in'])} records/s"
                f"   out {bytes_text(rates['bytes_out'])}/s   {rate_text(rates['requests'])} "
                "requests/s"
            )
        )
    return lines


def _health(document: Row) -> Line:
    troubles = [
        f"{text} {count_text(document['trouble'][key])}"
        for key, text in PROBLEMS.items()
        if document["trouble"][key]
    ]
    if troubles:
        return Line("TROUBLE: " + ", ".join(troubles), "bad")
    return Line("All log dirs and partitions serve.")


def _table(
    title: str,
    name_of: Callable[[Row], str],
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int,
    is_bad: Callable[[Row], bool] = lambda row: False,
) -> list[Line]:
    """Lay out a table. The first column gets the remaining width."""
    if not rows:
        return []
    while columns and width - sum(one.width + 2 for one in columns) < NAME_LETTERS_MIN:
        columns = columns[:-1]
    left = width - sum(one.width + 2 for one in columns)
    heading = title.ljust(left) + "".join(f"  {one.heading:>{one.width}}" for one in columns)
    lines = [Line(""), Line(heading, "title")]
    for row in rows:
        text = _cut(name_of(row), left).ljust(left)
        text += "".join(f"  {_cut(one.content(row), one.width):>{one.width}}" for one in columns)
        lines.append(Line(text, "bad" if is_bad(row) else ""))
    return lines


def _cut(text: str, width: int) -> str:
    """Cut a text in the middle, so that the end of a path or the number of a partition stays."""
    text = visible(text)
    if len(text) <= width:
        return text
    begin = (width - 1) // 2
    return f"{text[:begin]}…{text[len(text) - (width - 1 - begin) :]}"


def _dirs(document: Row, width: int) -> list[Line]:
    columns = [
        Column("STATE", 9, lambda row: str(row["state"]).upper()),
        Column("REPLICAS", 8, lambda row: count_text(row["partition_count"])),
        Column("RECORDS", 9, lambda row: bytes_text(row["size_bytes"])),
        Column("FREE", 9, lambda row: bytes_text(row["usable_bytes"])),
        Column("USED", 5, _used),
    ]
    rows = document["log_dirs"]
    shown = _table("LOG DIR", lambda row: str(row["path"]), columns, rows, width, _is_bad)
    lines = shown[:2]
    for row, line in zip(rows, shown[2:], strict=True):
        lines.append(line)
        if _is_bad(row) and row["reason"]:
            lines.append(Line("    " + visible(str(row["reason"])), "soft"))
    return lines


def _is_bad(row: Row) -> bool:
    return row["state"] not in SOUND


def _used(row: Row) -> str:
    total = row["total_bytes"]
    return f"{100 * (1 - row['usable_bytes'] / total):.0f} %" if total else "–"


def _moves(document: Row, width: int) -> list[Line]:
    columns = [
        Column("STATE", 11, lambda row: str(row["state"]).replace("_", " ")),
        Column("COPIED", 8, _copied),
        Column("LAG", 9, lambda row: bytes_text(row["lag_bytes"])),
        Column("RATE", 10, lambda row: f"{bytes_text(row['bytes_per_second'])}/s"),
        Column("LEFT", 11, lambda row: seconds_text(row["eta_seconds"])),
    ]
    return _table(
        "MOVE", _partition_name, columns, document["moves"], width,
        lambda row: bool(row["state"] == "failed"),
    )  # fmt: skip


def _partition_name(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _copied(row: Row) -> str:
    total = row["bytes_total"]
    return f"{100 * row['bytes_done'] / total:.0f} %" if total else "100 %"


def _brokers(document: Row, width: int) -> list[Line]:
    """Lay out the brokers, if there are several."""
    rows = document.get("brokers", ())
    columns = [
        Column("ID", 6, lambda row: str(row["id"])),
        Column("CONTROLLER", 10, lambda row: "yes" if row["is_controller"] else ""),
        Column("LEADS", 7, lambda row: count_text(row["leads"])),
        Column("REPLICAS", 8, lambda row: count_text(row["replicas"])),
    ]
    if len(rows) < 2:
        return []
    return _table("BROKER", lambda row: f"{row['host']}:{row['port']}", columns, rows, width)


def _topics(document: Row, width: int) -> list[Line]:
    columns = [
        Column("PARTITIONS", 10, lambda row: count_text(row["partition_count"])),
        Column("BYTES", 9, lambda row: bytes_text(row["size_bytes"])),
    ]
    if document.get("broker") is not None:
        columns += [
            Column("IN", 10, lambda row: f"{bytes_text(row['rates']['bytes_in'])}/s"),
            Column("RECORDS", 9, lambda row: f"{rate_text(row['rates']['records_in'])}/s"),
            Column("OUT", 10, lambda row: f"{bytes_text(row['rates']['bytes_out'])}/s"),
        ]
    return _table("TOPIC", lambda row: str(row["name"]), columns, document["topics"], width)


def _groups(document: Row, width: int) -> list[Line]:
    columns = [
        Column("STATE", 19, lambda row: str(row["state"])),
        Column("MEMBERS", 7, lambda row: count_text(row["member_count"])),
        Column("LAG", 14, _lag),
    ]
    return _table("GROUP", lambda row: str(row["name"]), columns, document.get("groups", ()), width)


def _lag(row: Row) -> str:
    """Format a lag. A plus means that the lag of some partitions is not known."""
    return count_text(row["lag"]) + ("+" if row["unknown_count"] else "")


def _slow(document: Row, width: int) -> list[Line]:
    def phase(place: int) -> Callable[[Row], str]:
        return lambda row: seconds_text(row["seconds"][place])

    columns = [
        Column("AGO", 13, lambda row: seconds_text((document["at_ms"] - row["at_ms"]) / MS)),
        Column("QUEUE", 8, phase(0)),
        Column("LOCAL", 8, phase(1)),
        Column("REMOTE", 8, phase(2)),
        Column("SEND", 8, phase(3)),
    ]
    return _table(
        "SLOW REQUEST", lambda row: f"{row['api']} {row['address']}", columns,
        document.get("slow_requests", ()), width,
    )  # fmt: skip
