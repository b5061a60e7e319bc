"""Choose the log dir of a new replica, as Kafka does.

1. The log dir that a request named before the replica existed (AlterReplicaLogDirs, KIP-113).
2. If no request named a log dir, the log dir with the fewest replicas.

A log dir that is OFFLINE, full or cordoned takes no new replica, so it is not chosen. If no log dir
takes new replicas, a working log dir is chosen. Then the creation fails, and its error gives the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cluster.pure.attest import Host
from logstore import LogStore
from logstore.names import TopicPartition
from logstore.store.creation import candidates, wished_dir

DirChoice = Callable[[str, int, Mapping[str, int]], str]


def fewest_replicas(host: Host) -> DirChoice:
    """Choose the working log dir that has the fewest replicas."""

    def choose(name: str, number: int, counts: Mapping[str, int]) -> str:
        return min(host.dirs, key=lambda one: (not host.dirs[one].is_good, counts.get(one, 0)))

    return choose


def dir_choice(host: Host, store: LogStore) -> DirChoice:
    """Choose the requested log dir; without a request, the log dir with the fewest replicas."""
    by_number = fewest_replicas(host)

    def choose(name: str, number: int, counts: Mapping[str, int]) -> str:
        good = [one.log_dir for one in candidates(store.host.replicas)[0]]
        good = [one for one in good if one.path in host.dirs and host.dirs[one.path].is_good]
        wished = wished_dir(good, TopicPartition(name, number))
        if wished is not None:
            return wished.path
        if good:
            return min((one.path for one in good), key=lambda one: counts.get(one, 0))
        return by_number(name, number, counts)

    return choose
