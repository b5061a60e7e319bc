"""Break and mend things at random, in one thread for each family of faults.

Some faults are over before anybody notices, some outlast a session of ZooKeeper.
"""

from __future__ import annotations

import random
import threading
import time

from jepsen.clock_faults import CLOCKS
from jepsen.disk_faults import DISK
from jepsen.faults import (
    NETWORK,
    NETWORK_OF_ENSEMBLE,
    PROCESSES,
    PROCESSES_OF_ENSEMBLE,
)
from jepsen.member_faults import MEMBERS
from jepsen.plan import Plan
from jepsen.scene import Fault, Scene

HOLD_SECONDS = (0.1, 1.5), (1.5, 8.0)
REST_SECONDS_MIN = 0.1
FAMILIES: dict[str, list[Fault]] = {
    "network": NETWORK,
    "processes": PROCESSES,
    "disk": DISK,
    "clocks": CLOCKS,
    "members": MEMBERS,
}
OF_ENSEMBLE = {"network": NETWORK_OF_ENSEMBLE, "processes": PROCESSES_OF_ENSEMBLE}


def faults_of(family: str, keepers: int) -> list[Fault]:
    """List the faults of a family, as often as each is to be drawn."""
    return [*FAMILIES[family], *(OF_ENSEMBLE.get(family, []) if keepers > 1 else [])]


class Nemesis:
    """Breaks and mends things of one family in a thread, until the time is over.

    Attributes:
        counts: how often each fault was there.
        error: why the thread ended early.
    """

    def __init__(self, scene: Scene, family: str, plan: Plan) -> None:
        self._scene, self._rng = scene, random.Random(f"{plan.seed} {family}")
        self._faults = faults_of(family, len(scene.cluster.zookeeper.nodes))
        self._rest_seconds = REST_SECONDS_MIN, plan.rest_seconds_max(family)
        self._pause = threading.Event()
        self.counts: dict[str, int] = {}
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=family, daemon=True)

    def _run(self) -> None:
        try:
            while self._wait(self._rest_seconds):
                self._one(self._rng.choice(self._faults))
        except (OSError, AssertionError) as error:
            self.error = error

    def _one(self, fault: Fault) -> None:
        steps = fault(self._scene, self._rng)
        told = next(steps)
        self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
        self._scene.note(told)
        self._wait(self._rng.choice(HOLD_SECONDS))
        for _ in steps:
            raise AssertionError("a fault is mended in one step")
        self._scene.note(f"mended: {told}")

    def _wait(self, seconds: tuple[float, float]) -> bool:
        """Wait for a random time, but not beyond the end; return whether time is left."""
        self._pause.wait(
            min(self._rng.uniform(*seconds), max(0.0, self._scene.end - time.monotonic()))
        )
        return time.monotonic() < self._scene.end
