"""Implement the command `logstore broker` of the program `logstore.cli`."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import BinaryIO, NamedTuple, Protocol

import click

from broker.catalog.dir_facts import cluster_of
from broker.config import BrokerConfig
from broker.coordination.errors import CoordinationError
from broker.forecast import Line, file_problems, forecast
from broker.net.descriptors import fit, raise_limit
from broker.net.listener import address_error
from broker.net.readiness import notify
from broker.properties import parse_properties
from broker.server import Broker
from broker.server_properties import ServerProperties, server_properties
from logstore import LogStore
from logstore.cli.interrupts import Interrupts, held
from logstore.cli.log_lines import log_lines
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
RECORDS = "/run/logstore"
SENTENCES = ("problem", "unknown", "note")  # the kinds of lines in a forecast that are sentences
# The options that are not named like their keys.
OPTIONS = {
    "broker.rack": "--rack", "http.listener": "--http", "zookeeper.connect": "--zookeeper",
}  # fmt: skip
# The package `cluster` imports this package, so this package must not import `cluster`.
# So this is only the name of a module, as in the table of commands in `logstore.cli.app`.
# The module is imported only if the user asks for a cluster.
# The reason is that a single broker needs neither `cluster` nor kazoo.
CLUSTER = "cluster.process.joining"
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
    help="The addresses of these listeners that the broker gives to clients, if they differ.",
)
@click.option(
    "--config",
    "config_file",
    type=click.File("rb"),
    metavar="FILE",
    help="A server.properties of Kafka; other options override it.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,...][/PATH]",
    help="Be one broker of the cluster whose brokers share this ZooKeeper.",
)
@click.option(
    "--broker-id",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="The id of this broker. By default, it is the id in the log dirs, or a new one.",
)
@click.option("--rack", metavar="RACK", help="In a cluster: the rack of this broker.")
@click.option(
    "--records",
    metavar="DIR",
    default=RECORDS,
    show_default=True,
    help="In a cluster: a directory on tmpfs, where failures of log dirs are recorded.",
)
@click.option(
    "--alone",
    "is_alone",
    is_flag=True,
    help="Serve the log dirs of a broker of a cluster without its cluster, for example if the "
    "cluster is lost. The cluster does not get the new records.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 means a free port.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve a page for operators at this address, for example 127.0.0.1:8080.",
)
@click.option(
    "--http-hosts",
    metavar="HOST[,...]",
    help="Names by which browsers on other machines may reach the page.",
)
@click.option("--check", "is_check", is_flag=True, help="Only show what would be done.")
@format_option()
def broker(
    log_dirs: tuple[str, ...],
    listeners: str | None,
    advertised_listeners: str | None,
    config_file: BinaryIO | None,
    zookeeper: str | None,
    broker_id: int | None,
    rack: str | None,
    records: str,
    is_alone: bool,
    metrics_port: int | None,
    http: str | None,
    http_hosts: str | None,
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
      logstore broker --log-dirs logs --zookeeper zk1:2181,zk2:2181,zk3:2181/cluster
    """
    given = {
        "listeners": listeners, "advertised.listeners": advertised_listeners,
        "zookeeper.connect": zookeeper, "broker.rack": rack,
        "broker.id": None if broker_id is None else str(broker_id),
        "http.listener": http, "http.hosts": http_hosts,
    }  # fmt: skip
    wish = read_wish(log_dirs, config_file, {key: text for key, text in given.items() if text})
    if is_check:
        lines = forecast(wish.found, wish.log_dirs, wish.source, wish.sources)
        _print_forecast(lines, output_format)
        click.get_current_context().exit(1 if any(map(_is_problem, lines)) else 0)
    if wish.found.problems:
        context = click.get_current_context(silent=True)
        raise click.UsageError("; ".join(wish.found.problems), context)
    if faults := file_problems(wish.found.config):
        raise click.UsageError("; ".join(faults), click.get_current_context(silent=True))
    for sentence in wish.found.unknown:
        note(f"warning: {sentence}")
    if wish.found.ignored:
        kind = "this" if wish.found.config.zookeeper_connect else "a single"
        names = ", ".join(wish.found.ignored)
        note(f"ignored, because these settings have no meaning for {kind} broker: {names}")
    if is_alone and wish.found.config.zookeeper_connect:
        raise click.UsageError("--alone contradicts the ZooKeeper of a cluster: leave one out")
    _serve(wish.log_dirs, wish.found.config, records, metrics_port, is_alone=is_alone)


class Wish(NamedTuple):
    """The settings of the user, and the source of each setting."""

    found: ServerProperties
    log_dirs: list[str]
    source: str
    sources: dict[str, str]


