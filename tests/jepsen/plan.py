"""Draw what a random run is from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

BROKERS, SPARE = (1, 2, 3), 4
TOPIC = "orders"


@dataclass
class Plan:
    """What a run is; all of it follows from the seed and the time.

    Attributes:
        sick: the broker with a log dir on a disk that fails; 0 if there is none.
        families: which families of faults strike, each in a thread of its own.
        keepers: how many ZooKeepers there are.
        timestamps: whose clock the records have: CreateTime or LogAppendTime.
    """

    seed: int
    seconds: float
    min_isr: int = 2
    partitions: int = 3
    writers: int = 3
    readers: int = 2
    rate: float = 60.0
    sick: int = 0
    families: tuple[str, ...] = ("network", "processes")
    session_ms: int = 3_000
    lag_ms: int = 3_000
    keepers: int = 1
    timestamps: str = "CreateTime"

    @classmethod
    def of(cls, seed: int, seconds: float) -> Plan:
        """Draw a plan.

        A disk loses records only where two replicas have each acknowledged record, and only the
        disk of one broker: the promise is about fewer than `min` lossy brokers.
        """
        rng = random.Random(seed)
        min_isr = rng.choice([1, 2, 2, 2])
        sick = rng.choice(BROKERS) if min_isr > 1 and rng.random() < 0.6 else 0
        families = rng.choice([("network",), ("processes",), ("network", "processes")])
        rate = rng.choice([20.0, 60.0, 150.0])
        more = [family for family in ("clocks", "members") if rng.random() < 0.5]
        return cls(
            seed, seconds, min_isr, sick=sick, rate=rate,
            families=(*families, *more, *(["disk"] if sick else [])),
            keepers=rng.choice([1, 3]),
            timestamps=rng.choice(["CreateTime", "LogAppendTime"]),
        )  # fmt: skip

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers; the spare one is there if brokers come and go."""
        return (*BROKERS, SPARE) if "members" in self.families else BROKERS

    def rest_seconds_max(self, family: str) -> float:
        """The longest pause between two faults of a family.

        Operators move no replica while a broker is dead. So the pauses of other families are longer
        if brokers come and go.
        """
        return 8.0 if "members" in self.families and family != "members" else 1.5

    @property
    def keeper_nodes(self) -> tuple[str, ...]:
        """The nodes of the ZooKeepers."""
        return tuple(f"z{number + 1}" for number in range(self.keepers))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the network."""
        return (*(f"b{broker}" for broker in self.brokers), *self.keeper_nodes, "clients")
