"""Run the rules of the controller: elections, reads and writes of the store, requests to brokers.

    stand for election -> read everything -> an event, its effects -> the next event
           ^                                        |
           +--- another reign, or a lost session <--+

One thread decides. Everything that happens elsewhere comes to it as an event in a queue: a watch of
the store, the answer of a broker, a proposal of a leader, a request of an operator.
"""

from __future__ import annotations

import enum
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from broker.coordination.errors import CoordinationError, NoNodeError
from cluster import znodes
from cluster.control.broker_sender import BrokerSender
from cluster.control.controller_store import ControllerStore, Reign
from cluster.control.topic_rules import rules_of
from cluster.errors import BadZnodeError
from cluster.pure import control_exchange as ce
from cluster.pure.controller import Controller
from cluster.registration import NO_BROKER
from cluster.requests import AlterPartition, AlterRefused, LeaderAndIsr, StopReplica
from cluster.run.peer_connection import PeerConnection
from cluster.wire.roles import Controlling
from cluster.znodes import BrokerNode, TopicNode

LOG = logging.getLogger("cluster")
LOOK_SECONDS = 1.0  # how often the controller looks at each partition, and asks again
RETRY_SECONDS = 0.5


class _Changed(enum.Enum):
    """A watch of the store saw a change."""

    BROKERS = "a registration, or the controller"
    TOPICS = "a topic, or its settings"
    LOG_DIRS = "a log dir failed or returned"
    SESSION = "this broker's session has ended, and with it a reign"


class _Alter(NamedTuple):
    """A leader proposes ISRs, and waits for the refusals."""

    changes: list[AlterPartition]
    refused: Future[list[AlterRefused]]


