"""Implement the command `logstore broker` of the program `logstore.cli`."""

from __future__ import annotations

import threading

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
def broker(log_dirs: tuple[str, ...], listeners: str, advertised_listeners: str) -> None:
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
            with Broker.start(config=config, store=store) as running:
                for endpoint in running.endpoints:
                    click.echo(f"serving {len(store)} partitions at {endpoint}")
                try:
                    with interrupts.allowed():
                        threading.Event().wait()
                except KeyboardInterrupt:
                    note("stopping: answering what is under way, then closing the store")
        interrupts.asked = 0  # it ended in order, as the signal asked
