"""Let brokers come and go while clients write.

Replicas are reassigned to a broker that joins, and drained off a broker before it leaves.

At most one broker is away at a time. A broker leaves only if no partition has a replica on it.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from jepsen.brokers import Process
from jepsen.clients import Admin, Placed
from jepsen.scene import Fault, Scene
from support.places import environment

SERVE_SECONDS, TOOL_SECONDS, LOOK_SECONDS = 25.0, 25.0, 0.1
RETRY_SECONDS, INTERRUPT_SECONDS = 0.5, 5.0
LOST = -1


def come_and_go(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let the broker that is away join; if none is away, drain one, and let it leave."""
    away = [one for one in scene.cluster.processes.values() if one.is_away]
    yield _join(scene, rng, away[0]) if away else _leave(scene, rng)


def _join(scene: Scene, rng: random.Random, process: Process) -> str:
    is_new = not process.said()
    is_empty = not is_new and process.broker != scene.sick and rng.random() < 0.5
    process.come(with_empty_disks=is_empty)
    how = "new" if is_new else "with empty disks" if is_empty else "with its old disks"
    deadline = min(time.monotonic() + SERVE_SECONDS, scene.end)
    while not process.is_serving and time.monotonic() < deadline:
        threading.Event().wait(LOOK_SECONDS)
    if not process.is_serving:
        return f"{process.broker} comes {how}, and does not serve yet"
    scene.count(f"a broker joined, {how}")
    return f"{process.broker} joins {how}, and gets replicas: {_reassign(scene, rng, process)}"


def _reassign(scene: Scene, rng: random.Random, process: Process) -> str:
    """Let a broker have replicas of some partitions."""
    present = [one.broker for one in scene.cluster.present if one is not process]
    rows = []
    for topic, partition, placed in _placed(scene):
        if rng.random() < 0.3:
            continue
        others = [broker for broker in placed.replicas if broker != process.broker]
        kept = rng.sample(others, 2) if rng.random() < 0.7 else rng.sample(present, 2)
        wanted = rng.sample([*kept, process.broker], 3)
        rows.append({"topic": topic, "partition": partition, "replicas": wanted})
    if not rows:
        return "none"
    path = scene.cluster.base / "plan.json"
    path.write_text(json.dumps({"partitions": rows}))
    is_begun = _persist(scene, "reassign", "--execute", "--file", str(path))
    scene.count("a reassignment began" if is_begun else "a reassignment was refused")
    return f"{rows}, {'begun' if is_begun else 'refused'}"


def _leave(scene: Scene, rng: random.Random) -> str:
    """Drain a broker while it, or another one, may be killed; it leaves if the drain ended."""
    process, other = rng.sample(scene.cluster.present, 2)
    victim = rng.choice([None, None, process, other])
    killing = threading.Thread(target=_kill, args=(victim, rng.uniform(0.5, 3.0)), daemon=True)
    killing.start()
    scene.note(f"drain {process.broker}" + (f", kill {victim.broker}" if victim else ""))
    is_drained = _persist(scene, "drain", str(process.broker))
    killing.join()
    scene.count("a drain ended" if is_drained else "a drain was refused, or did not end in time")
    if not is_drained or _has_replicas(scene, process):
        return f"{process.broker} stays: it is not drained"
    if victim is not None:
        scene.count("a broker was killed during a drain that ended")
    in_order = process.is_serving and rng.random() < 0.6
    process.leave(in_order=in_order)
    scene.count("a broker left")
    return f"{process.broker} leaves {'in order' if in_order else 'by SIGKILL'}"


def _kill(process: Process | None, seconds: float) -> None:
    if process is not None:
        threading.Event().wait(seconds)
        process.kill()
        threading.Event().wait(seconds)
        process.launch()


def _has_replicas(scene: Scene, process: Process) -> bool:
    found = _placed(scene)
    is_known = {topic for topic, _, _ in found} == set(scene.topics)
    return not is_known or any(process.broker in placed.replicas for _, _, placed in found)


def _placed(scene: Scene) -> list[tuple[str, int, Placed]]:
    """Ask where each partition of each topic is; leave out topics about which nobody answers."""
    admin = Admin(scene.cluster.servers)
    return [
        (topic, partition, placed)
        for topic in scene.topics
        for partition, placed in admin.partitions(topic).items()
    ]


def _persist(scene: Scene, *words: str) -> bool:
    """Repeat a command until it succeeds, as an operator does: a dead broker may make it fail."""
    deadline = min(time.monotonic() + TOOL_SECONDS, scene.end)
    while (left := deadline - time.monotonic()) > 0:
        if _tool(scene, words, left) == 0:
            return True
        threading.Event().wait(RETRY_SECONDS)
    return False


def _tool(scene: Scene, words: Sequence[str], seconds: float) -> int:
    """Run `logstore cluster` beside the clients, and interrupt it if it takes too long."""
    command = [sys.executable, "-m", "logstore.cli", "cluster", *words]
    with (scene.cluster.base / "tools.out").open("ab") as out:
        out.write(f"--- {time.monotonic():.2f} {' '.join(words)} ---\n".encode())
        out.flush()
        child = subprocess.Popen(
            [*command, "--bootstrap-servers", scene.cluster.servers],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(),
        )  # fmt: skip
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(INTERRUPT_SECONDS)
            return LOST
        finally:
            child.kill()
            child.wait()


MEMBERS: list[Fault] = [come_and_go]
