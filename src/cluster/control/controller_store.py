"""Read and write the facts of a controller in the coordination store.

Each write of a state also checks the controller epoch, in the same transaction (P2). So if a
controller was replaced, its writes change nothing, even if the versions match by chance.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.coordination.errors import (
    BadVersionError,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    OutcomeUnknownError,
    ZnodeError,
)
from broker.coordination.verbs import Check, Create, Delete, Operation, Session, Set, Znode
from cluster import znodes
from cluster.errors import BadZnodeError
from cluster.pure.control_exchange import Deposed, PartitionKey, WriteFailed, WriteState, Written
from cluster.registration import NO_VERSION, TopicIdentity
from cluster.state import State, encode_state, parse_state
from cluster.znode_document import ID_MAX
from cluster.znodes import BrokerNode, NamedDeletion, TopicNode

LOG = logging.getLogger("cluster")
FIRST_TRIES = 20  # how often a first state is tried again if topics are deleted at the same time


class Reign(NamedTuple):
    """The controller epoch of an elected controller, and the version of its znode."""

    epoch: int
    version: int


class Elected(NamedTuple):
    """The broker that is the controller, and the version of `/controller_epoch`.

    The version rises at each election. If the version is from an earlier election, `depose` does
    nothing.
    """

    broker: int
    version: int


class StateNode(NamedTuple):
    """A partition's state, and its version."""

    state: State
    version: int


