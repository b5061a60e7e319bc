"""Implement the command `logstore broker` of the program `logstore.cli`."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext

import click

from broker.config import BrokerConfig
from broker.server import Broker
from logstore import LogStore
from logstore.cli.interrupts import held
from logstore.cli.options import (
    log_dirs_option,
    named_log_dirs,
    note,
    tell_of_opening,
    wrong_usage,
)
from logstore.cli.output import progress_bar

LISTENERS = "PLAINTEXT://127.0.0.1:9092"


def _metrics(running: Broker, port: int | None) -> AbstractContextManager[object]:
    """Serve the metrics, if a port is given."""
    if port is None:
        return nullcontext()
    from broker.metrics import serve

    endpoint = serve(running, port)
    click.echo(f"serving metrics at http://127.0.0.1:{endpoint.port}/metrics")
    return endpoint


@click.command("broker", short_help="Serve the store to Kafka's clients.")
@log_dirs_option
@click.option(
    "--listeners",
    default=LISTENERS,
    show_default=True,
    metavar="NAME://HOST:PORT[,...]",
    help="Addresses at which clients connect; an empty HOST means all, port 0 a free one.",
)
@click.option(
    "--advertised-listeners",
    default="",
    metavar="NAME://HOST:PORT[,...]",
    help="Addresses that clients are given for these listeners, if they differ.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 means a free port.",
)
def broker(
    log_dirs: tuple[str, ...],
    listeners: str,
    advertised_listeners: str,
    metrics_port: int | None,
) -> None:
    """Serve the store to Kafka's clients, until Ctrl-C or SIGTERM.

    A new store is created if the log dirs are new. On the first signal, the broker answers what is
    under way, and closes the store; a second signal ends it at once.

    \b
    Examples:
      logstore broker --log-dirs /disk1/logs,/disk2/logs
      logstore broker --log-dirs logs --listeners PLAINTEXT://:9092 \\
        --advertised-listeners PLAINTEXT://kafka.example.com:9092
    """
    paths = named_log_dirs(log_dirs)
    with wrong_usage():
        config = BrokerConfig(listeners=listeners, advertised_listeners=advertised_listeners)
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
                try:
                    with interrupts.allowed():
                        threading.Event().wait()
                except KeyboardInterrupt:
                    note("stopping: answering what is under way, then closing the store")
        interrupts.asked = 0  # it ended in order, as the signal asked
