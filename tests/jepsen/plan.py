"""Draw what a random run is from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

BROKERS, SPARE = (1, 2, 3), 4
TOPIC = "orders"
INPUTS, LEDGER, OUTPUTS = "inputs", "ledger", "outputs"
RECORDS, TRANSACTIONS = "records", "transactions"
WORKLOADS = RECORDS, TRANSACTIONS


@dataclass
class Plan:
    """What a run is; all of it follows from the seed and the time.

    Attributes:
        sick: the broker with a log dir on a disk that fails; 0 if there is none.
        families: which families of faults strike, each in a thread of its own.
        keepers: how many ZooKeepers there are.
        timestamps: whose clock the records have: CreateTime or LogAppendTime.
        workload: what the clients do: they send records, or they do transactions.
        timeouts_ms: the timeouts of the transactional producers, one for each.
        transformers: how many clients consume, transform and produce.
        group: how the transformers share the partitions: an assignor, or the new group protocol.
        segment_bytes: the size of a segment of the topics with transactions.
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
    workload: str = RECORDS
    timeouts_ms: tuple[int, ...] = (4_000, 8_000, 60_000)
    transformers: int = 2
    group: str = "range"
    segment_bytes: int = 1 << 30

    @classmethod
    def of(cls, seed: int, seconds: float, workload: str = RECORDS) -> Plan:
        """Draw a plan. A seed draws the same faults for each workload.

        A disk loses records only where two replicas have each acknowledged record, and only the
        disk of one broker: the promise is about fewer than `min` lossy brokers.
        """
        rng = random.Random(seed)
        min_isr = rng.choice([1, 2, 2, 2])
        sick = rng.choice(BROKERS) if min_isr > 1 and rng.random() < 0.6 else 0
        families = rng.choice([("network",), ("processes",), ("network", "processes")])
        rate = rng.choice([20.0, 60.0, 150.0])
        own = random.Random(f"{seed} {TRANSACTIONS}")
        more = [family for family in ("clocks", "members") if rng.random() < 0.5]
        return cls(
            seed, seconds, min_isr, sick=sick, rate=rate,
            families=(*families, *more, *(["disk"] if sick else [])),
            keepers=rng.choice([1, 3]),
            timestamps=rng.choice(["CreateTime", "LogAppendTime"]),
            workload=workload,
            timeouts_ms=tuple(own.choice([3_000, 6_000, 60_000]) for _ in range(3)),
            transformers=own.choice([1, 2, 3]),
            group=own.choice(["range", "cooperative-sticky", "consumer"]),
            segment_bytes=own.choice([1 << 30, 1 << 12]),
        )  # fmt: skip

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers; the spare one is there if brokers come and go."""
        return (*BROKERS, SPARE) if "members" in self.families else BROKERS

    @property
    def topics(self) -> dict[str, int]:
        """The topics that clients write to, and how many partitions each has."""
        if self.workload == TRANSACTIONS:
            return {INPUTS: self.partitions, LEDGER: 2, OUTPUTS: self.partitions}
        return {TOPIC: self.partitions}

    def rest_seconds_max(self, family: str) -> float:
        """The longest pause between two faults of a family.

        Operators move no replica while a broker is dead. So the pauses of other families are longer
        if brokers come and go. A transaction needs several brokers, one after another. So all
        pauses are longer if clients do transactions.
        """
        if "members" in self.families and family != "members":
            return 8.0
        return 4.0 if self.workload == TRANSACTIONS else 1.5

    @property
    def keeper_nodes(self) -> tuple[str, ...]:
        """The nodes of the ZooKeepers."""
        return tuple(f"z{number + 1}" for number in range(self.keepers))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the network."""
        return (*(f"b{broker}" for broker in self.brokers), *self.keeper_nodes, "clients")
