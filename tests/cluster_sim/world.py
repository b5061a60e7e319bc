"""Simulate a cluster around the real rooms: store, network, controllers, virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from cluster.pure import control_exchange as ce
from cluster.pure.controller import Controller
from cluster.registration import NO_TOPIC, NO_VERSION, Registration, TopicIdentity
from cluster.state import State
from cluster_sim.brokers import CONTROLLER, SimBroker
from cluster_sim.checker import Checker, Violation
from cluster_sim.disks import DIR_IDS

UNLIMITED = 1 << 60
MESSAGES_MAX = 24  # under way, for each partition


class Message(NamedTuple):
    """A request or answer under way; CONTROLLER is the address of whichever broker controls."""

    source: int
    target: int
    part: int
    request: Any


class SimController:
    """A controller on a broker; a deposed one may continue."""

    def __init__(self, epoch: int, host: int) -> None:
        self.room = Controller(epoch)
        self.host = host


class Part:
    """One partition: its state in the store, and what is true of it."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.key = f"topic {number}", 0
        self.topic: TopicIdentity = NO_TOPIC
        self.state = State(-1, 0, 0, {}, {}, frozenset(), 0, (1,), None, 1)
        self.version = NO_VERSION
        self.records = 0  # made by clients, over all topics of this name
        self.unacknowledged: set[int] = set()
        self.checker = Checker(world, number, NO_TOPIC)


