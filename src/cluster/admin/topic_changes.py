"""Change the topics of a cluster: each change is one transaction of the coordination store.

Any broker can make a change. The controller watches the store. The controller chooses the leaders
of new partitions, and asks brokers to delete the replicas of deleted partitions. Each write names
the version of the znode from which the broker decided. If another broker has changed the znode
first, the write is refused, and the refused broker reads and decides again.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.catalog.admin.topic_admin import (
    DEFAULT,
    CreatedTopic,
    NewTopic,
    SettingRow,
    TopicRefusedError,
    check_growth,
    check_name,
    check_numbers,
    collides,
    collision,
    exists,
    partition_count,
    unknown,
)
from broker.catalog.setting_changes import Change
from broker.catalog.settings import InvalidSettingError
from broker.catalog.topics import NO_ID, Topic
from broker.config import BrokerConfig
from broker.coordination.errors import (
    CoordinationError,
    LimitError,
    NoNodeError,
    OutcomeUnknownError,
    ZnodeError,
)
from broker.coordination.verbs import Check, Create, Operation, Session, Set, Znode
from broker.wire.error_codes import ErrorCode
from cluster import znodes
from cluster.admin import placement, setting_texts, topic_deletion
from cluster.admin.settings_sync import drop_old_notices
from cluster.control.controller_store import ControllerStore
from cluster.control.topic_rules import MIN_ISR, UNCLEAN
from cluster.registration import NO_BROKER
from cluster.run.metadata_cache import MetadataCache
from cluster.wire.topic_ids import bytes_of, text_of
from cluster.znodes import TopicNode

TRIES = 100  # how often a change is tried if other brokers change the same znodes first

Result = TypeVar("Result")
Assignment = Mapping[int, tuple[int, ...]]


class _Found(NamedTuple):
    """A topic in the store."""

    node: TopicNode
    znode: Znode

    def topic(self, name: str) -> Topic:
        return Topic(name, bytes_of(self.node.identity.topic_id), tuple(self.node.partitions))

    @property
    def factor(self) -> int:
        """The replication factor: the number of replicas of the first partition."""
        return len(next(iter(self.node.partitions.values()), ()))


class TopicChanges:
    """Implement `broker.catalog.admin.topic_admin.TopicAdmin` for a broker of a cluster.

    Threads: any thread may call any method. `_changing` is held during a change.
    """

    def __init__(
        self,
        session: Session,
        cache: MetadataCache,
        config: BrokerConfig,
        draw: random.Random | None = None,
    ) -> None:
        """Keep the arguments; change nothing yet.

        Args:
            cache: the metadata that this broker knows.
            draw: draws two random numbers for a new topic: its first broker, and its shift (see
                `placement`).
        """
        self._session, self._cache, self._config = session, cache, config
        self._draw = draw or random.SystemRandom()
        self._registered = ControllerStore(session, NO_BROKER)
        # this broker makes one change at a time, so only other brokers can change a znode first
        self._changing = threading.Lock()

    @property
    def setting_keys(self) -> Collection[str]:
        """The keys of all settings that a topic can have."""
        return setting_texts.ALL_KEYS

    # --- changes ----------------------------------------------------------------------------------

    def create(self, wanted: NewTopic, *, is_dry: bool = False) -> CreatedTopic:
        """Create a topic and its settings."""
        return self._change(lambda: self._create(wanted, is_dry))

    def _create(self, wanted: NewTopic, is_dry: bool) -> CreatedTopic:
        name, defaults = wanted.name, self._config.log_config
        check_name(name)
        if self._read(znodes.topic_path(name)) is not None:
            raise exists(name)
        operations = self._reserve(name)
        assignment = self._assignment_of(wanted)
        factor = len(assignment[0])
        try:
            texts = setting_texts.accepted(wanted.settings, defaults)
        except InvalidSettingError as error:
            raise TopicRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error
        texts.setdefault(MIN_ISR, setting_texts.min_isr_of(self._config, factor))
        if self._config.unclean_leader_election_enable:
            texts.setdefault(UNCLEAN, "true")
        topic_id = NO_ID
        if not is_dry:
            topic_id = _new_id()
            data = znodes.encode_topic(text_of(topic_id), assignment)
            operations.append(Create(znodes.topic_path(name), data))
            operations.append(self._write_settings(name, texts))
            self._session.multi(operations)
        rows = setting_texts.rows_of(texts, self._config, factor)
        return CreatedTopic(Topic(name, topic_id, tuple(assignment)), factor, rows)

    def _reserve(self, name: str) -> list[Operation]:
        """Refuse a name that collides with the name of another topic, even of a new topic.

        Two names with "." or "_" can collide. So the creation of a topic whose name has "." or "_"
        also writes the parent of all topics. If two brokers write the parent at the same time, the
        store refuses the second write, and the broker checks the name again.
        """
        if "." not in name and "_" not in name:
            return []
        parent = self._session.get(znodes.TOPICS)
        other = collision(name, self._session.children(znodes.TOPICS))
        if other is not None:
            raise collides(other)
        return [Set(znodes.TOPICS, parent.data, parent.version)]

    def _write_settings(self, name: str, texts: Mapping[str, str]) -> Operation:
        """Write the settings of a new topic. The znode may exist, from a deleted topic."""
        path, data = znodes.config_path(name), znodes.encode_config(texts)
        left = self._read(path)
        return Create(path, data) if left is None else Set(path, data, left.version)

    def delete(self, topic: Topic) -> None:
        """Delete a topic. If a broker is down, it deletes its replicas after it returns."""
        self._change(lambda: self._delete(topic))

    def _delete(self, topic: Topic) -> None:
        if not topic_deletion.delete(self._session, topic.name, text_of(topic.id)):
            raise unknown(topic.name)

    def resume(self) -> None:
        """Complete deletions of topics that a crash has interrupted."""
        self._change(lambda: topic_deletion.resume(self._session))

    def add_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        *,
        is_dry: bool = False,
    ) -> Topic:
        """Add partitions to a topic, with as many replicas as its first partition has."""
        return self._change(lambda: self._add_partitions(name, count, assignment, is_dry))

    def _add_partitions(
        self, name: str, count: int, given: Sequence[Sequence[int]] | None, is_dry: bool
    ) -> Topic:
        check, found = self._no_deletion(), self._found(name)
        topic, node = found.topic(name), found.node
        check_growth(topic, count)
        more, first, racks = count - len(topic.partitions), max(topic.partitions) + 1, self._racks()
        if given is None:
            _check_factor(found.factor, racks)
            leader = node.partitions[topic.partitions[0]][0]
            lists = placement.place_more(racks, more, leader, found.factor, first)
        elif len(given) != more:
            reason = f"{more} partitions are to be added, but {len(given)} are assigned"
            raise TopicRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        else:
            lists = [_checked(first + place, one, racks) for place, one in enumerate(given)]
            if {len(one) for one in lists} != {found.factor}:
                raise _inconsistent(
                    f"each partition of the topic must have {found.factor} replicas"
                )
        added = dict(enumerate(lists, first))
        if not is_dry:
            path = znodes.topic_path(name)
            data = znodes.with_partitions(found.znode.data, path, added)
            self._session.multi([check, Set(path, data, found.znode.version)])
        return topic._replace(partitions=(*topic.partitions, *added))

    def alter(self, name: str, changes: Sequence[Change], *, is_dry: bool = False) -> None:
        """Change the settings of a topic, and notify all brokers."""
        self._change(lambda: self._alter(name, changes, is_dry))

    def _alter(self, name: str, changes: Sequence[Change], is_dry: bool) -> None:
        check, found = self._no_deletion(), self._found(name)
        path = znodes.config_path(name)
        znode = self._read(path)
        before = {} if znode is None else znodes.parse_config(znode.data, path)
        texts = setting_texts.changed(before, changes, self._config.log_config)
        if MIN_ISR in before:
            # if a client deletes this setting, store the value that a new topic would get
            texts.setdefault(MIN_ISR, setting_texts.min_isr_of(self._config, found.factor))
        if is_dry or texts == before:
            return
        data = znodes.encode_config(texts)
        write = Create(path, data) if znode is None else Set(path, data, znode.version)
        notice = znodes.encode_setting_notice(name)
        self._session.multi(
            [
                check,
                Check(znodes.topic_path(name), found.znode.version),
                write,
                Create(znodes.SETTING_NOTICE, notice, sequence=True),
            ]
        )
        drop_old_notices(self._session)

    # --- reading ----------------------------------------------------------------------------------

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Find a topic in the store by its name, or by its id if the name is None."""
        if name is None:
            name = self._cache.view.ids.get(topic_id)
            if name is None:
                return None
            found = self._ask(lambda: self._lookup(name))
            is_same = found is not None and found.topic(name).id == topic_id
            return found.topic(name) if found is not None and is_same else None
        found = self._ask(lambda: self._lookup(name))
        return None if found is None else found.topic(name)

    def settings_of(self, name: str) -> list[SettingRow]:
        """Describe the settings of a topic, as the store has them."""
        return self._ask(lambda: self._rows_of(name))

    def _rows_of(self, name: str) -> list[SettingRow]:
        found = self._found(name)
        path = znodes.config_path(name)
        znode = self._read(path)
        texts = {} if znode is None else znodes.parse_config(znode.data, path)
        return setting_texts.rows_of(texts, self._config, found.factor)

    # --- when clients see a change ----------------------------------------------------------------

    def is_ready(self, topic: Topic) -> bool:
        """Report whether the metadata of this broker has the topic with all its leaders."""
        known = self._cache.view.topics.get(topic.name)
        if known is None or known.topic_id != topic.id:
            return False
        partitions = known.partitions
        return all(n in partitions and partitions[n].leader >= 0 for n in topic.partitions)

    def is_gone(self, topic: Topic) -> bool:
        """Report whether the metadata of this broker no longer has the topic."""
        return topic.id not in self._cache.view.ids

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each change of the metadata.

        The result is a function that ends the calls of `wake`.
        """
        return self._cache.on_change(lambda _: wake())

    # --- the store --------------------------------------------------------------------------------

    def _change(self, decide: Callable[[], Result]) -> Result:
        """Decide and write. If another broker has changed a znode first, try again."""
        with self._changing:
            return self._ask(decide)

    def _ask(self, decide: Callable[[], Result]) -> Result:
        """Call a function that uses the store, and translate the store's errors."""
        error: CoordinationError | None = None
        for _ in range(TRIES):
            try:
                return decide()
            except ZnodeError as refused:
                error = refused
            except LimitError as limit:
                raise TopicRefusedError(ErrorCode.POLICY_VIOLATION, str(limit)) from limit
            except OutcomeUnknownError as lost:
                raise TopicRefusedError(ErrorCode.REQUEST_TIMED_OUT, str(lost)) from lost
            except CoordinationError as lost:
                # After this error, a client asks the controller, which may still reach the store.
                raise TopicRefusedError(ErrorCode.NOT_CONTROLLER, str(lost)) from lost
        reason = f"other brokers changed the topic during each of {TRIES} attempts: {error}"
        raise TopicRefusedError(ErrorCode.REQUEST_TIMED_OUT, reason) from error

    def _no_deletion(self) -> Check:
        """Return a check that no topic was deleted since this call.

        The version of a topic does not tell this: a topic that is created again begins with the
        same version.
        """
        return Check(znodes.TOPICS, self._session.get(znodes.TOPICS).version)

    def _read(self, path: str) -> Znode | None:
        try:
            return self._session.get(path)
        except NoNodeError:
            return None

    def _lookup(self, name: str) -> _Found | None:
        try:
            check_name(name)
        except TopicRefusedError:  # the coordination store has no znode with such a name
            return None
        path = znodes.topic_path(name)
        znode = self._read(path)
        if znode is None:
            return None
        return _Found(znodes.parse_topic(znode.data, path, znode.czxid), znode)

    def _found(self, name: str) -> _Found:
        found = self._lookup(name)
        if found is None or not found.node.partitions:
            raise unknown(name)
        return found

    def _racks(self) -> dict[int, str]:
        """Read which brokers are registered, and their racks."""
        return {broker: node.rack for broker, node in self._registered.brokers().items()}

    def _assignment_of(self, wanted: NewTopic) -> Assignment:
        """Choose the brokers of a new topic, or check the brokers that the client has chosen."""
        racks = self._racks()
        if wanted.assignment:
            check_numbers(wanted)
            given = {number: _checked(number, one, racks) for number, one in wanted.assignment}
            if len({len(one) for one in given.values()}) > 1:
                raise _inconsistent("all partitions must have the same number of replicas")
            return dict(sorted(given.items()))
        factor = wanted.replication_factor
        if factor == DEFAULT:
            factor = self._config.default_replication_factor
        _check_factor(factor, racks)
        count = partition_count(wanted, self._config.num_partitions)
        start, shift = self._draw.randrange(len(racks)), self._draw.randrange(len(racks))
        return dict(enumerate(placement.place(racks, count, factor, start=start, shift=shift)))


def _checked(number: int, brokers: Sequence[int], racks: Mapping[int, str]) -> tuple[int, ...]:
    """Refuse the brokers of a partition if a broker is not registered, or is named twice."""
    missing = sorted(set(brokers) - racks.keys())
    reason = ""
    if not brokers:
        reason = "has no replica"
    elif len(set(brokers)) < len(brokers):
        reason = f"names a broker twice: {list(brokers)}"
    elif missing:
        reason = f"is assigned to brokers that are not registered: {missing}"
    if reason:
        raise _inconsistent(f"partition {number} {reason}")
    return tuple(brokers)


def _check_factor(factor: int, racks: Mapping[int, str]) -> None:
    if not 1 <= factor <= len(racks):
        raise TopicRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {factor}, but only {len(racks)} brokers are registered",
        )


def _inconsistent(reason: str) -> TopicRefusedError:
    return TopicRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _new_id() -> bytes:
    """Draw a topic id.

    If the text of an id began with "-", tools would read the text as an option.
    """
    while True:
        topic_id = os.urandom(16)
        if not text_of(topic_id).startswith("-"):
            return topic_id
