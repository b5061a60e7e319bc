"""Hold what all steps share: the world, and how often each fault may happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster_sim.world import World

Step = tuple[Any, ...]


class StepsBase:
    """The steps of one world."""

    def __init__(self, world: World, faults: Mapping[str, int]) -> None:
        self.world, self.faults = world, faults

    def _near(self, *, is_up: bool) -> Iterator[Step]:
        for m, broker in self.world.brokers.items():
            if broker.is_up == is_up and m not in self.world.cut:
                yield (m,)