class World:
    """A cluster: brokers, the store, controllers, and requests that are lost, doubled or late."""

    def __init__(
        self,
        brokers: int = 3,
        min_isr: int = 2,
        parts: int = 1,
        spare: int = 0,
        *,
        flushes: bool = False,
        is_apart: bool = True,
        is_unclean_allowed: bool = False,
        cuts_answers: bool = False,
    ) -> None:
        self.now, self.zxid = 0.0, 10
        self.cuts_answers = cuts_answers
        self.min_isr = self.min_isr_smallest = min_isr
        self.set_min_isr(min_isr)
        self.flushes, self.is_unclean_allowed = flushes, is_unclean_allowed
        self.settings_version = 0
        self.reads: list[tuple[SimController, ce.StateRead]] = []  # on their way
        self.is_read_late = False
        self.used: Counter[str] = Counter()
        self.net: list[Message] = []
        self.cut: set[Any] = set()  # a broker: from the store and the controller; a pair: both
        self.loses_answer = self.is_slow = self.is_unclean_step = False
        self.is_disk_late = False
        self.marks = 0  # the last mark that a log dir got
        self.known_marks: dict[tuple[int, str], int] = {}  # by broker and log dir, in the store
        self.deletions: dict[tuple[str, int], ce.Deletion] = {}  # kept in the store
        self.answers: list[tuple[SimController, Any]] = []  # of the store, on their way
        self.effects_left = UNLIMITED
        self.registrations: dict[int, Registration] = {}
        self.parts = [Part(self, number) for number in range(parts)]
        places = [DIR_IDS[number if is_apart else 0] for number in range(parts)]
        self.brokers = {m: SimBroker(self, m, places) for m in range(1, brokers + 1)}
        for broker in self.brokers.values():
            broker.start()
        self.controller_epoch = 0
        self.controllers: list[SimController] = []
        self.elect_controller(1)
        for part in self.parts:
            self.create(self.controllers[0], part, tuple(range(1, brokers + 1 - spare)))

    def may_continue(self) -> bool:
        """Whether a broker may carry out one more effect before it dies."""
        self.effects_left -= 1
        return self.effects_left >= 0

    def next_zxid(self) -> int:
        """Give the number of the next write to the store."""
        self.zxid += 1
        return self.zxid

    def set_min_isr(self, min_isr: int) -> None:
        """Change the settings of the topics; the states still have the old number."""
        self.min_isr = min_isr
        self.settings_version = self.next_zxid()
        self.min_isr_smallest = min(min_isr, self.min_isr_smallest)

    # --- network ---

    def send(self, source: int, target: int, part: int, request: Any) -> None:
        """Send a request; a copy of one that is under way is dropped."""
        message = Message(source, target, part, request)
        if len(self.net) < MESSAGES_MAX * len(self.parts) and message not in self.net:
            self.net.append(message)

    def is_reachable(self, source: int, target: int) -> bool:
        """Whether a message can pass."""
        if not self.cut:
            return True
        if CONTROLLER in (source, target):
            return max(source, target) not in self.cut
        return (min(source, target), max(source, target)) not in self.cut

    def deliver(self, index: int, *, keep: bool = False) -> None:
        """Hand over a message that is under way."""
        index %= len(self.net)
        message = self.net[index]
        if not keep:
            del self.net[index]
        if not self.is_reachable(message.source, message.target):
            return
        if message.target == CONTROLLER:
            for controller in list(self.controllers):
                if self.is_working(controller):
                    self.tell(controller, message.request)
        elif self.brokers[message.target].is_up:
            self.brokers[message.target].tell(message.part, message.request)

    # --- controllers ---

    def is_working(self, controller: SimController) -> bool:
        """Whether a controller lives and reaches the store."""
        return self.brokers[controller.host].is_up and controller.host not in self.cut

    def elect_controller(self, host: int) -> None:
        """Let a broker become the controller; the last one may not know of it."""
        self.controller_epoch += 1
        kept = [one for one in self.controllers[-1:] if self.brokers[one.host].is_up]
        controller = SimController(self.controller_epoch, host)
        self.controllers = [*kept, controller]
        self.tell(controller, ce.DeletionsRead(tuple(self.deletions.values())))
        for part in self.parts:
            self.read(controller, part)

    def read(self, controller: SimController, part: Part) -> None:
        """Let a controller read a partition's state and the registrations."""
        self.tell(controller, ce.RegistrationsRead(self.registrations))
        if part.version != NO_VERSION:
            config = self.config
            read = ce.StateRead(part.key, part.topic, part.version, part.state, config)
            if self.is_read_late:
                self.is_read_late = False
                self.reads.append((controller, read))
            else:
                self.tell(controller, read)

    def hear_read(self) -> None:
        """Let a read of the store arrive that was slow."""
        controller, read = self.reads.pop(0)
        if controller in self.controllers:
            self.tell(controller, read)

    @property
    def config(self) -> ce.TopicConfig:
        """The settings of every topic."""
        return ce.TopicConfig(
            self.min_isr, self.is_unclean_allowed, self.flushes, self.settings_version
        )

    def tell(self, controller: SimController, event: Any) -> None:
        """Run the room of a controller, and carry out its effects."""
        for effect in controller.room.handle(event, self.now):
            match effect:
                case ce.SendRequest(broker, request):
                    self.send(CONTROLLER, broker, self.part_of(request.topic), request)
                case ce.WriteState():
                    self._write(controller, effect)
                case ce.ReadState(key):
                    self.read(controller, next(p for p in self.parts if p.key == key))
                case ce.KeepDeletion(deletion):
                    self.deletions[deletion.topic.topic_id, deletion.partition] = deletion
                case ce.ForgetDeletion(topic, partition):
                    self.deletions.pop((topic.topic_id, partition), None)
                case ce.ReportLoss(key, reason):
                    part = next(p for p in self.parts if p.key == key)
                    part.checker.on_report(reason)
                case ce.Reject():
                    pass
                case _:
                    raise AssertionError(effect)

    def part_of(self, topic: TopicIdentity) -> int:
        """Give the number of the partition with a topic of this name."""
        return int(topic.topic_id.split(" ")[0])

    def _write(self, controller: SimController, write: ce.WriteState) -> None:
        """Write a state if version and controller epoch fit (P2)."""
        part = next(p for p in self.parts if p.key == write.key)
        if write.controller_epoch not in (None, self.controller_epoch):
            self.tell(controller, ce.Deposed())
            if controller in self.controllers:  # it may have had several writes to do
                self.controllers.remove(controller)
            return
        if write.version not in (None, part.version):
            self._answer(controller, ce.WriteFailed(write.key, write.number))
            return
        if write.topic != part.topic:
            raise Violation("P2 the state of an older topic replaces the state of a newer one")
        if part.version != NO_VERSION:
            part.checker.on_write(controller.room.seen, part.state, write.state)
        part.state, part.version = write.state, part.version + 1
        if self.is_unclean_step:
            part.checker.on_unclean_election(write.state.leader_epoch, write.state.leader)
        if self.loses_answer:
            self.loses_answer = False
            self._answer(controller, ce.WriteFailed(write.key, write.number))
        else:
            self._answer(controller, ce.Written(write.key, write.number, part.version))

    def _answer(self, controller: SimController, answer: Any) -> None:
        """Answer a write, at once or later."""
        if self.is_slow:
            self.is_slow = False
            self.answers.append((controller, answer))
        else:
            self.tell(controller, answer)

    def hear(self) -> None:
        """Let an answer of the store arrive that was slow."""
        controller, answer = self.answers.pop(0)
        if controller in self.controllers:
            self.tell(controller, answer)

    def create(self, controller: SimController, part: Part, replicas: tuple[int, ...]) -> None:
        """Create a topic, or create it again under its name, with another id."""
        part.topic = TopicIdentity(f"{part.number} {self.next_zxid()}", self.zxid)
        part.version = NO_VERSION
        part.state = part.state._replace(unclean_epoch=-1)
        part.unacknowledged = set()
        part.checker = Checker(self, part.number, part.topic)
        self.tell(controller, ce.RegistrationsRead(self.registrations))
        self.tell(controller, ce.CreateTopic(part.key, part.topic, replicas, self.config))

    def strays(self) -> list[tuple[int, int]]:
        """Name the brokers and partitions whose replica should have been deleted."""
        return [
            (m, part.number)
            for m, broker in self.brokers.items()
            for part in self.parts
            if broker.stored[part.number].exists
            and (broker.stored[part.number].topic, m in part.state.replicas) != (part.topic, True)
        ]

    def check(self) -> None:
        """Judge all partitions."""
        for part in self.parts:
            part.checker.check()
