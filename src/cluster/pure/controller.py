"""Control partitions: collect facts, decide, write the state, and give roles.

The controller keeps only facts that it can ask for again (P23). After a failover, the new
controller reads the states, sends LeaderAndIsr to all replicas, and learns from the answers.

Each write of a state names the controller's own epoch, and the version that the write replaces. If
the store refuses the write, or its answer is lost, the controller reads the state again before it
decides again (P2). While a write runs, the controller decides nothing else about its partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cluster.pure import control_exchange as ce
from cluster.pure import deletions, elect, operators
from cluster.pure.elect import Decision, Known
from cluster.pure.entry import Entry, PendingWrite
from cluster.registration import (
    DELETED_VERSION,
    NO_BROKER,
    NO_TOPIC,
    NO_VERSION,
    Registration,
    TopicIdentity,
)
from cluster.requests import (
    AlterPartition,
    AlterRefused,
    ControlledShutdown,
    LeaderAndIsr,
    RoleAnswer,
    StopAnswer,
)
from cluster.state import LEADER_EPOCH_MAX, assignment_of, fault_of


def is_older(registration: Registration, topic: TopicIdentity) -> bool:
    """Check that a broker's session began before a topic was created."""
    return registration.broker_epoch < topic.created


class Controller:
    """The controller of one controller epoch.

    Attributes:
        registrations: the registrations that were read last.
        gone: brokers whose port refused a connection, each with its broker epoch at that time.
        departures: brokers that have announced that they will stop, with their broker epochs.
        is_deposed: whether another controller was elected; then this controller does nothing.
    """

    def __init__(self, controller_epoch: int) -> None:
        self.controller_epoch = controller_epoch
        self.registrations: dict[int, Registration] = {}
        self.gone: dict[int, int] = {}
        self.departures: dict[int, int] = {}
        self.entries: dict[ce.PartitionKey, Entry] = {}
        self.deletions = deletions.Deletions()
        self.is_deposed = False
        self._keys: dict[tuple[str, int], ce.PartitionKey] = {}  # by topic id and partition
        # when the newest topic with this name was created, even if that topic was deleted
        self._created: dict[ce.PartitionKey, int] = {}
        self._writes = 0  # the number of the newest write
        self.effects: list[Any] = []
        self._seen: dict[int, Registration] | None = None

    def handle(self, event: Any, now: float) -> list[Any]:
        """Handle an event, a request or an answer; return the effects, in their order."""
        if not self.is_deposed:
            self._handle(event)
        effects, self.effects = self.effects, []
        return effects

    def _handle(self, event: Any) -> None:
        match event:
            case RoleAnswer():
                self._on_answer(event)
            case ce.Look(key):
                self._look(key)
            case AlterPartition():
                self._on_alter(event)
            case ce.StateRead():
                self._on_read(event)
            case ce.RegistrationsRead(registrations):
                self.registrations, self._seen = dict(registrations), None
            case ce.Written():
                self._on_written(event)
            case ce.WriteFailed():
                self._on_failed_write(event)
            case ce.Deposed():
                self.is_deposed = True
            case _:
                self._handle_rare(event)

    def _handle_rare(self, event: Any) -> None:
        match event:
            case ce.ConnectionRefused(broker):
                self._on_refused_connection(broker)
            case ce.ConnectionAccepted(broker):
                self.accept(broker)
            case ce.AskAll(key):
                if (entry := self.entries.get(key)) is not None:
                    self._ask(key, entry.state.replicas)
            case ce.Reassign() | ce.CancelReassignment() | ce.ElectLeader() | ce.ElectUncleanly():
                self._fulfil(event)
            case ControlledShutdown():
                self._on_departure(event)
            case ce.DeleteTopic(key):
                self._delete(key)
            case ce.CreateTopic():
                self._create(event)
            case StopAnswer():
                self._on_stop_answer(event)
            case ce.DeletionsRead(found):
                self.deletions.read(found)
            case ce.StopsDue():
                self.effects += self.deletions.requests(self.seen)
            case _:
                raise TypeError(f"a controller does not know the event {event!r}")

    @property
    def seen(self) -> dict[int, Registration]:
        """The registrations, except brokers whose port has refused a connection (P14)."""
        if self._seen is None:
            self._seen = {
                broker: registration
                for broker, registration in self.registrations.items()
                if self.gone.get(broker) != registration.broker_epoch
            }
        return self._seen

    def known(self, entry: Entry) -> Known:
        """Return the facts that an election may use."""
        stopped = [m for m, version in entry.stopped.items() if version == entry.version]
        return Known(self.seen, entry.answers, entry.version, frozenset(stopped), self.leaving)

    @property
    def leaving(self) -> frozenset[int]:
        """The brokers that will stop, except brokers that began a new session (P21)."""
        return frozenset(m for m, epoch in self.departures.items() if self.is_session(m, epoch))

    def is_session(self, broker: int, epoch: int) -> bool:
        """Check that a broker is registered now with this broker epoch."""
        registration = self.registrations.get(broker)
        return registration is not None and registration.broker_epoch == epoch

    def _on_departure(self, asked: ControlledShutdown) -> None:
        """Let a broker leave, and decide about all partitions where it is in sync (P21).

        Partitions that the broker leads come first, because their producers wait.
        """
        if not self.is_session(asked.broker, asked.broker_epoch):
            return
        self.departures[asked.broker] = asked.broker_epoch
        found = [k for k, one in self.entries.items() if asked.broker in one.state.isr]
        for key in sorted(found, key=lambda one: self.entries[one].state.leader != asked.broker):
            self._look(key)

    def held_by(self, broker: int) -> list[ce.PartitionKey]:
        """List the partitions for which a leaving broker has to wait (P21)."""
        entries = self.entries.items()
        return [k for k, one in entries if operators.is_held(one, self.known(one), broker)]

    def _on_refused_connection(self, broker: int) -> None:
        if broker in self.registrations:
            self.gone[broker], self._seen = self.registrations[broker].broker_epoch, None

    def accept(self, broker: int) -> None:
        """End the suspicion that a broker is gone."""
        self.gone.pop(broker, None)
        self._seen = None

    def _on_read(self, read: ce.StateRead) -> None:
        if fault := operators.fault_of_min(read.config.min_isr):
            self.effects.append(ce.Reject(read, fault))
            read = read._replace(config=read.config._replace(min_isr=read.state.min_isr))
        entry = self.entries.get(read.key)
        if entry is None or not entry.topic.is_same(read.topic):
            if self._is_later_topic(read.key, read.topic):
                self._add(read)
            return
        if read.version < entry.version:
            return
        entry.topic = read.topic
        entry.use(read.config)
        self._created[read.key] = read.topic.created
        if entry.pending is None:
            entry.version, entry.state = read.version, read.state

    def _is_later_topic(self, key: ce.PartitionKey, topic: TopicIdentity) -> bool:
        """Check that a topic is newer than the newest topic of its name that was ever known."""
        return topic.created > self._created.get(key, NO_TOPIC.created)

    def _add(self, read: ce.StateRead) -> Entry:
        """Add a partition of a new topic, and forget an older topic of the same name."""
        self._remove(read.key)
        entry = self.entries[read.key] = Entry(read)
        self._keys[read.topic.topic_id, read.key[1]] = read.key
        self._created[read.key] = read.topic.created
        return entry

    def _remove(self, key: ce.PartitionKey) -> Entry | None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            self._keys.pop((entry.topic.topic_id, key[1]), None)
        return entry

    def entry_of(self, key: ce.PartitionKey) -> Entry | None:
        """Return a partition about which the controller can decide now."""
        entry = self.entries.get(key)
        return None if entry is None or entry.pending is not None else entry

    def find(self, topic: TopicIdentity, partition: int) -> tuple[ce.PartitionKey, Entry] | None:
        """Find a partition by its topic id, as requests and answers name it (P6)."""
        key = self._keys.get((topic.topic_id, partition))
        return None if key is None else (key, self.entries[key])

    def _look(self, key: ce.PartitionKey) -> None:
        entry = self.entry_of(key)
        if entry is None:
            return
        decision = self.decide(entry)
        if decision.state != entry.state:
            loss = decision.reason if decision.is_recovery else ""
            replicas = decision.state.replicas
            self._write(key, PendingWrite(decision.state, replicas, loss))
        else:
            self._ask(key, self._unanswered(entry))
            self._stop_removed(key)

    def decide(self, entry: Entry) -> Decision:
        """Decide the next state of a partition."""
        return elect.next_state(entry.state, self.known(entry), entry.config)

    def _unanswered(self, entry: Entry) -> list[int]:
        """Return the replicas that have not answered for this version and registration."""
        known = self.known(entry)
        waiting = []
        for broker in entry.state.replicas:
            answer = known.fresh_answer(broker)
            if answer is None or answer.is_offline or answer.version != entry.version:
                waiting.append(broker)
        return waiting

    def _write(self, key: ce.PartitionKey, write: PendingWrite) -> None:
        entry = self.entries[key]
        state = write.state._replace(controller_epoch=self.controller_epoch)
        if state.leader_epoch > LEADER_EPOCH_MAX:  # no broker could read this state
            self.effects.append(ce.Reject(ce.Look(key), operators.NO_LEADER_EPOCH))
            return
        fault = fault_of(state)
        assert not fault, fault
        assert state.leader_epoch >= entry.state.leader_epoch, "leader epochs only rise"
        self._writes += 1
        entry.pending = write._replace(state=state, number=self._writes)
        self.effects.append(
            ce.WriteState(
                key,
                entry.topic,
                state,
                self.expected_version(entry),
                self.expected_controller_epoch(),
                self._writes,
                assignment_of(state) != assignment_of(entry.state),
            )
        )

    def expected_version(self, entry: Entry) -> int | None:
        """Return the version that a write replaces: the controller decided from this version."""
        return entry.version

    def expected_controller_epoch(self) -> int | None:
        """Return the controller epoch that a write needs.

        The version alone is not enough: the versions of a recreated topic begin at 0.
        """
        return self.controller_epoch

    def _on_failed_write(self, answer: ce.WriteFailed) -> None:
        entry = self.entries.get(answer.key)
        if entry is not None and entry.awaits(answer):
            entry.pending = None
            self.effects.append(ce.ReadState(answer.key))

    def _on_written(self, answer: ce.Written) -> None:
        """Give roles. Ignore an answer that is for an earlier write or an older topic."""
        key, entry = answer.key, self.entries.get(answer.key)
        if entry is None or entry.pending is None or not entry.awaits(answer):
            return
        write, entry.pending = entry.pending, None
        entry.state, entry.version = write.state, answer.version
        self._stop_removed(key)
        is_first = entry.is_new and entry.state.leader != NO_BROKER
        entry.is_new = entry.is_new and not is_first
        self._ask(key, write.informed, is_new=is_first)
        if write.loss:
            self.effects.append(ce.ReportLoss(key, write.loss))

    def _ask(self, key: ce.PartitionKey, brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Send LeaderAndIsr, which gives a role and asks for the facts of the replica.

        If a broker was registered after the creation of the topic, it may have a replica that it
        cannot find: the log dir may have failed before the broker was restarted. So for this
        broker, the request does not say that the topic is new.
        """
        entry, seen = self.entries[key], self.seen
        for broker in brokers:
            if broker in seen:
                request = LeaderAndIsr(
                    entry.topic,
                    key[1],
                    seen[broker].broker_epoch,
                    entry.version,
                    entry.state,
                    is_new and is_older(seen[broker], entry.topic),
                )
                self.effects.append(ce.SendRequest(broker, request))

    def _stop_removed(self, key: ce.PartitionKey) -> None:
        """Ask the brokers that the state names to delete replicas that were removed."""
        entry = self.entries[key]
        stopped, state = self.known(entry).stopped, entry.state
        removed = ce.Deletion(entry.topic, key[1], entry.version, state.removed - stopped)
        self.effects += deletions.requests_of(removed, self.seen)

    def _on_stop_answer(self, answer: StopAnswer) -> None:
        found = self.find(answer.topic, answer.partition)
        if found is not None:
            found[1].stopped[answer.broker] = answer.version
        self.effects += self.deletions.on_answer(answer)

    def _on_answer(self, answer: RoleAnswer) -> None:
        found = self.find(answer.topic, answer.partition)
        registration = self.registrations.get(answer.broker)
        if found is None or registration is None:
            return
        if registration.registration_epoch != answer.registration_epoch:
            return
        answers = found[1].answers
        before = answers.get(answer.broker)
        is_later = (
            before is None
            or before.registration_epoch != answer.registration_epoch
            or answer.is_offline
            or answer.version >= before.version
        )
        if is_later:
            answers[answer.broker] = answer

    def _on_alter(self, asked: AlterPartition) -> None:
        found = self.find(asked.topic, asked.partition)
        if found is None:
            return
        key, entry = found
        state = None
        if entry.pending is None:
            state = elect.change_isr(entry.state, self.known(entry), asked)
        if state is None:
            refused = AlterRefused(entry.topic, key[1], asked.version)
            self.effects.append(ce.SendRequest(asked.leader, refused))
        else:
            self._write(key, PendingWrite(state, (asked.leader,), ""))

    def _fulfil(self, wish: ce.Wish) -> None:
        """Write the change that an operator asks for, or reject the request."""
        entry = self.entry_of(wish.key)
        if entry is None:
            result: PendingWrite | str = operators.NOT_KNOWN
        else:
            result = operators.fulfilled(wish, entry, self.known(entry), self.registrations)
        if isinstance(result, PendingWrite):
            self._write(wish.key, result)
        elif not isinstance(wish, ce.ElectUncleanly) or wish.is_forced:
            self.effects.append(ce.Reject(wish, result))

    def _delete(self, key: ce.PartitionKey) -> None:
        """Delete the replicas, and forget the topic before it may be created again (P2)."""
        entry = self._remove(key)
        if entry is None:
            self.effects.append(ce.Reject(ce.DeleteTopic(key), "the partition is not known"))
        else:
            brokers = entry.state.removed.union(entry.state.replicas)
            deletion = ce.Deletion(entry.topic, key[1], DELETED_VERSION, brokers)
            self.effects += self.deletions.begin(deletion)
            self.effects += deletions.requests_of(deletion, self.seen)

    def _create(self, event: ce.CreateTopic) -> None:
        """Write the first state, whose ISR has the registered brokers among the replicas."""
        fault = operators.fault_of_creation(event, self.seen)
        if not fault and not self._is_later_topic(event.key, event.topic):
            fault = "this topic or a later one of its name is known"
        if fault:
            self.effects.append(ce.Reject(event, fault))
            return
        state = operators.first_state(event, self.seen, self.controller_epoch)
        read = ce.StateRead(event.key, event.topic, NO_VERSION, state, event.config)
        self._add(read).is_new = True
        self._write(event.key, PendingWrite(state, (), ""))
