"""Judge the transformers of a history: each committed input has exactly one committed output.

| anomaly | what was found |
|---|---|
| transformed twice | two committed outputs were made of one input |
| not transformed | a committed input has no committed output |
| wrong input | a committed output was made of an input that is not committed |
| wrong offsets | the offset of the group is not the one that the last transaction committed |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from jepsen.history import Event, Record
from jepsen.plan import INPUTS, OUTPUTS
from jepsen.transactions.kinds import Source, source_of
from jepsen.transactions.outcomes import COMMITTED, Place, Transaction, place_of

Found = Iterator[tuple[str, Place, str]]


def untrue_transformations(
    events: Sequence[Event],
    transactions: Mapping[str, Transaction],
    committed: Mapping[Place, Sequence[Record]],
) -> Found:
    """Compare the committed outputs with the committed inputs, and with the group's offsets."""
    sent = {value for one in transactions.values() for value in one.records}
    outputs: dict[Source, list[str]] = defaultdict(list)
    for (topic, _), log in committed.items():
        for _, value in log if topic == OUTPUTS else ():
            if value in sent:
                outputs[source_of(value)].append(value)
    inputs = {
        Source(partition, offset, value)
        for (topic, partition), log in committed.items()
        for offset, value in log
        if topic == INPUTS
    }
    for source, made in outputs.items():
        if len(made) > 1:
            yield "transformed twice", (INPUTS, source.partition), f"{source} became {made}"
        if source not in inputs:
            yield "wrong input", (INPUTS, source.partition), f"{made[0]} was made of {source}"
    for source in sorted(inputs - outputs.keys()):
        yield "not transformed", (INPUTS, source.partition), str(source)
    yield from _wrong_offsets(events, transactions, committed)


def _wrong_offsets(
    events: Sequence[Event],
    transactions: Mapping[str, Transaction],
    committed: Mapping[Place, Sequence[Record]],
) -> Found:
    """Compare the offsets of the group with those of the transactions whose outputs are there."""
    there = {value for log in committed.values() for _, value in log}
    latest: dict[Place, tuple[int, str]] = {}
    for one in transactions.values():
        is_there = one.outcome == COMMITTED or any(value in there for value in one.records)
        for place, offset in one.offsets.items() if is_there else ():
            latest[place] = max(latest.get(place, (-1, "")), (offset, one.name))
    for event in events:
        if event.what == "group":
            offset, name = latest.get(place_of(event), (-1, "no transaction"))
            if event.offset != offset:
                text = f"the group is at {event.offset}, and {name} committed {offset}"
                yield "wrong offsets", place_of(event), text
