"""Implement the command `logstore broker-user`, for the SCRAM users of a stopped broker.

If all listeners of a broker demand a login, no client can create the first user. So this command
changes the coordination store directly: in the log dirs of a stopped broker, or in ZooKeeper.
"""

from __future__ import annotations

import importlib
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

import click

from broker.catalog.admin.sole_users import SoleUsers
from broker.cli import read_wish
from broker.config import BrokerConfig
from broker.coordination.errors import CoordinationError
from broker.secret_files import read_key_password
from broker.security.decoys import SALT_BYTES
from broker.security.scram_credential import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of_password,
)
from broker.security.user_settings import NAME_BYTES_MAX, UserCredentials
from logstore import LogStore
from logstore.cli.options import format_option, log_dirs_option, note, wrong_usage
from logstore.cli.output import Column, print_rows
from logstore.store.admin.client import find_owner

# this module is imported only if it is needed, as in `broker.cli`
CLUSTER = "cluster.process.cluster_store"
COLUMNS = [Column("user", "user"), Column("mechanism", "mechanism"), Column("iterations", "rounds")]


Function = TypeVar("Function", bound=Callable[..., Any])


def _where_options(function: Function) -> Function:
    """Add the options that name the coordination store of the users."""
    for add in (
        click.option(
            "--zookeeper",
            metavar="HOST:PORT[,...][/PATH]",
            help="The ZooKeeper of the broker's cluster. With this option, no log dirs are needed.",
        ),
        click.option(
            "--config",
            "config_file",
            type=click.File("rb"),
            metavar="FILE",
            help="The broker's server.properties; other options override it.",
        ),
        log_dirs_option,
    ):
        function = add(function)
    return function


@click.group("broker-user", short_help="Create the first SCRAM users of a broker.")
def broker_user() -> None:
    """Create, list and remove the SCRAM users of a stopped broker, or of a cluster.

    If the broker of the log dirs runs, use a tool of Kafka instead, such as kafka-configs.sh. The
    users of a cluster are in ZooKeeper, so this command also works while the brokers run.

    \b
    Examples:
      logstore broker-user add admin --config server.properties
      logstore broker-user add broker --zookeeper zk1:2181/cluster --password-file secret
      logstore broker-user list --config server.properties
    """


@broker_user.command(short_help="Create a user, or change its password.")
@click.argument("name")
@_where_options
@click.option(
    "--password-file",
    metavar="FILE",
    help="A file whose first line is the password; only its owner may read it. Without this "
    "option, the password is asked for, or read from the standard input.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice([*HASHES]),
    multiple=True,
    help="A mechanism that the user may use; repeatable. By default, all.",
)
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    help="The number of hash rounds (iterations); more rounds make guesses slower.",
)
def add(
    name: str,
    log_dirs: tuple[str, ...],
    config_file: BinaryIO | None,
    zookeeper: str | None,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
) -> None:
    """Create the user NAME, or change its password; only keys are stored, never the password."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise click.UsageError(f"a name has 1 to {NAME_BYTES_MAX} bytes")
    password = _password(password_file)
    with _opened(log_dirs, config_file, zookeeper) as users:
        users.change(
            {
                name: {
                    one: credential_of_password(
                        one, password, secrets.token_bytes(SALT_BYTES), iterations
                    )
                    for one in mechanisms or HASHES
                }
            }
        )
    note(f"user {name} can log in with {', '.join(mechanisms or HASHES)}")


@broker_user.command("list", short_help="List the users.")
@_where_options
@format_option()
def list_users(
    log_dirs: tuple[str, ...],
    config_file: BinaryIO | None,
    zookeeper: str | None,
    output_format: str,
) -> None:
    """List the users and their mechanisms, but never a key."""
    with _opened(log_dirs, config_file, zookeeper) as users:
        known = users.listed()
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": one.iterations}
        for user, keys in sorted(known.items())
        for mechanism, one in keys.items()
    ]
    print_rows(rows, COLUMNS, output_format)


@broker_user.command(short_help="Remove a user.")
@click.argument("name")
@_where_options
def remove(
    name: str, log_dirs: tuple[str, ...], config_file: BinaryIO | None, zookeeper: str | None
) -> None:
    """Remove all credentials of the user NAME."""
    with _opened(log_dirs, config_file, zookeeper) as users:
        if name not in users.listed():
            raise click.ClickException(f"there is no user {name}")
        users.change({name: dict.fromkeys(HASHES)})
    note(f"user {name} is removed")


def _password(file: str | None) -> str:
    """Read the password from a file, the terminal, or the standard input."""
    if file is not None:
        with wrong_usage():
            found = read_key_password(file, "--password-file")
    elif sys.stdin.isatty():
        found = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise click.UsageError("the password is empty")
    return str(found)


@contextmanager
def _opened(
    log_dirs: tuple[str, ...], config_file: BinaryIO | None, zookeeper: str | None
) -> Iterator[UserCredentials]:
    """Open the coordination store that has the users."""
    options = {"zookeeper.connect": zookeeper} if zookeeper else {}
    wish = read_wish(log_dirs, config_file, options, needs_log_dirs=False)
    if wish.found.problems:
        raise click.UsageError("; ".join(wish.found.problems))
    config = wish.found.config
    if config.zookeeper_connect:
        try:
            with importlib.import_module(CLUSTER).opened_users(config) as users:
                yield users
        except CoordinationError as error:
            raise click.ClickException(f"{config.zookeeper_connect}: {error}") from error
        return
    with _sole_users(wish.log_dirs, config) as users:
        yield users


@contextmanager
def _sole_users(paths: list[str], config: BrokerConfig) -> Iterator[UserCredentials]:
    if not paths:
        raise click.UsageError("name the log dirs with --log-dirs, or a --config that has them")
    owner = find_owner(paths)
    if owner is not None:
        raise click.ClickException(
            f"process {owner.pid} has the store open: stop it, or ask the broker with "
            "kafka-configs.sh --alter --entity-type users"
        )
    settings = config.store_config.replace(log_config=config.log_config)
    with LogStore.open(paths, config=settings) as store:
        users = SoleUsers(store)
        try:
            yield users
        finally:
            users.close()
