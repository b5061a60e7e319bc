"""Implement `logstore cluster grow`: a single broker becomes the first broker of a cluster."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from broker.cli import RECORDS, Wish, read_wish
from broker.coordination.errors import CoordinationError
from cluster.process.joining import Grown, check_store, join
from logstore import LogStore
from logstore.cli.interrupts import held
from logstore.cli.options import log_dirs_option, note, tell_of_opening
from logstore.cli.output import progress_bar
from logstore.units import format_count

# The password is made for this run, so only this process can log in.
# So no other client can read or change anything, even if the ACLs allow this.
USER = "logstore-cluster-grow"
OWN_LISTENER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "advertised.listeners": "",
    "security.inter.broker.protocol": "SASL_PLAINTEXT", "inter.broker.listener.name": "",
    "listener.security.protocol.map": "", "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN", "http.listener": "",
}  # fmt: skip


@contextmanager
def own_login() -> Iterator[dict[str, str]]:
    """Return the settings of a listener where only this process can log in."""
    with tempfile.NamedTemporaryFile("w", prefix="logstore-grow-") as file:  # not for others
        file.write(f"{USER}:{secrets.token_hex(32)}\n")
        file.flush()
        yield {
            **OWN_LISTENER, "sasl.users.file": file.name,
            "sasl.inter.broker.credentials.file": file.name,
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

    The topics keep their ids, settings, records and groups, with one replica each. The ACLs, quotas
    and SCRAM users of the broker are written, too, and belong to the cluster from then on. Then
    start the broker with the same ZooKeeper, add further brokers, and raise the number of replicas
    with `logstore cluster reassign`. If the command is interrupted, run it again.

    \b
    Example:
      logstore cluster grow --log-dirs /disk1,/disk2 --zookeeper zk1:2181,zk2:2181,zk3:2181/logs
    """
    given = {
        "zookeeper.connect": zookeeper,
        "broker.id": None if broker_id is None else str(broker_id),
    }  # fmt: skip
    with own_login() as listener:
        options = listener | {key: text for key, text in given.items() if text}
        wish = read_wish(log_dirs, config_file, options)
        if not wish.found.config.zookeeper_connect:
            raise click.UsageError("name the ZooKeeper of the cluster: --zookeeper")
        if wish.found.problems:
            raise click.UsageError("; ".join(wish.found.problems))
        check_store(wish.log_dirs)
        grown = _grow(wish, records)
    partitions = format_count(grown.partition_count, "partition")
    topics = format_count(len(grown.new_topics), "topic")
    click.echo(f"broker {grown.broker} leads {partitions}; {topics} new in the cluster")
    if grown.document_count:
        note(f"users, quotas and resources with ACLs that were taken along: {grown.document_count}")
    note("now start the broker with this ZooKeeper, and then further brokers")


def _grow(wish: Wish, records: str) -> Grown:
    """Join the cluster, open the store, and write its topics into the cluster."""
    config = wish.found.config
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
                    return joined.grow(store)
        except CoordinationError as error:
            raise click.ClickException(f"{config.zookeeper_connect}: {error}") from error
