"""What can go wrong with the wall clocks of brokers, ZooKeepers and clients."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from jepsen.scene import Fault, Scene

STEP_SECONDS = 60.0
SEEN_SECONDS, LOOK_SECONDS = 1.0, 0.02
STROBES, STROBE_SECONDS = 10, 0.1
KINDS = {"b": "broker", "z": "ZooKeeper", "c": "client"}


def clock_steps(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let the clocks of some nodes jump by up to a minute, and then back or elsewhere."""
    nodes = _some(scene, rng)
    told = [_step(scene, node, _offset(rng)) for node in nodes]
    yield f"clocks {', '.join(told)}"
    is_back = rng.random() < 0.7
    for node in nodes:
        _step(scene, node, 0.0 if is_back else _offset(rng))


def clock_strobes(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let the clocks of some nodes jump forth and back many times within a second."""
    nodes = _some(scene, rng)
    for _ in range(STROBES):
        for node in nodes:
            _step(scene, node, _offset(rng), STROBE_SECONDS)
    yield f"clocks of {'+'.join(nodes)} jump {STROBES} times"
    for node in nodes:
        _step(scene, node, 0.0)


def _some(scene: Scene, rng: random.Random) -> list[str]:
    nodes = [node for node in (*scene.nodes, "clients") if node in scene.cluster.clocks]
    return rng.sample(nodes, rng.choice([1, 1, 2, len(nodes)]))


def _offset(rng: random.Random) -> float:
    return rng.choice([STEP_SECONDS, -STEP_SECONDS, rng.uniform(-STEP_SECONDS, STEP_SECONDS)])


def _step(scene: Scene, node: str, offset: float, seconds: float = SEEN_SECONDS) -> str:
    """Let a clock jump, and wait for a while until its process has looked at it."""
    clock, deadline = scene.cluster.clocks[node], time.monotonic() + seconds
    clock.set(offset)
    while not clock.is_seen and time.monotonic() < deadline:
        threading.Event().wait(LOOK_SECONDS)
    seen = "seen" if clock.is_seen else "not seen"
    scene.count(f"the clock of a {KINDS[node[0]]} jumped, {seen}")
    return f"{node} {offset:+.1f} s {seen}"


CLOCKS: list[Fault] = [clock_steps, clock_steps, clock_strobes]
