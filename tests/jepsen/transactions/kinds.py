"""Name the events of a history with transactions, and the values of its records.

    init         invoke, ok, info: a producer begins to use the transactional id in `value`
    write        invoke, ok, info: a producer sends a record in its transaction
    take         ok: a transformer read these records, for the transaction in `value`
    offsets      invoke, ok, info: a transformer adds its next offset to the transaction in `value`
    commit       invoke, ok, info: a producer asks for the commit of the transaction in `value`
    abort        invoke, ok, info: a producer asks for the abort of the transaction in `value`
    poll         ok: a consumer of committed records read these records while the run lasted
    committed    ok: all committed records of a partition, after all faults had ended
    uncommitted  ok: all records of a partition, after all faults had ended
    group        ok: the committed offset of the group of transformers, after the end
    end          ok: the last stable offset of a partition; `value` is its high watermark

`info` means that nobody knows whether it was done. Process `last` reads from the leaders. Process
`rack` reads from the replicas in one rack, and process `b1` is the log of a stopped broker.

A producer is `<transactional id>.<life>`, and each new life replaces the life before. A transaction
is `<producer>:<number>`, a record `<transaction>:<index>`. An output of a transformer also names
its input: `<record>|<partition>@<offset>|<input>`.
"""

from __future__ import annotations

from typing import NamedTuple

LAST = "last"
LAST_READS = ("committed", "uncommitted")
COMMITTED_READS = ("poll", "take", "committed")


class Source(NamedTuple):
    """The input that an output was made of."""

    partition: int
    offset: int
    value: str


def output_of(record: str, source: Source) -> str:
    """Name the output of a transformer."""
    return f"{record}|{source.partition}@{source.offset}|{source.value}"


def source_of(value: str) -> Source:
    """Find the input of an output."""
    _, place, held = value.split("|", 2)
    partition, _, offset = place.partition("@")
    return Source(int(partition), int(offset), held)


def transaction_of(value: str) -> str:
    """Find the transaction of a record."""
    return value.split("|", 1)[0].rpartition(":")[0]


def producer_of(transaction: str) -> str:
    """Find the producer of a transaction."""
    return transaction.rpartition(":")[0]


def id_of(producer: str) -> str:
    """Find the transactional id of a producer."""
    return producer.rpartition(".")[0]


def order_of(value: str) -> tuple[str, tuple[int, int, int]]:
    """Find the transactional id of a record, and its place among all records of this id."""
    transaction, _, index = value.split("|", 1)[0].rpartition(":")
    producer, _, number = transaction.rpartition(":")
    name, _, life = producer.rpartition(".")
    return name, (int(life), int(number), int(index))
