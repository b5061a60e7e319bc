"""Hold all replicas of a broker, and obey the controller's requests about them.

A request names many partitions, on several log dirs. Each log dir has its own thread, which gives
its replicas their roles. So if a log dir hangs, only the answers about its own replicas are late.
If a log dir needs longer than `OBEY_SECONDS`, the answer says that its replicas are offline. The
thread continues, and the next answer has the result.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from cluster.pure.attest import Host
from cluster.pure.replica import Role
from cluster.registration import NO_TOPIC, TopicIdentity
from cluster.requests import RoleAnswer, StopAnswer
from cluster.run.dir_choice import DirChoice, fewest_replicas
from cluster.run.dir_workers import DirWorkers, wait_for
from cluster.run.hosted_replica import HostedReplica
from cluster.wire.follower_fetches import PartitionId
from cluster.wire.roles import NamedRole
from cluster.wire.stops import NamedStop

LOG = logging.getLogger("cluster")
OBEY_SECONDS = 5.0

Place = tuple[str, int]  # topic name and partition


class HostedReplicas:
    """The replicas of a broker.

    Threads: any thread may call any method. Each log dir has a thread that passes events to the
    replicas in this log dir.
    """

    def __init__(
        self,
        host: Host,
        make: Callable[[str, int], HostedReplica],
        choose_dir: DirChoice | None = None,
    ) -> None:
        """Begin without replicas.

        Args:
            host: the broker's registration and log dirs. The id of a log dir is its path.
            make: makes a replica of a topic name and partition, without reading the disk.
            choose_dir: chooses the log dir of a new replica; by default, the log dir with the
                fewest replicas.
        """
        self._host = host
        self._make = make
        self._choose_dir = choose_dir or fewest_replicas(host)
        self._workers = DirWorkers()
        self._lock = threading.Lock()  # guards the next field
        self._replicas: dict[Place, HostedReplica] = {}
        self._by_topic = _ByTopic()

    def __iter__(self) -> Iterator[HostedReplica]:
        """Return the present replicas."""
        with self._lock:
            return iter(tuple(self._replicas.values()))

    def open(self, places: Iterable[Place]) -> None:
        """Read the replicas that the log dirs have, without roles."""
        for place in places:
            self._replica(place).open()

    def open_new(self, places: Iterable[Place]) -> None:
        """Read the replicas that have no log yet. The other replicas keep their roles."""
        for place in places:
            replica = self._replica(place)
            if replica.log is None:
                replica.open()

    def at(self, name: str, number: int) -> HostedReplica | None:
        """Find a replica by the name of its topic."""
        return self._replicas.get((name, number))

    def find(self, partition: PartitionId) -> HostedReplica | None:
        """Find a replica by its topic's id, equally fast for any number of replicas."""
        return self._by_topic.find(partition)

    def leading(self) -> list[HostedReplica]:
        """List the replicas that lead."""
        return [one for one in self if one.role is Role.LEADER]

    def obey(self, roles: Iterable[NamedRole], seconds: float = OBEY_SECONDS) -> list[RoleAnswer]:
        """Give replicas their roles, and return their answers.

        There is no answer to a request that names another broker epoch or an older topic.
        """
        groups: dict[str, list[_Told]] = defaultdict(list)
        for one in roles:
            replica = self._replica((one.name, one.role.partition), is_placed=True)
            groups[replica.dir_id].append(_Told(replica, one, self._offline(one)))
        wait_for(
            [
                self._workers.submit(log_dir, partial(self._obey_all, group))
                for log_dir, group in groups.items()
            ],
            seconds,
        )
        told = [one for group in groups.values() for one in group]
        return [one.answer for one in told if one.answer is not None]

    def stop(self, stops: Iterable[NamedStop], seconds: float = OBEY_SECONDS) -> list[StopAnswer]:
        """Delete replicas; return an answer for each replica that no longer exists."""
        answers: list[StopAnswer] = []

        def stop(replica: HostedReplica, one: NamedStop) -> None:
            if (answer := replica.stop(one.stop)) is not None:
                answers.append(answer)

        pieces = []
        for one in stops:
            replica = self._replica((one.name, one.stop.partition))
            pieces.append(self._workers.submit(replica.dir_id, partial(stop, replica, one)))
        wait_for(pieces, seconds)
        return list(answers)

    def tell_all(self, event: Any, of: Callable[[HostedReplica], bool] = lambda _: True) -> None:
        """Pass an event to replicas, in the threads of their log dirs."""
        for replica in self:
            if of(replica):
                self._workers.submit(replica.dir_id, partial(replica.tell, event))

    def reopen(self, dir_id: str) -> None:
        """Read the replicas of a log dir again, because it has changed. Their roles end."""
        for replica in self:
            if replica.dir_id == dir_id:
                self._workers.submit(dir_id, partial(self._read_again, replica))

    def _read_again(self, replica: HostedReplica) -> None:
        """Read a replica again. If the log dir of a replica was removed, choose another log dir."""
        replica.open()
        if replica.dir_id not in self._host.dirs:
            with self._lock:
                replica.place(self._dir_for((replica.name, replica.number)))

    def close(self) -> None:
        """Let the threads end after their queued work. Do not wait for threads that hang."""
        self._workers.close()

    def _replica(self, place: Place, *, is_placed: bool = False) -> HostedReplica:
        """Return the replica of a partition. If `is_placed`, choose a log dir for a new log."""
        with self._lock:
            replica = self._replicas.get(place)
            if replica is None:
                self._host.dir_for_new = self._dir_for(place)
                replica = self._replicas[place] = self._make(*place)
                replica.on_topic = self._by_topic.put
            elif is_placed and replica.log is None:
                replica.place(self._dir_for(place))
            return replica

    def _obey_all(self, group: list[_Told]) -> None:
        """Give roles. If a log dir does not answer in time, its replicas count as offline."""
        for told in group:
            try:
                answer = self._obey(told.replica, told.one)
                if not told.replica.is_unread:
                    told.answer = answer
            except Exception:
                LOG.exception("%r could not take its role", told.replica)

    def _obey(self, replica: HostedReplica, one: NamedRole) -> RoleAnswer | None:
        """Give a role. If a log dir fails when a replica is created there, try another log dir."""
        for _ in self._host.dirs:
            answer = replica.obey(one.role)
            is_offline = answer is None or answer.is_offline
            if not (is_offline and one.role.is_new and replica.log is None):
                break
            self._replica((one.name, one.role.partition), is_placed=True)
        return answer

    def _dir_for(self, place: Place) -> str:
        counts = Counter(one.dir_id for key, one in self._replicas.items() if key != place)
        return self._choose_dir(*place, counts)

    def _offline(self, one: NamedRole) -> RoleAnswer:
        role, epoch = one.role, self._host.registration_epoch
        return RoleAnswer(role.topic, role.partition, self._host.broker_id, epoch, is_offline=True)


class _ByTopic:
    """The replicas by topic id and partition.

    Threads: any thread may call any method. A replica calls `put` under its own lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards changes of the next two fields; a look-up is atomic
        self._replicas: dict[PartitionId, HostedReplica] = {}
        self._keys: dict[HostedReplica, PartitionId] = {}

    def find(self, partition: PartitionId) -> HostedReplica | None:
        return self._replicas.get(partition)

    def put(self, replica: HostedReplica, topic: TopicIdentity) -> None:
        """Remember the new topic of a replica. The replica is no longer found by its old topic."""
        with self._lock:
            before = self._keys.pop(replica, None)
            if before is not None and self._replicas.get(before) is replica:
                del self._replicas[before]
            if topic.topic_id != NO_TOPIC.topic_id:
                key = topic.topic_id, replica.number
                self._keys[replica], self._replicas[key] = key, replica


class _Told:
    """A replica and its new role. Until the replica answers, the answer is "offline"."""

    __slots__ = ("answer", "one", "replica")

    def __init__(self, replica: HostedReplica, one: NamedRole, offline: RoleAnswer) -> None:
        self.replica, self.one = replica, one
        self.answer: RoleAnswer | None = offline
