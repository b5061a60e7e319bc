"""Measure the rules of the controller alone: a broker that leads a tenth of all partitions dies.

No store and no process takes part. The store's answers are made up here, so the figure is the
processor time of the rules: they decide about every partition, and write the states that change.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from cluster.pure import control_exchange as ce
from cluster.pure.controller import Controller
from cluster.registration import Registration, TopicIdentity
from cluster.requests import RoleAnswer
from cluster.state import State

BROKERS, REPLICAS, MIN_ISR = 10, 3, 2
PARTITIONS_PER_TOPIC = 100
VERSION = 1


class Elected(NamedTuple):
    """What the rules did, and the processor time that it took."""

    elected: int
    written: int
    requests: int
    cpu_seconds: float


def registrations(brokers: range) -> ce.RegistrationsRead:
    """Register brokers; the number of a broker is also its epoch."""
    return ce.RegistrationsRead({one: Registration(one, one, {}) for one in brokers})


def controller_of(partitions: int) -> Controller:
    """Make a controller that has read all states, and has the answers of all replicas."""
    controller = Controller(1)
    controller.handle(registrations(range(1, BROKERS + 1)), 0.0)
    for number in range(partitions):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        identity = TopicIdentity(f"id-{topic}", 1)
        replicas = tuple((number + step) % BROKERS + 1 for step in range(REPLICAS))
        isr = {broker: broker for broker in replicas}
        state = State(
            replicas[0], 1, 1, isr, {}, frozenset(), replicas[0], replicas, None, MIN_ISR
        )  # fmt: skip
        read = ce.StateRead(
            (f"topic-{topic}", partition), identity, VERSION, state, ce.TopicConfig(MIN_ISR)
        )
        controller.handle(read, 0.0)
        for broker in replicas:
            answer = RoleAnswer(
                identity, partition, broker, broker, is_offline=False, version=VERSION
            )
            controller.handle(answer, 0.0)
    return controller


def elect(controller: Controller) -> Elected:
    """Let broker 1 die, and look at all partitions as the controller's host does."""
    elected = written = requests = 0
    before = time.process_time()
    controller.handle(registrations(range(2, BROKERS + 1)), 0.0)
    for key in [*controller.entries]:
        leader = controller.entries[key].state.leader
        for effect in controller.handle(ce.Look(key), 0.0):
            if not isinstance(effect, ce.WriteState):
                requests += 1
                continue
            written += 1
            elected += effect.state.leader != leader
            requests += len(controller.handle(ce.Written(key, effect.number, VERSION + 1), 0.0))
    return Elected(elected, written, requests, time.process_time() - before)
