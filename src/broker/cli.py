"""Implement the command `logstore broker` of the program `logstore.cli`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, NamedTuple

import click

from broker.config import BrokerConfig
from broker.forecast import Line, forecast
from broker.net.readiness import notify
from broker.properties import parse_properties
from broker.server import Broker
from broker.server_properties import ServerProperties, server_properties
from logstore import LogStore
from logstore.cli.interrupts import held
from logstore.cli.options import (
    ENVIRONMENT_NAME,
    format_option,
    log_dirs_option,
    named_log_dirs,
    note,
    tell_of_opening,
    wrong_usage,
)
from logstore.cli.output import Column, optional_text, print_rows, progress_bar

LISTENERS = "PLAINTEXT://127.0.0.1:9092"
CHECK_COLUMNS = [
    Column("kind", "what"),
    Column("name", "name"),
    Column("value", "value", optional_text),
    Column("default", "default", optional_text),
    Column("source", "from", optional_text),
]


@click.command("broker", short_help="Serve the store to Kafka's clients.")
@log_dirs_option
@click.option(
    "--listeners",
    show_default=LISTENERS,
    metavar="NAME://HOST:PORT[,...]",
    help="Addresses at which clients connect. An empty HOST means all addresses; port 0 means a "
    "free port.",
)
@click.option(
    "--advertised-listeners",
    metavar="NAME://HOST:PORT[,...]",
    help="Addresses that clients are given for these listeners, if they differ.",
)
@click.option(
    "--config",
    "config_file",
    type=click.File("rb"),
    metavar="FILE",
    help="A server.properties of Kafka; other options override it.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 means a free port.",
)
@click.option("--check", "is_check", is_flag=True, help="Only show what would be done.")
@format_option()
def broker(
    log_dirs: tuple[str, ...],
    listeners: str | None,
    advertised_listeners: str | None,
    config_file: BinaryIO | None,
    metrics_port: int | None,
    is_check: bool,
    output_format: str,
) -> None:
    """Serve the store to Kafka's clients, until Ctrl-C or SIGTERM.

    A new store is created if the log dirs are new. On the first signal, the broker answers its
    unfinished requests, and closes the store. A second signal stops the broker at once. With
    --check, the exit code is 1 if a problem was found. Use --format only with --check.

    \b
    Examples:
      logstore broker --log-dirs /disk1/logs,/disk2/logs
      logstore broker --log-dirs logs --listeners PLAINTEXT://:9092 \\
        --advertised-listeners PLAINTEXT://kafka.example.com:9092
      logstore broker --config server.properties --check
    """
    given = {"listeners": listeners, "advertised.listeners": advertised_listeners}
    wish = _wish(log_dirs, config_file, {key: text for key, text in given.items() if text})
    if is_check:
        lines = forecast(wish.found, wish.log_dirs, wish.source, wish.sources)
        print_rows([line._asdict() for line in lines], CHECK_COLUMNS, output_format)
        click.get_current_context().exit(1 if any(map(_is_problem, lines)) else 0)
    if wish.found.problems:
        context = click.get_current_context(silent=True)
        raise click.UsageError("; ".join(wish.found.problems), context)
    for sentence in wish.found.unknown:
        note(f"warning: {sentence}")
    if wish.found.ignored:
        note(
            "ignored, because these settings have no meaning for a single broker: "
            + ", ".join(wish.found.ignored)
        )
    _serve(wish.log_dirs, wish.found.config, metrics_port)


class _Wish(NamedTuple):
    """Hold the settings that the user gives, and for each setting where it was given."""

    found: ServerProperties
    log_dirs: list[str]
    source: str
    sources: dict[str, str]


def _wish(
    log_dirs: tuple[str, ...], config_file: BinaryIO | None, options: dict[str, str]
) -> _Wish:
    """Read the settings: options override the file, and the file overrides the environment."""
    entries, file_name = {}, ""
    if config_file is not None:
        file_name = config_file.name
        with wrong_usage(f" ({file_name})"):
            entries = parse_properties(config_file.read())
    found = server_properties({"listeners": LISTENERS} | entries | options)
    sources = {
        field: f"--{key.replace('.', '-')}" if key in options else f"{file_name}: {key}"
        for field, key in found.sources.items()
    }
    if "listeners" not in entries | options:
        sources["listeners"] = "default"
    has_option = bool(log_dirs or click.get_current_context().obj)
    if found.log_dirs and not has_option:
        key = "log.dirs" if entries.get("log.dirs", "").strip() else "log.dir"
        return _Wish(found, list(found.log_dirs), f"{file_name}: {key}", sources)
    source = "--log-dirs" if has_option else ENVIRONMENT_NAME
    return _Wish(found, named_log_dirs(log_dirs), source, sources)


def _is_problem(line: Line) -> bool:
    return line.kind == "problem"


def _metrics(running: Broker, port: int | None) -> AbstractContextManager[object]:
    """Serve the metrics, if a port is given."""
    if port is None:
        return nullcontext()
    from broker.metrics import serve

    endpoint = serve(running, port)
    click.echo(f"serving metrics at http://127.0.0.1:{endpoint.port}/metrics")
    return endpoint


def _serve(paths: list[str], config: BrokerConfig, metrics_port: int | None) -> None:
    """Open the store, and serve it until a signal comes."""
    with held() as interrupts:
        with interrupts.allowed(), progress_bar("recovering", None, is_bytes=False) as show:
            store = LogStore.open(
                paths,
                config=config.store_config.replace(log_config=config.log_config),
                progress=lambda at: show(at.logs_done, at.logs_total),
            )
        with store:
            tell_of_opening(store)
            with (
                Broker.start(config=config, store=store) as running,
                _metrics(running, metrics_port),
            ):
                for endpoint in running.endpoints:
                    click.echo(f"serving {len(store)} partitions at {endpoint}")
                notify("READY=1")
                try:
                    interrupts.wait()
                except KeyboardInterrupt:
                    notify("STOPPING=1")
                    note("stopping: answering what is under way, then closing the store")
        interrupts.asked = 0  # the command has stopped as the signal asked: no error
