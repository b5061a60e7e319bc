"""Run the rules of the controller: elections, reads and writes of the store, requests to brokers.

    stand for election -> read everything -> an event, its effects -> the next event
           ^                                        |
           +--- another reign, or a lost session <--+

One thread decides. The controller gets all facts and requests as events in a queue: changes that a
watch of the store saw, answers of brokers, proposals of leaders, and requests of operators.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from broker.coordination.errors import CoordinationError, NoNodeError
from broker.machines.complaints import Complaints
from cluster import znodes
from cluster.control.announcer import Announcer
from cluster.control.broker_sender import BrokerSender
from cluster.control.controller_store import ControllerStore, Reign
from cluster.control.present_controller import PresentController
from cluster.control.topic_rules import factor_of, rules_of
from cluster.control.watches import Changed, TopicChanged, Watches
from cluster.control.work import Work
from cluster.errors import BadZnodeError
from cluster.pure import control_exchange as ce
from cluster.pure.controller import Controller
from cluster.registration import NO_BROKER
from cluster.requests import AlterPartition, AlterRefused, LeaderAndIsr, RoleAnswer, StopReplica
from cluster.run.peer_connection import PeerConnection
from cluster.wire.roles import Controlling
from cluster.znodes import BrokerNode, TopicNode

LOG = logging.getLogger("cluster")
LOOK_SECONDS = 1.0  # the time between two looks at all partitions
RETRY_SECONDS = 0.5

Result = TypeVar("Result")


class ControllerHost:
    """A candidate for the role of the controller, on one broker.

    Threads: any thread may call the public methods. Only functions in `run` use `room` or `tell`.
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
            connect: makes a new connection to a broker.
            on_loss: gets a partition that may have lost acknowledged records, and the reason.
        """
        self._store, self._broker = store, broker
        self._connect, self._on_loss, self._look_seconds = connect, on_loss, look_seconds
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closed, self._complaints = False, Complaints()
        self._watches = Watches(store.session, self._events.put)
        self._reign: Reign | None = None
        self._present = PresentController(store, broker, connect)
        self.room = Controller(0)
        self.announcer = self._new_announcer()
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicNode] = {}
        self._names: dict[str, str] = {}  # the names of topics by id, including deleted topics
        self._senders: dict[int, BrokerSender] = {}
        self._refused: list[AlterRefused] = []
        self._rejection = ""  # why the last request of an operator was rejected
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self._thread.start()

    # --- for other threads ------------------------------------------------------------------------

    @property
    def epoch(self) -> int | None:
        """The epoch of the present reign; None while this broker is not the controller."""
        reign = self._reign
        return None if reign is None else reign.epoch

    def post(self, event: Any) -> None:
        """Queue an event, or an operator's request, for the controller."""
        self._events.put(event)

    def alter(self, changes: list[AlterPartition], seconds: float) -> list[AlterRefused] | None:
        """Handle a leader's proposals; return the refusals, or None if they were not handled."""
        try:
            return self.run(lambda: self._alter(changes), seconds)
        except (TimeoutError, CoordinationError):
            return None

    def session_ended(self) -> None:
        """End the reign, because the session has ended, and stand again in the new session."""
        self._events.put(Changed.SESSION)

    def run(self, do: Callable[[], Result], seconds: float) -> Result | None:
        """Call a function in the controller's thread; None if this broker is not the controller.

        Raises:
            TimeoutError: the function was too slow; if it has not begun yet, it never runs.
            CoordinationError: the function could not reach the store, so the reign ends.
        """
        if self._reign is None:
            return None
        work = Work(do)
        self._events.put(work)
        return work.wait(seconds)

    def close(self, timeout: float | None = None) -> None:
        """End the reign, if there is one, and the thread."""
        self._is_closed = True
        self._events.put(None)
        self._thread.join(timeout)
        self._present.close()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._reign = self._store.stand(time.time_ns() // 1_000_000)
                if self._reign is None:
                    self._watches.arm(znodes.CONTROLLER, Changed.BROKERS)
                    self._present.wait(self._wait, self._look_seconds)
                else:
                    LOG.info("broker %d is the controller, %s", self._broker, self._reign)
                    self._serve(self._reign)
            except (CoordinationError, BadZnodeError) as error:
                if self._complaints.take("no controller", time.monotonic()) is not None:
                    LOG.warning("no controller on broker %d now: %s", self._broker, error)
                self._wait(RETRY_SECONDS)
            except Exception:
                LOG.exception("the controller of broker %d failed, and stands again", self._broker)
                self._wait(RETRY_SECONDS)
            finally:
                self._abdicate()

    def _wait(self, seconds: float) -> bool:
        """Wait for any event, and drop it, because this broker is not the controller."""
        with suppress(queue.Empty):
            self._drop(self._events.get(timeout=seconds))
            return True
        return False

    def _drop(self, event: Any) -> None:
        if isinstance(event, Work):
            event.drop()
        elif event is Changed.SESSION:
            self._watches.clear()  # the watches have ended, because the session has ended

    def _abdicate(self) -> None:
        """End a reign: delete the controller's znode, if this broker has created it."""
        was, self._reign = self._reign, None
        senders, self._senders = self._senders, {}
        for sender in senders.values():
            sender.end()
        self.announcer.close()
        if was is not None:
            self._store.resign()

    def _new_announcer(self) -> Announcer:
        sender = Controlling(self._broker, self.room.controller_epoch)
        return Announcer(sender, self.room, self._connect, self._events.put)

    def _serve(self, reign: Reign) -> None:
        """Handle events until the reign ends."""
        self.room = Controller(reign.epoch)
        self.announcer = self._new_announcer()
        self._watches.clear()
        self.topics.clear()
        self._read_brokers()
        self._read_deletions()
        self._read_topics()
        self._read_deletions()  # a topic may have been deleted between the first two reads
        self._read_log_dir_events()
        self.announcer.open()
        for key in [*self.room.entries]:
            self._tell(ce.AskAll(key))
        look_at = 0.0
        while not self._is_closed and not self.room.is_deposed:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + self._look_seconds
                self._look()
            try:
                event = self._events.get(timeout=max(0.0, look_at - time.monotonic()))
            except queue.Empty:
                continue
            if event is not None:
                self._take(event)

    def _take(self, event: Any) -> None:
        match event:
            case Changed():
                self._read_changed(event)
                self._look()
            case TopicChanged(name):
                self._look([(name, number) for number in self._read_topic(name)])
            case Work():
                event.perform()
            case ce.ConnectionRefused() | ce.ConnectionAccepted():
                before = dict(self.room.gone)
                self._tell(event)
                if self.room.gone != before:  # the senders must try these brokers again
                    self._look()
            case RoleAnswer():
                self._tell(event)
                self._look_if_offline(event)
            case _:
                self._tell(event)

    def _alter(self, changes: list[AlterPartition]) -> list[AlterRefused]:
        self._refused = []
        for change in changes:
            self._tell(change)
        return self._refused

    def tell(self, event: Any) -> str:
        """Handle an event; return the reason why it was rejected, or ""."""
        self._rejection = ""
        self._tell(event)
        return self._rejection

    def _look_if_offline(self, answer: RoleAnswer) -> None:
        """Elect at once, if a member of the ISR answers that its log dir does not work (P14)."""
        found = self.room.find(answer.topic, answer.partition)
        if answer.is_offline and found is not None and answer.broker in found[1].state.isr:
            self._tell(ce.Look(found[0]))

    def _read_changed(self, what: Changed) -> None:
        if what is Changed.SESSION:
            self._tell(ce.Deposed())
        elif what is Changed.BROKERS:
            self._read_brokers()
            self._create_missing()
        elif what is Changed.TOPICS:
            self._read_topics()
        else:
            self._read_log_dir_events()

    def _look(self, keys: Iterable[ce.PartitionKey] | None = None) -> None:
        """Decide about these partitions; if none are given, about all partitions."""
        for key in [*self.room.entries] if keys is None else keys:
            entry = self.room.entries.get(key)
            self._tell(ce.Look(key))
            if entry and entry.state.leader == NO_BROKER and entry.state.is_unclean_allowed:
                self._tell(ce.ElectUncleanly(key))
        self._tell(ce.StopsDue())

    def _tell(self, event: Any) -> None:
        """Let the rules handle an event, and carry out the effects."""
        for effect in self.room.handle(event, time.monotonic()):
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
                    self._rejection = reason
                    is_answered = isinstance(event, ce.Wish)  # the operator gets this reason
                    level = logging.INFO if is_answered else logging.WARNING
                    LOG.log(level, "refused: %s: %s", event, reason)
                case _:
                    raise AssertionError(effect)
        self.announcer.note(event)

    def _send(self, broker: int, request: LeaderAndIsr | StopReplica) -> None:
        name = self._names.get(request.topic.topic_id)
        if name is None:
            return
        sender = self._senders.get(broker)
        if sender is None:
            controlling = Controlling(self._broker, self.room.controller_epoch)
            sender = BrokerSender(
                broker, controlling, self._connect(broker), self._addresses, self._events.put
            )
            self._senders[broker] = sender
        sender.send(name, request)

    def _addresses(self) -> dict[int, tuple[str, int]]:
        brokers = self.brokers.items()
        return {m: (one.endpoints[0].host, one.endpoints[0].port) for m, one in brokers}

    # --- the store --------------------------------------------------------------------------------

    def _read_brokers(self) -> None:
        """Read the registrations, and watch them for each new write."""
        self._watches.arm(znodes.BROKERS, Changed.BROKERS, children=True)
        self._watches.arm(znodes.CONTROLLER, Changed.BROKERS)
        for name in self._store.session.children(znodes.BROKERS):
            self._watches.arm(f"{znodes.BROKERS}/{name}", Changed.BROKERS)
        self.brokers = self.announcer.brokers = self._store.brokers()
        self._tell(ce.RegistrationsRead({m: one.registration for m, one in self.brokers.items()}))
        for broker in self._senders.keys() - self.brokers.keys():
            self._senders.pop(broker).end()

    def _read_deletions(self) -> None:
        """Read the deletions that an earlier controller has not completed."""
        found = self._store.deletions()
        self._names |= {one.deletion.topic.topic_id: one.name for one in found}
        self._tell(ce.DeletionsRead(tuple(one.deletion for one in found)))

    def _read_log_dir_events(self) -> None:
        """Ask the replicas of the brokers that announced a change of a log dir (P14, KIP-112)."""
        self._watches.arm(znodes.LOG_DIR_EVENTS, Changed.LOG_DIRS, children=True)
        brokers = self._store.take_log_dir_events()
        for key, entry in [*self.room.entries.items()]:
            if brokers & set(entry.state.replicas):
                self._tell(ce.AskAll(key))

    def _read_topics(self) -> None:
        """Find new and deleted topics. The changes of other topics come from their watches."""
        self._watches.arm(znodes.TOPICS, Changed.TOPICS, children=True)
        names = self._store.topic_names()
        for name in self.topics.keys() - names:
            self._read_topic(name)
        for name in sorted(names - self.topics.keys()):
            self._read_topic(name)

    def _read_topic(self, name: str) -> Iterable[int]:
        """Read and watch a new, changed or deleted topic; return its partitions."""
        before = self.topics.get(name)
        if self._store.has_topic(name):  # the watch of a deleted topic would never end
            self._watches.arm(znodes.topic_path(name), TopicChanged(name))
            self._watches.arm(znodes.config_path(name), TopicChanged(name))
        try:
            node = self._store.topic(name)
        except BadZnodeError as error:  # the topic exists, so none of its replicas may be deleted
            LOG.error("a topic cannot be used: %s", error)
            return ()
        self.announcer.topics = self.topics
        if node is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = node
            self._names[node.identity.topic_id] = name
        if before is not None and (node is None or not node.identity.is_same(before.identity)):
            for key in [key for key in self.room.entries if key[0] == name]:
                self._tell(ce.DeleteTopic(key))
        numbers = () if node is None else node.partitions.keys()
        known = {*numbers, *(() if before is None else before.partitions)}
        self.announcer.announce([(name, number) for number in sorted(known)])
        for number in numbers:
            self._read_state((name, number))
        return numbers

    def _create_missing(self) -> None:
        """Create the missing states of partitions for which no broker was available earlier."""
        keys = [(name, number) for name, one in self.topics.items() for number in one.partitions]
        for key in (one for one in keys if one not in self.room.entries):
            self._read_state(key)

    def _read_state(self, key: ce.PartitionKey) -> None:
        """Read the state of a partition; if it has none, create its first state."""
        topic = self.topics.get(key[0])
        if topic is None or key[1] not in topic.partitions:
            return
        replicas = topic.partitions[key[1]]
        try:
            settings, version = self._store.settings(key[0])
            found = self._store.state(key)
            factor = len(replicas) if found is None else factor_of(found.state)
            rules = rules_of(settings, factor, version)
        except (BadZnodeError, NoNodeError) as error:
            LOG.error("%s-%d cannot be managed: %s", *key, error)
            return
        if found is not None:
            self._tell(ce.StateRead(key, topic.identity, found.version, found.state, rules))
        elif key not in self.room.entries and not self._is_being_deleted(topic, key[1]):
            self._tell(ce.CreateTopic(key, topic.identity, replicas, rules))

    def _is_being_deleted(self, topic: TopicNode, partition: int) -> bool:
        """Report whether a partition is being deleted, as a step of a larger deletion."""
        return (topic.identity.topic_id, partition) in self.room.deletions.left
