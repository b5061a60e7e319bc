"""Hold all replicas of a broker, and obey the controller's requests about them.

A request names many partitions, on several log dirs. Each log dir has its own thread, which gives
its replicas their roles. So if a log dir hangs, only the answers about its own replicas are late.
If a log dir is suspect, or needs longer than `OBEY_SECONDS`, the answer says that its replicas are
offline. After such an answer, another replica may lead. So the replicas take none of these roles
any more, and the roles that they have end before their next event (P16).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from cluster.disks.dir_workers import DirWorkers, Piece, Work, wait_for
from cluster.pure.attest import Host
from cluster.pure.replica import Role
from cluster.registration import NO_TOPIC, TopicIdentity
from cluster.requests import AlterRefused, RoleAnswer, StopAnswer
from cluster.run.dir_choice import DirChoice, fewest_replicas
from cluster.run.hosted_replica import HostedReplica
from cluster.wire.follower_fetches import PartitionId
from cluster.wire.roles import NamedRole
from cluster.wire.stops import NamedStop
from logstore import LogDirSuspectError, LogStoreError

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
        self._lock = threading.Lock()  # guards the next two fields
        self._replicas: dict[Place, HostedReplica] = {}
        self._running: dict[tuple[str, str], Piece] = {}  # see `_submit_one`
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
        told = []
        for one in roles:
            replica = self._replica((one.name, one.role.partition), is_placed=True)
            told.append(_Told(replica, one))
            if not _is_suspect(replica):
                groups[replica.dir_id].append(told[-1])
        works = {log_dir: partial(self._obey_all, group) for log_dir, group in groups.items()}
        self._do("obey", works, seconds)
        answers = [one.take(partial(self._offline, one.one)) for one in told]
        return [answer for answer in answers if answer is not None]

    def stop(self, stops: Iterable[NamedStop], seconds: float = OBEY_SECONDS) -> list[StopAnswer]:
        """Delete replicas; return an answer for each replica that no longer exists."""
        answers: list[StopAnswer] = []
        groups: dict[str, list[tuple[HostedReplica, NamedStop]]] = defaultdict(list)
        for one in stops:
            replica = self._replica((one.name, one.stop.partition))
            groups[replica.dir_id].append((replica, one))

        def stop(group: list[tuple[HostedReplica, NamedStop]]) -> None:
            for replica, one in group:
                try:
                    if (answer := replica.stop(one.stop)) is not None:
                        answers.append(answer)
                except Exception:  # the controller asks again
                    LOG.exception("%r could not be deleted", replica)

        works = {log_dir: partial(stop, group) for log_dir, group in groups.items()}
        self._do("stop", works, seconds)
        return list(answers)

    def refused(self, refused: AlterRefused) -> None:
        """Tell a leader that the controller has refused its proposal."""
        replica = self.find((refused.topic.topic_id, refused.partition))
        if replica is not None:
            with suppress(LogStoreError):  # another thread hangs with the replica
                replica.tell(refused)

    def tell_all(self, event: Any, of: Callable[[HostedReplica], bool] = lambda _: True) -> None:
        """Pass an event to replicas, in the threads of their log dirs.

        If a log dir has not handled an earlier event of this kind yet, its replicas do not get this
        event. So the work for a log dir that hangs does not grow.
        """

        def tell(group: list[HostedReplica]) -> None:
            for replica in group:
                with suppress(LogStoreError):  # another thread hangs with the replica
                    replica.tell(event)

        for log_dir, group in self._by_dir(of).items():
            self._submit_one(type(event).__name__, log_dir, partial(tell, group))

    def end_roles(self) -> None:
        """End the roles of all replicas, in the threads of their log dirs."""
        for log_dir, group in self._by_dir(lambda _: True).items():
            for replica in group:
                self._workers.submit(log_dir, replica.end_role)

    def look_at_dir(self, name: str, number: int) -> None:
        """Tell a replica that the mover may have moved it, in the thread of its log dir."""
        replica = self.at(name, number)
        log = None if replica is None else replica.log
        if replica is not None and log is not None:
            self._workers.submit(log.log_dir, replica.look_at_dir)

    def look_at_dirs(self) -> None:
        """Find the replicas that were moved, but whose moves were not reported."""
        for replica in self:
            log = replica.log
            if log is not None and log.log_dir != replica.dir_id:
                self._workers.submit(log.log_dir, replica.look_at_dir)

    def _by_dir(self, of: Callable[[HostedReplica], bool]) -> dict[str, list[HostedReplica]]:
        groups: dict[str, list[HostedReplica]] = defaultdict(list)
        for replica in self:
            if of(replica):
                groups[replica.dir_id].append(replica)
        return groups

    def _submit_one(self, kind: str, log_dir: str, work: Work) -> Piece | None:
        """Let a log dir do a piece of work, unless its last piece of this kind has not ended."""
        with self._lock:
            before = self._running.get((kind, log_dir))
            if before is not None and not before.is_over.is_set():
                return None
            piece = self._running[kind, log_dir] = self._workers.submit(log_dir, work)
            return piece

    def _do(self, kind: str, works: Mapping[str, Work], seconds: float) -> None:
        """Let log dirs work, and wait for them for some seconds.

        If a log dir still does earlier work of this kind after this time, the new work is dropped.
        """
        deadline = time.monotonic() + seconds
        pieces = []
        for log_dir, work in works.items():
            piece = self._submit_one(kind, log_dir, work)
            if piece is None:
                wait_for([self._running[kind, log_dir]], deadline - time.monotonic())
                piece = self._submit_one(kind, log_dir, work)
            if piece is not None:
                pieces.append(piece)
        wait_for(pieces, deadline - time.monotonic())

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
        """Give roles.

        If the controller got the answer "offline" meanwhile, because the log dir was too slow, the
        replicas of a new topic are still created, but they take no role.
        """
        for told in group:
            if told.is_answered and not told.one.role.is_new:
                continue
            try:
                with told.replica.lock:
                    answer = self._obey(told.replica, told.one)
                    if not told.replica.is_unread:
                        told.put(answer)
            except LogStoreError as error:  # another thread hangs with the replica
                LOG.info("%r cannot take its role now: %s", told.replica, error)
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


def _is_suspect(replica: HostedReplica) -> bool:
    """Report whether a log exists, and its log dir does not answer."""
    try:
        if replica.log is not None:
            replica.check_dir()
    except LogDirSuspectError:
        return True
    except LogStoreError:  # the log dir is offline, or was removed; the rules answer
        return False
    return False


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
    """A replica and its new role.

    Threads: the thread of the log dir calls `put`, and the thread that answers the controller calls
    `take`.
    """

    __slots__ = ("_answer", "_has_answer", "_lock", "is_answered", "one", "replica")

    def __init__(self, replica: HostedReplica, one: NamedRole) -> None:
        self.replica, self.one = replica, one
        self._lock = threading.Lock()  # guards the next three fields
        self._answer: RoleAnswer | None = None
        self._has_answer = self.is_answered = False

    def put(self, answer: RoleAnswer | None) -> None:
        """Keep the answer of the replica; None if it does not answer.

        If the controller got the answer "offline" meanwhile, the new role ends. The caller must
        still have the lock of the replica, so that nothing was acknowledged in this role.
        """
        with self._lock:
            if self.is_answered:
                self.replica.revoke()
            self._answer, self._has_answer = answer, True

    def take(self, offline: Callable[[], RoleAnswer]) -> RoleAnswer | None:
        """Return the answer for the controller. If there is none yet, the role ends."""
        with self._lock:
            self.is_answered = True
            if self._has_answer:
                return self._answer
            if self.replica.role is not Role.NONE:
                self.replica.revoke()
            return offline()