def read_wish(
    log_dirs: tuple[str, ...],
    config_file: BinaryIO | None,
    options: dict[str, str],
    *,
    needs_log_dirs: bool = True,
) -> Wish:
    """Read the settings: options override the file, and the file overrides the environment."""
    entries, file_name = {}, ""
    if config_file is not None:
        file_name = config_file.name
        with wrong_usage(f" ({file_name})"):
            entries = parse_properties(config_file.read())
    if "broker.id" in options:
        entries.pop("node.id", None)  # another name of the same setting
    found = server_properties({"listeners": LISTENERS} | entries | options)
    sources = {
        field: OPTIONS.get(key, f"--{key.replace('.', '-')}")
        if key in options
        else f"{file_name}: {key}"
        for field, key in found.sources.items()
    }
    if "listeners" not in entries | options:
        sources["listeners"] = "default"
    has_option = bool(log_dirs or click.get_current_context().obj)
    if found.log_dirs and not has_option:
        key = "log.dirs" if entries.get("log.dirs", "").strip() else "log.dir"
        return Wish(found, list(found.log_dirs), f"{file_name}: {key}", sources)
    source = "--log-dirs" if has_option else ENVIRONMENT_NAME
    if not (needs_log_dirs or has_option or os.environ.get(ENVIRONMENT_NAME)):
        return Wish(found, [], source, sources)
    return Wish(found, named_log_dirs(log_dirs), source, sources)


def _print_forecast(lines: list[Line], output_format: str) -> None:
    """Print what a start would do. In a table, a sentence would make a column too wide."""
    is_table = output_format == "table"
    rows = [line for line in lines if not (is_table and line.kind in SENTENCES)]
    print_rows([line._asdict() for line in rows], CHECK_COLUMNS, output_format)
    for line in lines if is_table else ():
        if line.kind in SENTENCES:
            click.echo(f"{line.kind}: {line.name}")


def _is_problem(line: Line) -> bool:
    return line.kind == "problem"


def _metrics(running: Broker, port: int | None) -> AbstractContextManager[object]:
    """Serve the metrics, if a port is given."""
    if port is None:
        return nullcontext()
    from broker.metrics import serve

    try:
        endpoint = serve(running, port)
    except OSError as error:
        raise address_error(error, f"the metrics at http://127.0.0.1:{port}") from error
    click.echo(f"serving metrics at http://127.0.0.1:{endpoint.port}/metrics")
    return endpoint


class Joined(Protocol):
    """A broker with an id. The broker can serve a store that was opened with this id."""

    broker: int

    def start(self, store: LogStore) -> AbstractContextManager[Broker]:
        """Serve an open store until the end of the `with` block."""
        ...


@contextmanager
def _joined(
    paths: list[str], config: BrokerConfig, records: str, interrupts: Interrupts
) -> Iterator[Joined | None]:
    """If the configuration names a cluster, join it."""
    if not config.zookeeper_connect:
        yield None
        return

    def pause(seconds: float) -> None:
        with interrupts.allowed():
            time.sleep(seconds)

    try:
        with importlib.import_module(CLUSTER).join(paths, config, records, pause) as joined:
            yield joined
    except CoordinationError as error:
        raise click.ClickException(f"{config.zookeeper_connect}: {error}") from error


def _refuse_without_cluster(store: LogStore) -> None:
    """Refuse to serve the replicas of a cluster alone, because the cluster would not know it."""
    if zookeeper := cluster_of(store):
        raise click.ClickException(
            f"these log dirs belong to broker {store.broker_id} of a cluster: start the broker "
            f"with --zookeeper {zookeeper}, or with zookeeper.connect in its file; if the cluster "
            "is lost for good, --alone serves the log dirs without it"
        )


def _serve(
    paths: list[str],
    config: BrokerConfig,
    records: str,
    metrics_port: int | None,
    *,
    is_alone: bool,
) -> None:
    """Open the store, and serve it until a signal comes."""
    with held() as interrupts, _joined(paths, config, records, interrupts) as joined:
        settings = config.store_config.replace(log_config=config.log_config)
        fitting = fit(raise_limit(), settings.max_open_files)
        if fitting.warning:
            note(f"warning: {fitting.warning}")
            settings = settings.replace(max_open_files=fitting.cached_files_max)
        if joined is not None:
            settings = settings.replace(broker_id=joined.broker)
        with interrupts.allowed(), progress_bar("recovering", None, is_bytes=False) as show:
            store = LogStore.open(
                paths, config=settings, progress=lambda at: show(at.logs_done, at.logs_total)
            )
        with store:
            tell_of_opening(store)
            if joined is None and not is_alone:
                _refuse_without_cluster(store)
            with (
                log_lines(),
                (
                    joined.start(store) if joined else Broker.start(config=config, store=store)
                ) as running,
                _metrics(running, metrics_port),
            ):
                for endpoint in running.endpoints:
                    click.echo(f"serving {len(store)} partitions at {endpoint}")
                if running.http_url:
                    click.echo(f"serving the page at {running.http_url}")
                notify("READY=1")
                try:
                    interrupts.wait()
                except KeyboardInterrupt:
                    notify("STOPPING=1")
                    note("stopping: answering the running requests, then closing the store")
        interrupts.asked = 0  # the user asked the command to stop, so this is not an error
