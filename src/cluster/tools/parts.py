"""Define the common parts of the commands `logstore cluster`: options, connections, words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cluster.peers.peer_security import OPEN
from cluster.tools.asking import Asked, Place, parse_servers
from cluster.tools.client_properties import client_security
from logstore.cli.options import wrong_usage
from logstore.cli.output import optional_text

EXIT_PROBLEM = 1


def ids_text(value: object) -> str:
    """Format a list of broker ids."""
    return ",".join(map(str, value)) if isinstance(value, list) else optional_text(value)


def place_text(place: Place) -> str:
    """Format a topic and a partition."""
    return f"{place[0]}-{place[1]}"


def servers_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `connected` needs: `--bootstrap-servers` and `--command-config`."""
    config = click.option(
        "--command-config",
        metavar="FILE",
        help="The properties of a client: TLS, and a login. By default, there is neither.",
    )(function)
    return click.option(
        "--bootstrap-servers",
        required=True,
        metavar="HOST:PORT[,...]",
        help="Brokers of the cluster; one that answers is enough.",
    )(config)


def connected(bootstrap_servers: str, command_config: str | None) -> Asked:
    """Read the addresses and the properties. The first request makes the connection."""
    with wrong_usage():
        servers = parse_servers(bootstrap_servers)
        security = OPEN if command_config is None else client_security(command_config)
        return Asked(servers, security=security)
