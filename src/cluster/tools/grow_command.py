"""Implement `logstore cluster grow`: a broker alone becomes the first broker of a cluster."""

from __future__ import annotations

import time
from typing import BinaryIO

import click

from broker.cli import RECORDS, read_wish
from broker.coordination.errors import CoordinationError
from cluster.process.joining import join
from logstore import LogStore
from logstore.cli.interrupts import held
from logstore.cli.options import log_dirs_option, note, tell_of_opening
from logstore.cli.output import progress_bar
from logstore.units import format_count

# Nobody but this process connects, so it needs no login and no certificate.
OWN_LISTENER = {
    "listeners": "PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "PLAINTEXT",
    "inter.broker.listener.name": "", "listener.security.protocol.map": "",
}  # fmt: skip


@click.command(short_help="Make a broker without a cluster the first broker of one.")
@log_dirs_option
@click.option(
    "--config",
    "config_file",
    type=click.File("rb"),
    metavar="FILE",
    help="The broker's server.properties; other options override it.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,...][/PATH]",
    help="The ZooKeeper of the new cluster.",
)
@click.option(
    "--broker-id",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="The id of this broker. By default, it is the id in the log dirs, or a new one.",
)
@click.option(
    "--records",
    metavar="DIR",
    default=RECORDS,
    show_default=True,
    help="A directory on tmpfs, where failures of log dirs are recorded.",
)
def grow(
    log_dirs: tuple[str, ...],
    config_file: BinaryIO | None,
    zookeeper: str | None,
    broker_id: int | None,
    records: str,
) -> None:
    """Write the topics in the log dirs of a stopped broker into a ZooKeeper.

    The topics keep their ids, settings, records and groups, with one replica each. Then start the
    broker with the same ZooKeeper, add further brokers, and raise the number of replicas with
    `logstore cluster reassign`. If the command is interrupted, run it again.

    \b
    Example:
      logstore cluster grow --log-dirs /disk1,/disk2 --zookeeper zk1:2181,zk2:2181,zk3:2181/logs
    """
    given = {
        "zookeeper.connect": zookeeper,
        "broker.id": None if broker_id is None else str(broker_id),
    }  # fmt: skip
    wish = read_wish(
        log_dirs, config_file, OWN_LISTENER | {k: text for k, text in given.items() if text}
    )
    config = wish.found.config
    if not config.zookeeper_connect:
        raise click.UsageError("name the ZooKeeper of the cluster: --zookeeper")
    if wish.found.problems:
        raise click.UsageError("; ".join(wish.found.problems))
    with held() as interrupts:

        def pause(seconds: float) -> None:
            with interrupts.allowed():
                time.sleep(seconds)

        try:
            with join(wish.log_dirs, config, records, pause) as joined:
                settings = config.store_config.replace(
                    log_config=config.log_config, broker_id=joined.broker
                )
                with progress_bar("recovering", None, is_bytes=False) as show:
                    store = LogStore.open(
                        wish.log_dirs,
                        config=settings,
                        progress=lambda at: show(at.logs_done, at.logs_total),
                    )
                with store:
                    tell_of_opening(store)
                    grown = joined.grow(store)
        except CoordinationError as error:
            raise click.ClickException(f"{config.zookeeper_connect}: {error}") from error
    partitions = format_count(grown.partition_count, "partition")
    topics = format_count(len(grown.new_topics), "topic")
    click.echo(f"broker {grown.broker} leads {partitions}; {topics} new in the cluster")
    note("now start the broker with this ZooKeeper, and then further brokers")
