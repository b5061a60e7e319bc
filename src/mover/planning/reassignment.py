"""Write and read moves in the JSON format of kafka-reassign-partitions.

    {"version": 1, "partitions": [
      {"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": ["/disk2/logs"]}]}

`replicas` are broker ids. `log_dirs` has one entry for each broker id: an absolute path, or "any",
which asks for no move (KIP-113, "Scripts"). Only the entries of this store's broker are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from logstore.names import validate_partition, validate_topic
from mover.planning.planned_move import PlannedMove, SkippedMove

VERSION = 1
ANY = "any"


def to_json(moves: Iterable[PlannedMove], broker_id: int, indent: int | None = None) -> str:
    """Write moves as JSON; the order in the document is the order of the plan."""
    partitions = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": [broker_id],
            "log_dirs": [move.target],
        }
        for move in moves
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, indent=indent)


def from_json(
    text: str | bytes, broker_id: int | None
) -> tuple[tuple[PlannedMove, ...], tuple[SkippedMove, ...], int]:
    """Return the moves, the entries that ask this broker for no move, and the broker's id.

    Raises:
        ValueError: the document, or one of its entries, is not valid.
    """
    entries = [_Entry(place, each) for place, each in enumerate(_partitions(text))]
    if broker_id is None:
        named = sorted({replica for entry in entries for replica in entry.replicas})
        if len(named) > 1:
            raise ValueError(f"the document names the brokers {named}: give the id of this broker")
        broker_id = named[0] if named else 0
    _check_once(entries)
    moves: list[PlannedMove] = []
    skipped: list[SkippedMove] = []
    for entry in entries:
        one = entry.read(broker_id)
        if isinstance(one, SkippedMove):
            skipped.append(one)
        else:
            moves.append(one)
    return tuple(moves), tuple(skipped), broker_id


def _partitions(text: str | bytes) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError('this is not a reassignment: there is no list "partitions"')
    version = document.get("version", VERSION)
    if version != VERSION:
        raise ValueError(
            f"reassignment version {version!r} is unknown: only version {VERSION} can be read"
        )
    partitions: list[Any] = document["partitions"]
    return partitions


def _check_once(entries: Sequence[_Entry]) -> None:
    seen: dict[tuple[str, int], int] = {}
    for entry in entries:
        first = seen.setdefault((entry.topic, entry.partition), entry.place)
        if first != entry.place:
            raise ValueError(f"{entry.name} is named twice, at {first} and at {entry.place}")


class _Entry:
    """Check one element of the list "partitions"; a ValueError names the place of a fault."""

    def __init__(self, place: int, entry: Any) -> None:
        self.place = place
        self.name = f"partitions[{place}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{self.name} is {entry!r}, not an object")
        try:
            self.topic = validate_topic(entry["topic"])
            self.partition = validate_partition(entry["partition"])
        except KeyError as error:
            raise ValueError(f"{self.name} has no {error}") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.name}: {error}") from None
        self.name = f"partitions[{place}] ({self.topic}-{self.partition})"
        self.replicas = self._list(entry, "replicas", int)
        self.log_dirs = self._list(entry, "log_dirs", str, [ANY] * len(self.replicas))
        if len(self.replicas) != len(self.log_dirs):
            raise ValueError(
                f"{self.name} has {len(self.replicas)} replicas, but {len(self.log_dirs)} log_dirs"
            )
        for log_dir in self.log_dirs:
            if log_dir != ANY and not log_dir.startswith("/"):
                raise ValueError(f'{self.name}: {log_dir!r} is neither "any" nor an absolute path')

    def _list(self, entry: Any, key: str, kind: type, default: Any = None) -> list[Any]:
        cells = entry.get(key, default)
        if not isinstance(cells, list) or not all(type(cell) is kind for cell in cells):
            raise ValueError(f'{self.name}: "{key}" is not a list of {kind.__name__}: {cells!r}')
        return cells

    def read(self, broker_id: int) -> PlannedMove | SkippedMove:
        """Return the move that this entry requests from a broker, or why there is no move."""
        if broker_id not in self.replicas:
            reason = f"broker {broker_id} is not among the replicas {self.replicas}"
            return SkippedMove("", reason, self.topic, self.partition)
        target = self.log_dirs[self.replicas.index(broker_id)]
        if target == ANY:
            reason = "the document accepts any log dir for this replica"
            return SkippedMove("", reason, self.topic, self.partition, is_unasked=True)
        return PlannedMove(self.topic, self.partition, target)
