"""Open the coordination store of the cluster that a broker's settings name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker.config import BrokerConfig
from broker.coordination.errors import NotConnectedError
from cluster.admin.cluster_users import ClusterUsers
from cluster.errors import ClusterStartError

if TYPE_CHECKING:
    from cluster.zookeeper import ZooKeeperStore

ANSWER_MS = 15_000


def zookeeper_of(config: BrokerConfig) -> ZooKeeperStore:
    """Make the store that the settings name.

    Raises:
        ImportError: the extra `cluster` is not installed.
        ClusterStartError: the credentials cannot be used.
    """
    try:
        importlib.import_module("kazoo")
    except ImportError as error:
        raise ImportError(
            "a broker of a cluster needs kazoo: pip install 'logstore[cluster]'", name="kazoo"
        ) from error
    from cluster.process.credentials import read_credentials
    from cluster.zookeeper import ZooKeeperStore

    wished_ms, file = config.zookeeper_session_timeout_ms, config.zookeeper_credentials_file
    if config.zookeeper_set_acl and not file:
        raise ClusterStartError(reason="zookeeper.set.acl needs zookeeper.credentials.file")
    return ZooKeeperStore(
        config.zookeeper_connect,
        session_timeout_ms=wished_ms,
        # a longer wait is useless, because the session ends after `wished_ms` without an answer
        request_timeout_ms=min(ANSWER_MS, wished_ms),
        credentials=read_credentials(file) if file else None,
        is_private=config.zookeeper_set_acl,
    )


@contextmanager
def opened_users(config: BrokerConfig) -> Iterator[ClusterUsers]:
    """Return the users of a cluster, even before its first broker has started."""
    where = config.zookeeper_connect
    try:
        session = zookeeper_of(config).connect()
    except (OSError, NotConnectedError) as error:
        raise ClusterStartError(reason=f"ZooKeeper at {where} does not answer: {error}") from error
    with session:
        yield ClusterUsers(session)