class ControllerHost:
    """A candidate for the role of the controller, on one broker.

    Threads: any thread may call the public methods.
    """

    def __init__(
        self,
        store: ControllerStore,
        broker: int,
        connect: Callable[[int], PeerConnection],
        on_loss: Callable[[str, int, str], object] = lambda name, partition, reason: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Stand for election from now on.

        Args:
            connect: gives a new connection to a broker.
            on_loss: hears of a partition whose acknowledged records may be lost, and why.
        """
        self._store, self._broker = store, broker
        self._connect, self._on_loss, self._look_seconds = connect, on_loss, look_seconds
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closed = False
        self._armed: set[str] = set()
        self._armed_lock = threading.Lock()
        self._reign: Reign | None = None
        self._room = Controller(0)
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicNode] = {}
        self._names: dict[str, str] = {}  # of topics, by id; also of deleted ones
        self._senders: dict[int, BrokerSender] = {}
        self._refused: list[AlterRefused] = []
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self._thread.start()

    # --- for other threads ------------------------------------------------------------------------

    @property
    def epoch(self) -> int | None:
        """The epoch of the present reign; None while another broker is the controller."""
        reign = self._reign
        return None if reign is None else reign.epoch

    def post(self, event: Any) -> None:
        """Tell the controller an event, or an operator's wish."""
        self._events.put(event)

    def alter(self, changes: list[AlterPartition], seconds: float) -> list[AlterRefused] | None:
        """Give the refusals of a leader's proposals; None if this broker is not the controller."""
        if self._reign is None:
            return None
        refused: Future[list[AlterRefused]] = Future()
        self._events.put(_Alter(changes, refused))
        try:
            return refused.result(seconds)
        except (TimeoutError, CoordinationError):
            return None

    def session_ended(self) -> None:
        """End the reign, because its znode went with the session; stand again in the new one."""
        self._events.put(_Changed.SESSION)

    def close(self, timeout: float | None = None) -> None:
        """End the reign, if there is one, and the thread."""
        self._is_closed = True
        self._events.put(None)
        self._thread.join(timeout)

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._reign = self._store.stand(time.time_ns() // 1_000_000)
                if self._reign is None:
                    self._wait_for_vacancy()
                else:
                    LOG.info("broker %d is the controller, %s", self._broker, self._reign)
                    self._serve(self._reign)
            except (CoordinationError, BadZnodeError) as error:
                LOG.warning("no controller on broker %d now: %s", self._broker, error)
                self._wait(RETRY_SECONDS)
            except Exception:
                LOG.exception("the controller of broker %d failed, and stands again", self._broker)
                self._wait(RETRY_SECONDS)
            finally:
                self._abdicate()

    def _wait_for_vacancy(self) -> None:
        """Wait until the controller's znode changes."""
        self._arm(znodes.CONTROLLER, _Changed.BROKERS)
        self._wait(self._look_seconds)

    def _wait(self, seconds: float) -> None:
        """Wait for any event, and drop it: this broker is not the controller."""
        try:
            self._drop(self._events.get(timeout=seconds))
        except queue.Empty:
            return

    def _drop(self, event: Any) -> None:
        if isinstance(event, _Alter):
            event.refused.set_result([])
        elif event is _Changed.SESSION:
            with self._armed_lock:
                self._armed.clear()  # its watches went with the session

    def _abdicate(self) -> None:
        """End a reign: give up the znode if it is this broker's, so that another one can stand."""
        was, self._reign = self._reign, None
        senders, self._senders = self._senders, {}
        for sender in senders.values():
            sender.end()
        if was is not None:
            try:
                znode = self._store.session.get(znodes.CONTROLLER)
                if znode.ephemeral_owner == self._store.session.key.session_id:
                    self._store.session.delete(znodes.CONTROLLER, version=znode.version)
            except CoordinationError as error:
                LOG.info("the end of a reign: %s", error)

    def _serve(self, reign: Reign) -> None:
        """Decide until the reign ends."""
        self._room = Controller(reign.epoch)
        with self._armed_lock:
            self._armed.clear()
        self._read_brokers()
        self._read_deletions()
        self._read_topics()
        self._read_log_dir_events()
        for key in [*self._room.entries]:
            self._tell(ce.AskAll(key))
        look_at = 0.0
        while not self._is_closed and not self._room.is_deposed:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + self._look_seconds
                self._look()
            try:
                event = self._events.get(timeout=max(0.0, look_at - time.monotonic()))
            except queue.Empty:
                continue
            self._take(event)

    def _take(self, event: Any) -> None:
        match event:
            case None:
                return
            case _Changed():
                self._read_changed(event)
                self._look()
            case _Alter(changes, refused):
                self._refused = []
                for change in changes:
                    self._tell(change)
                refused.set_result(self._refused)
            case _:
                self._tell(event)
                if isinstance(event, ce.ConnectionRefused | ce.ConnectionAccepted):
                    self._look()

    def _read_changed(self, what: _Changed) -> None:
        if what is _Changed.SESSION:
            self._tell(ce.Deposed())
        elif what is _Changed.BROKERS:
            self._read_brokers()
            self._create_missing()
        elif what is _Changed.TOPICS:
            self._read_topics()
        else:
            self._read_log_dir_events()

    def _look(self) -> None:
        for key, entry in [*self._room.entries.items()]:
            self._tell(ce.Look(key))
            if entry.state.leader == NO_BROKER and entry.state.is_unclean_allowed:
                self._tell(ce.ElectUncleanly(key))
        self._tell(ce.StopsDue())

    def _tell(self, event: Any) -> None:
        """Let the rules decide about an event, and carry out what they say."""
        for effect in self._room.handle(event, time.monotonic()):
            match effect:
                case ce.WriteState():
                    assert self._reign is not None
                    self._tell(self._store.write(effect, self._reign))
                case ce.ReadState(key):
                    self._read_brokers()
                    self._read_state(key)
                case ce.SendRequest(_, AlterRefused() as refused):
                    self._refused.append(refused)
                case ce.SendRequest(broker, LeaderAndIsr() | StopReplica() as request):
                    self._send(broker, request)
                case ce.KeepDeletion(deletion):
                    name = self._names[deletion.topic.topic_id]
                    self._store.keep(znodes.NamedDeletion(name, deletion))
                case ce.ForgetDeletion(topic, partition):
                    self._store.forget(topic, partition)
                case ce.ReportLoss(key, reason):
                    LOG.error("%s-%d may have lost acknowledged records: %s", *key, reason)
                    self._on_loss(*key, reason)
                case ce.Reject(_, reason):
                    LOG.warning("refused: %s: %s", event, reason)
                case _:
                    raise AssertionError(effect)

    def _send(self, broker: int, request: LeaderAndIsr | StopReplica) -> None:
        name = self._names.get(request.topic.topic_id)
        if name is None:
            return
        sender = self._senders.get(broker)
        if sender is None:
            controlling = Controlling(self._broker, self._room.controller_epoch)
            sender = BrokerSender(
                broker, controlling, self._connect(broker), self._addresses, self._events.put
            )
            self._senders[broker] = sender
        sender.send(name, request)

    def _addresses(self) -> dict[int, tuple[str, int]]:
        return {
            broker: (node.endpoints[0].host, node.endpoints[0].port)
            for broker, node in self.brokers.items()
        }

    # --- the store --------------------------------------------------------------------------------

    def _arm(self, path: str, what: _Changed, *, children: bool = False) -> None:
        """Watch a znode once; its next change is an event."""
        name = f"{path}/*" if children else path
        with self._armed_lock:
            if name in self._armed:
                return
            self._armed.add(name)

        def fire(_: object) -> None:
            with self._armed_lock:
                self._armed.discard(name)
            self._events.put(what)

        session = self._store.session
        if children:
            session.watch_children(path, fire)
        else:
            session.watch(path, fire)

    def _read_brokers(self) -> None:
        """Read the registrations, and watch them: also one that is written again."""
        self._arm(znodes.BROKERS, _Changed.BROKERS, children=True)
        self._arm(znodes.CONTROLLER, _Changed.BROKERS)
        for name in self._store.session.children(znodes.BROKERS):
            self._arm(f"{znodes.BROKERS}/{name}", _Changed.BROKERS)
        self.brokers = self._store.brokers()
        registrations = {broker: node.registration for broker, node in self.brokers.items()}
        self._tell(ce.RegistrationsRead(registrations))
        for broker in self._senders.keys() - self.brokers.keys():
            self._senders.pop(broker).end()

    def _read_deletions(self) -> None:
        """Read what an earlier controller has not deleted everywhere."""
        found = self._store.deletions()
        self._names |= {one.deletion.topic.topic_id: one.name for one in found}
        self._tell(ce.DeletionsRead(tuple(one.deletion for one in found)))

    def _read_log_dir_events(self) -> None:
        """Ask the replicas of the brokers that announced a change of a log dir (P14, KIP-112)."""
        self._arm(znodes.LOG_DIR_EVENTS, _Changed.LOG_DIRS, children=True)
        brokers = self._store.take_log_dir_events()
        for key, entry in [*self._room.entries.items()]:
            if brokers & set(entry.state.replicas):
                self._tell(ce.AskAll(key))

    def _read_topics(self) -> None:
        """Read topics and settings, and watch them; begin with new topics, end deleted ones."""
        self._arm(znodes.TOPICS, _Changed.TOPICS, children=True)
        for name in self._store.session.children(znodes.TOPICS):
            self._arm(znodes.topic_path(name), _Changed.TOPICS)
            self._arm(znodes.config_path(name), _Changed.TOPICS)
        self.topics = self._store.topics()
        for key, entry in [*self._room.entries.items()]:
            topic = self.topics.get(key[0])
            if topic is None or not topic.identity.is_same(entry.topic):
                self._tell(ce.DeleteTopic(key))
        self._names |= {node.identity.topic_id: name for name, node in self.topics.items()}
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                self._read_state((name, partition))

    def _create_missing(self) -> None:
        """Begin with the partitions that no broker could begin with before."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                if (name, partition) not in self._room.entries:
                    self._read_state((name, partition))

    def _read_state(self, key: ce.PartitionKey) -> None:
        """Read the state of a partition; one without a state gets its first."""
        topic = self.topics.get(key[0])
        if topic is None or key[1] not in topic.partitions:
            return
        replicas = topic.partitions[key[1]]
        try:
            settings, version = self._store.settings(key[0])
            rules = rules_of(settings, len(replicas), version)
            found = self._store.state(key)
        except (BadZnodeError, NoNodeError) as error:
            LOG.error("%s-%d is left alone: %s", *key, error)
            return
        if found is not None:
            self._tell(ce.StateRead(key, topic.identity, found.version, found.state, rules))
        elif key not in self._room.entries:
            self._tell(ce.CreateTopic(key, topic.identity, replicas, rules))
