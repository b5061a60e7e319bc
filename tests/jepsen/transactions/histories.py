"""Make histories as a cluster without faults gives them, but some answers are lost."""

from __future__ import annotations

import random
from collections import defaultdict

from jepsen.history import Event, History, Record
from jepsen.plan import INPUTS, LEDGER, OUTPUTS
from jepsen.transactions.kinds import LAST, Source, output_of
from jepsen.transactions.outcomes import Place

PLACES: list[Place] = [(INPUTS, 0), (INPUTS, 1), (LEDGER, 0), (OUTPUTS, 0), (OUTPUTS, 1)]
WRITERS, RECORDS_MAX = 3, 8
UNHEARD = ["commits unheard", "aborts unheard"]
ENDINGS = [*["commit"] * 6, *["abort"] * 2, "abandon", "fenced", *UNHEARD, *UNHEARD] * 2


class Simulation:
    """A cluster that keeps its promises.

    Attributes:
        logs: all records of each partition.
        committed: the committed records of each partition.
    """

    def __init__(self, seed: int) -> None:
        self.history, self.rng = History(), random.Random(seed)
        self.logs: dict[Place, list[Record]] = {place: [] for place in PLACES}
        self.committed: dict[Place, list[Record]] = {place: [] for place in PLACES}
        self._ends: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self._lives: dict[str, int] = {}
        self._numbers: dict[str, int] = defaultdict(int)
        self._positions = {(INPUTS, 0): 0, (INPUTS, 1): 0}

    def replace(self, name: str) -> str:
        """Begin the next life of a transactional id."""
        self._lives[name] = self._lives.get(name, -1) + 1
        producer = f"{name}.{self._lives[name]}"
        for kind in ("invoke", "ok"):
            self.history.add(producer, "init", kind, value=name)
        return producer

    def transact(self, name: str, ending: str) -> None:
        """Let a writer do a transaction."""
        producer = f"{name}.{self._lives[name]}"
        places = [self.rng.choice(PLACES[:3]) for _ in range(self.rng.randint(2, RECORDS_MAX))]
        transaction = self._begin(producer)
        pairs = [(place, f"{transaction}:{number}") for number, place in enumerate(places)]
        self._end(producer, transaction, self._write(producer, pairs), ending)
        if ending in ("abandon", "fenced"):
            self.replace(name)
        if ending == "fenced":
            for kind in ("invoke", "info"):
                self.history.add(producer, "commit", kind, value=transaction)

    def transform(self, name: str) -> None:
        """Let a transformer do a transaction with the next inputs."""
        producer, place = f"{name}.{self._lives[name]}", self.rng.choice(PLACES[:2])
        first = self._positions[place]
        taken = [one for one in self.committed[place] if one[0] >= first][:RECORDS_MAX]
        if not taken:
            return
        transaction, (topic, partition) = self._begin(producer), place
        self.history.add(producer, "take", "ok", partition, transaction, -1, taken, topic)
        pairs = [
            (
                self.rng.choice(PLACES[3:]),
                output_of(f"{transaction}:{number}", Source(partition, *one)),
            )
            for number, one in enumerate(taken)
        ]
        offset = taken[-1][0] + 1
        for kind in ("invoke", "ok"):
            self.history.add(producer, "offsets", kind, partition, transaction, offset, (), topic)
        ending = self.rng.choice(["commit", "commit", "commit", "abort", "commits unheard"])
        if self._end(producer, transaction, self._write(producer, pairs), ending):
            self._positions[place] = offset

    def _begin(self, producer: str) -> str:
        self._numbers[producer] += 1
        return f"{producer}:{self._numbers[producer] - 1}"

    def _write(self, producer: str, pairs: list[tuple[Place, str]]) -> list[tuple[Place, Record]]:
        done = []
        for (topic, partition), value in pairs:
            record = (self._ends[topic, partition], value)
            self._ends[topic, partition] += 1
            self.logs[topic, partition].append(record)
            self.history.add(producer, "write", "invoke", partition, value, topic=topic)
            is_heard = self.rng.random() < 0.9
            self.history.add(
                producer, "write", "ok", partition, value, record[0] if is_heard else -1, (), topic
            )
            done.append(((topic, partition), record))
        return done

    def _end(
        self, producer: str, transaction: str, records: list[tuple[Place, Record]], ending: str
    ) -> bool:
        is_commit = ending.startswith("commit")
        for place, record in records if is_commit else ():
            self.committed[place].append(record)
        for place in {place for place, _ in records}:
            self._ends[place] += 1  # the marker
        if ending in ("abandon", "fenced"):
            return False
        asked = "abort" if ending == "abort" else "commit"
        for kind in ("invoke", "info" if "unheard" in ending else "ok"):
            self.history.add(producer, asked, kind, value=transaction)
        return is_commit

    def poll(self) -> None:
        """Let a new session read a partition from its first offset on."""
        name, place = f"r{self.rng.random()}", self.rng.choice(PLACES)
        records = self.committed[place]
        middle, end = sorted(self.rng.randint(0, len(records)) for _ in "ab")
        for part in (records[:middle], records[middle:end]):
            self.history.add(name, "poll", "ok", place[1], records=part, topic=place[0])

    def finish(self) -> None:
        """Read everything for the last time."""
        while any(
            offset >= self._positions[place]
            for place in self._positions
            for offset, _ in self.committed[place]
        ):
            self.transform("t0")
        for place in PLACES:
            for name in (LAST, f"{LAST} in r1", "b1", "b2"):
                for what, logs in (("committed", self.committed), ("uncommitted", self.logs)):
                    self.history.add(name, what, "ok", place[1], "", -1, logs[place], place[0])
            self.history.add(
                "slow", "poll", "ok", place[1], "", -1, self.committed[place], place[0]
            )
            end = self._ends[place]
            self.history.add(LAST, "end", "ok", place[1], str(end), end, (), place[0])
        for (topic, partition), offset in self._positions.items():
            offset = offset or -1
            self.history.add(LAST, "group", "ok", partition, "", offset, (), topic)


def good_history(seed: int) -> list[Event]:
    """Make a history without an anomaly."""
    cluster = Simulation(seed)
    names = [f"w{number}" for number in range(WRITERS)]
    for name in (*names, "t0", "t1"):
        cluster.replace(name)
    for ending in cluster.rng.sample(ENDINGS, len(ENDINGS)):
        cluster.transact(cluster.rng.choice(names), ending)
        cluster.transform(cluster.rng.choice(["t0", "t1"]))
        if cluster.rng.random() < 0.3:
            cluster.poll()
    cluster.finish()
    return cluster.history.events