class ControllerStore:
    """Read and write for a controller, in a session of its broker."""

    def __init__(self, session: Session, broker: int) -> None:
        self.session = session
        self._broker = broker
        # the last topic that was found for a first state, and the version of the parent before that
        self._found: tuple[TopicIdentity, int] | None = None

    def prepare(self) -> None:
        """Create the znodes that a cluster needs, if they are missing."""
        for path in znodes.PARENTS:
            self._create(path)
        self._create(znodes.CONTROLLER_EPOCH, b"0")

    def _create(self, path: str, data: bytes = b"") -> None:
        with suppress(NodeExistsError):
            self.session.create(path, data)

    def stand(self, now_ms: int) -> Reign | None:
        """Become the controller; None if there already is a controller.

        This session may already own the controller's znode, because the answer to an earlier
        election was lost, or because the deletion at the end of a reign failed. If the znode
        stayed, no broker could become the controller while this session lives. So this method first
        deletes a znode that this session already owns.

        Raises:
            BadZnodeError: the controller epoch is not a number, or no larger number is left.
        """
        known = self.session.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.parse_controller_epoch(known.data) + 1
        if epoch > ID_MAX:  # a larger epoch could not be read
            reason = f"no epoch is left after {epoch - 1}; write the epoch of the last controller"
            raise BadZnodeError(path=znodes.CONTROLLER_EPOCH, reason=reason)
        mine = {"version": 1, "brokerid": self._broker, "timestamp": str(now_ms)}
        try:
            made = self.session.multi(
                [
                    Create(znodes.CONTROLLER, json.dumps(mine).encode(), ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, b"%d" % epoch, known.version),
                ]
            )
        except NodeExistsError:
            return self.stand(now_ms) if self._delete_mine(known.version) else None
        except BadVersionError:
            return None
        except OutcomeUnknownError:
            return self._reign_if_mine()
        assert made[1] is not None
        return Reign(epoch, made[1].version)

    def resign(self) -> None:
        """Delete the controller's znode, if this session made it, so that any broker can stand."""
        try:
            self._delete_mine(self.session.get(znodes.CONTROLLER_EPOCH).version)
        except CoordinationError as error:
            LOG.info("the end of a reign: %s", error)

    def _delete_mine(self, epoch_version: int) -> bool:
        """Delete the controller's znode, if this session made it; return whether it did so.

        Args:
            epoch_version: the version of `/controller_epoch` that the caller has read. If an
                election has changed the version after this read, nothing is deleted, because the
                read of the znode may be out of date.
        """
        try:
            if self.session.get(znodes.CONTROLLER).ephemeral_owner != self.session.key.session_id:
                return False
            self.session.multi(
                [Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER, None)]
            )
        except ZnodeError:
            return False
        return True

    def elected(self) -> Elected | None:
        """Read which broker is the controller; None if there is none.

        The version is read first. If an election comes between the two reads, the version is too
        old, and `depose` does nothing.
        """
        version = self.session.get(znodes.CONTROLLER_EPOCH).version
        try:
            broker = znodes.parse_controller(self.session.get(znodes.CONTROLLER).data)
        except NoNodeError:
            return None
        return None if broker is None else Elected(broker, version)

    def depose(self, elected: Elected) -> None:
        """Delete the znode of a controller that is gone, unless there was a later election."""
        with suppress(ZnodeError, OutcomeUnknownError):
            self.session.multi(
                [Check(znodes.CONTROLLER_EPOCH, elected.version), Delete(znodes.CONTROLLER, None)]
            )

    def _reign_if_mine(self) -> Reign | None:
        """Check whether an election whose answer was lost has succeeded."""
        try:
            controller = self.session.get(znodes.CONTROLLER)
        except NoNodeError:
            return None
        if controller.ephemeral_owner != self.session.key.session_id:
            return None
        known = self.session.get(znodes.CONTROLLER_EPOCH)
        return Reign(znodes.parse_controller_epoch(known.data), known.version)

    def brokers(self) -> dict[int, BrokerNode]:
        """Read all registrations; log and leave out an unreadable registration."""
        found = {}
        for name in self.session.children(znodes.BROKERS):
            path = f"{znodes.BROKERS}/{name}"
            try:
                znode = self.session.get(path)
                node = znodes.parse_registration(znode.data, path, znode.czxid, znode.mzxid)
                found[int(name)] = node
            except NoNodeError:  # the session of this broker ended just now
                continue
            except (BadZnodeError, ValueError) as error:
                LOG.error("a broker cannot be used: %s", error)
        return found

    def take_log_dir_events(self) -> set[int]:
        """Read and delete the events of log dirs; return the brokers that announced them."""
        brokers = set()
        for name in self.session.children(znodes.LOG_DIR_EVENTS):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            with suppress(NoNodeError):
                broker = znodes.parse_log_dir_event(self.session.get(path).data)
                brokers |= set() if broker is None else {broker}
                self.session.delete(path)
        return brokers

    def topic_names(self) -> set[str]:
        """List the topics that exist, including topics that cannot be read."""
        return set(self.session.children(znodes.TOPICS))

    def has_topic(self, name: str) -> bool:
        """Report whether a topic exists, even if it cannot be read."""
        try:
            self.session.get(znodes.topic_path(name))
        except NoNodeError:
            return False
        return True

    def topic(self, name: str) -> TopicNode | None:
        """Read a topic; None if it does not exist.

        Raises:
            BadZnodeError: the topic exists, but cannot be read.
        """
        path = znodes.topic_path(name)
        try:
            znode = self.session.get(path)
        except NoNodeError:
            return None
        return znodes.parse_topic(znode.data, path, znode.czxid)

    def settings(self, name: str) -> tuple[dict[str, str], int]:
        """Read a topic's settings, and the zxid of their last write; {} and 0 if there are none."""
        path = znodes.config_path(name)
        try:
            znode = self.session.get(path)
        except NoNodeError:
            return {}, 0
        return znodes.parse_config(znode.data, path), znode.mzxid

    def deletions(self) -> list[NamedDeletion]:
        """Read the deletions that are not complete."""
        found = []
        for name in self.session.children(znodes.DELETIONS):
            path = f"{znodes.DELETIONS}/{name}"
            try:
                found.append(znodes.parse_deletion(self.session.get(path).data, path))
            except NoNodeError:
                continue
            except BadZnodeError as error:
                LOG.error("a deletion cannot be read: %s", error)
        return found

    def keep(self, named: NamedDeletion) -> None:
        """Write a deletion. This write must happen before a replica of the partition is deleted."""
        deletion = named.deletion
        path = znodes.deletion_path(deletion.topic, deletion.partition)
        self._create(path, znodes.encode_deletion(named))

    def forget(self, topic: TopicIdentity, partition: int) -> None:
        """Remove the record of a complete deletion."""
        with suppress(NoNodeError):
            self.session.delete(znodes.deletion_path(topic, partition))

    def state(self, key: PartitionKey) -> StateNode | None:
        """Read the state of a partition; None if it has none yet.

        Raises:
            BadZnodeError: the state cannot be read, so the controller must not decide about the
                partition.
        """
        path = znodes.state_path(*key)
        try:
            znode = self.session.get(path)
        except NoNodeError:
            return None
        return StateNode(parse_state(znode.data, path), znode.version)

    def write(self, asked: WriteState, reign: Reign) -> Written | WriteFailed | Deposed:
        """Write a state, if the znode has the expected version, and the reign has not ended.

        If the answer is lost, the write counts as failed, and the controller reads the state again.
        """
        path, data = znodes.state_path(*asked.key), encode_state(asked.state)
        check = Check(znodes.CONTROLLER_EPOCH, reign.version)
        try:
            if asked.version == NO_VERSION:
                answers = self._write_first(asked, check, Create(path, data))
            else:
                changes = [*self._topic_with(asked), Set(path, data, asked.version)]
                answers = self.session.multi([check, *changes])
        except BadZnodeError as error:
            LOG.error(
                "the state of %s-%d is not written, so its replicas stay: %s", *asked.key, error
            )
            return WriteFailed(asked.key, asked.number)
        except OutcomeUnknownError:
            return WriteFailed(asked.key, asked.number)
        except ZnodeError as error:
            if error.operation == 0:
                return Deposed()
            return WriteFailed(asked.key, asked.number)
        assert answers[-1] is not None
        return Written(asked.key, asked.number, answers[-1].version)

    def _write_first(
        self, asked: WriteState, check: Check, create: Create
    ) -> Sequence[Znode | None]:
        """Create the first state of a partition, but only below the topic that was asked for.

        The topic may be deleted and created again at any time. The first state of the old topic
        must not become the state of the new topic, which may have other replicas.

        Raises:
            ZnodeError, BadZnodeError: the topic does not exist any more, or there is a state.
        """
        for _ in range(FIRST_TRIES):
            is_fresh = self._found is None or not self._found[0].is_same(asked.topic)
            if is_fresh:
                self._found = asked.topic, self._find(asked)
            assert self._found is not None
            checks = [check, Check(znodes.TOPICS, self._found[1])]
            try:
                return self._create_with_parents(asked.key, checks, create)
            except BadVersionError as error:
                if error.operation != 1:
                    raise
                self._found = None  # find out whether the deleted topic is this topic
        raise BadVersionError(znodes.TOPICS)

    def _find(self, asked: WriteState) -> int:
        """Check that a topic exists; return the version of the parent of all topics before that.

        Each deletion of a topic changes this version. So if the version is still the same, the
        topic still exists.
        """
        version, path = self.session.get(znodes.TOPICS).version, znodes.topic_path(asked.key[0])
        znode = self.session.get(path)
        if not znodes.parse_topic(znode.data, path, znode.czxid).identity.is_same(asked.topic):
            raise BadZnodeError(path=path, reason="the topic was created again")
        return version

    def _topic_with(self, asked: WriteState) -> Iterator[Set]:
        """If the replicas change, also write the topic, for programs that read Kafka's znodes."""
        if not asked.is_assignment:
            return
        name, partition = asked.key
        path = znodes.topic_path(name)
        znode = self.session.get(path)
        known = znodes.parse_topic(znode.data, path, znode.czxid).identity
        if not known.is_same(asked.topic):
            raise BadZnodeError(path=path, reason="the topic was created again")
        data = znodes.with_assignment(znode.data, path, partition, asked.state)
        yield Set(path, data, znode.version)

    def _create_with_parents(
        self, key: PartitionKey, checks: Sequence[Operation], create: Create
    ) -> Sequence[Znode | None]:
        """Create a state, and the znode of its partition if it is missing.

        The method does not first read which parents are missing. For a large topic, a search for
        missing parents would take most of the time.
        """
        try:
            return self.session.multi([*checks, Create(_partition_path(key)), create])
        except ZnodeError as error:
            if error.operation != len(checks):
                raise
        return self.session.multi([*checks, *self._missing_parents(key), create])

    def _missing_parents(self, key: PartitionKey) -> Iterator[Create]:
        path = _partition_path(key)
        for one in (path.rpartition("/")[0], path):
            try:
                self.session.get(one)
            except NoNodeError:
                yield Create(one)


def _partition_path(key: PartitionKey) -> str:
    name, partition = key
    return f"{znodes.topic_path(name)}/partitions/{partition}"
