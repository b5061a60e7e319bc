"""Print plans: the moves, the log dirs before and after, and what cannot be done."""

from __future__ import annotations

from typing import Any

import click

from logstore.cli.options import note
from logstore.cli.output import Column, Row, count_text, optional_text, print_rows, size_text
from logstore.units import format_count
from mover.cli.live import name_of, print_moves

PLANNED_COLUMNS = [
    Column("name", "partition"),
    Column("source", "from", optional_text),
    Column("target", "to"),
    Column("size_bytes", "size", size_text, is_number=True),
]
DIR_COLUMNS = [
    Column("log_dir", "log dir"),
    Column("bytes_before", "before", size_text, is_number=True),
    Column("bytes_after", "after", size_text, is_number=True),
    Column("share_bytes", "share", size_text, is_number=True),
    Column("replicas_before", "replicas", count_text, is_number=True),
    Column("replicas_after", "then", count_text, is_number=True),
    Column("usable_after", "free then", size_text, is_number=True),
    Column("remark", "remark", optional_text),
]


def print_plan(facts: Row, output_format: str) -> None:
    """Print a plan; as JSON, a plan is one document that includes the reassignment."""
    if output_format != "table":
        print_document(facts, output_format)
        return
    if facts["planned"]:
        print_rows(
            [{**row, "name": name_of(row)} for row in facts["planned"]], PLANNED_COLUMNS, "table"
        )
        click.echo()
    if facts["log_dirs"]:
        has_remark = any(row["remark"] for row in facts["log_dirs"])
        print_rows(facts["log_dirs"], DIR_COLUMNS if has_remark else DIR_COLUMNS[:-1], "table")
    count = len(facts["planned"])
    click.echo(
        f"{format_count(count, 'move')}, {size_text(facts['bytes_to_move'])}"
        if count
        else "nothing to move"
    )
    tell_of_the_rest(facts)


def tell_of_the_rest(facts: Row) -> None:
    """Print the partitions to be created; print on stderr the moves that are left out, and why."""
    for wish in facts.get("wishes", ()):
        if wish["state"] == "withdrawn":
            click.echo(f"{name_of(wish)} will no longer be created in {wish['target']}")
        else:
            click.echo(
                f"{name_of(wish)} does not exist yet: it will be created in {wish['target']}"
            )
    for one in facts.get("skipped", ()):
        name = one["log_dir"] if one["topic"] is None else name_of(one)
        note(f"{'nothing to do' if one['is_unasked'] else 'not done'}: {name}: {one['reason']}")


def print_outcome(facts: Row, output_format: str) -> None:
    """Print the result of moves."""
    if output_format != "table":
        print_document(facts, output_format)
        return
    if facts["moves"]:
        print_moves(facts["moves"])
    elif not facts.get("wishes"):
        click.echo("no moves")
    tell_of_the_rest(facts)


def print_document(facts: Row, output_format: str) -> None:
    """Print the whole document as indented JSON, or each of its moves as one line of JSON."""
    document: Any = facts
    if output_format == "jsonl":
        for key in ("moves", "planned"):
            if key in facts:
                document = facts[key] + facts.get("wishes", [])
                break
        print_rows(document, [], "jsonl")
        return
    import json

    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
