"""Write one HTML file with machine, caveats, plots, claims, and a table of every figure."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logstore.bench.report.claims import Claim, claims
from logstore.bench.report.plots import Plot
from logstore.bench.report.sheets import draw_all
from logstore.disk import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.4rem; font-size: 1.15rem }
img { max-width: 100% } .how { color: #666; margin-top: -.4rem }
table { border-collapse: collapse; font-size: 13px } td, th { padding: .2rem .6rem;
       border-bottom: 1px solid #ddd; text-align: left } td.n { text-align: right;
       font-variant-numeric: tabular-nums } .scroll { overflow-x: auto }
"""
COLUMNS = (
    ("layout", "layout"),
    ("phase", "phase"),
    ("case", "case"),
    ("mb_s", "MB/s"),
    ("mb_s_p05", "p5"),
    ("mb_s_p95", "p95"),
    ("operations", "operations"),
    ("ms_p50", "ms p50"),
    ("ms_p95", "p95"),
    ("ms_p99", "p99"),
    ("ms_max", "max"),
)


def cell(value: Any) -> str:
    """Format one figure; a missing figure is a dash."""
    if value is None:
        return '<td class="n">-</td>'
    if isinstance(value, float):
        text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        return f'<td class="n">{text}</td>'
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def table(rows: Sequence[Row], columns: Sequence[tuple[str, str]]) -> str:
    """Build an HTML table of rows."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for _, heading in columns)
    body = "\n".join(
        "<tr>" + "".join(cell(row.get(key)) for key, _ in columns) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>'


def figure(directory: str, plot: Plot) -> str:
    """Build the HTML of one plot, which includes the image, so that the page is a single file."""
    with open(os.path.join(directory, f"{plot.name}.svg"), "rb") as file:
        data = base64.b64encode(file.read()).decode()
    question = html.escape(plot.question)
    return (
        f"<h2>{question}</h2>\n<p class='how'>{html.escape(plot.reading)}</p>\n"
        f"<img alt='{question}' src='data:image/svg+xml;base64,{data}'>"
    )


def claims_table(found: Sequence[Claim]) -> str:
    """Build the table of claims and measured results."""
    if not found:
        return ""
    rows = [claim._asdict() for claim in found]
    columns = (("source", "where in KIP-112"), ("says", "claim"), ("measured", "measured here"))
    return "<h2>What KIP-112 claims, and what was measured</h2>\n" + table(rows, columns)


def page(
    directory: str,
    heading: str,
    facts: Sequence[str],
    plots: Sequence[Plot],
    measurements: Sequence[Row],
    found: Sequence[Claim],
) -> str:
    """Build the page."""
    rows = [row | {"case": row["measurement"].rsplit("/", 1)[-1]} for row in measurements]
    sizes = ("raw_bytes", "usable_bytes")
    layouts = {row["layout"]: row | {k: row[k] or None for k in sizes} for row in rows}
    layout_columns = (
        ("layout", "layout"), ("fs", "file system"), ("disks", "disks"), ("log_dirs", "log dirs"),
        ("raw_bytes", "bytes of disk"), ("usable_bytes", "usable bytes"), ("note", "note"),
    )  # fmt: skip
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>{html.escape(heading)}</title><style>{STYLE}</style>",
        f"<h1>{html.escape(heading)}</h1>",
        "<ul>" + "".join(f"<li>{html.escape(fact)}</li>" for fact in facts) + "</ul>",
        *[figure(directory, plot) for plot in plots],
        claims_table(found),
        "<h2>The layouts</h2>",
        table(list(layouts.values()), layout_columns),
        "<h2>Every figure</h2>",
        table(rows, COLUMNS),
        "</html>",
    ]
    return "\n".join(parts)


def machine_facts(json_paths: Sequence[str]) -> list[str]:
    """Describe the machine on which the results were measured."""
    with open(json_paths[0], encoding="utf-8") as file:
        document = json.load(file)
    machine = document["machine_info"]
    cpu = machine["cpu"]
    return [
        f"{cpu['brand_raw']}, {cpu['count']} cores, Linux {machine['release']}, "
        f"Python {machine['python_version']}, {document['datetime'][:10]}, "
        f"logstore {document['commit_info']['id']}",
    ]


def make_page(
    spark: SparkSession, directory: str, trace_dir: str, heading: str, caveats: Sequence[str] = ()
) -> str:
    """Make tables (parquet), plots (PNG, SVG) and `index.html` from a directory of results.

    Args:
        directory: the directory with the `*.json`; all output is written to this directory.
        trace_dir: the log dir of the trace.

    Returns:
        The path of the page.
    """
    from logstore.bench.report import tables

    names = sorted(entry.name for entry in files.entries(directory))
    json_paths = [os.path.join(directory, name) for name in names if name.endswith(".json")]
    if not json_paths:
        raise ValueError(f"there are no results (*.json) in {directory}")
    rows: dict[str, list[Row]] = {}
    for name, frame in tables.make(spark, json_paths, trace_dir).items():
        path = os.path.join(directory, f"{name}.parquet")
        frame.coalesce(1).write.mode("overwrite").parquet(path)
        found = [row.asDict() for row in spark.read.parquet(path).collect()]
        rows[name] = sorted(found, key=lambda row: (row["run_at"], row["measurement"]))
    measurements, workers = rows["measurements"], rows["workers"]
    plots = draw_all(directory, measurements, workers)
    facts = [*machine_facts(json_paths), *caveats]
    text = page(directory, heading, facts, plots, measurements, claims(measurements, workers))
    path = os.path.join(directory, "index.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
