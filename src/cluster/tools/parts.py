"""Provide what the commands `logstore cluster` share: options, connections, words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cluster.tools.asking import Asked, Place, parse_servers
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
    """Add the option `--bootstrap-servers`."""
    return click.option(
        "--bootstrap-servers",
        required=True,
        metavar="HOST:PORT[,...]",
        help="Brokers of the cluster; one that answers is enough.",
    )(function)


def connected(bootstrap_servers: str) -> Asked:
    """Read the addresses; connect when something is asked."""
    with wrong_usage():
        return Asked(parse_servers(bootstrap_servers))
