"""Copy batches of either layout with only some of their records.

Only Kafka's layout has transactions: a batch can belong to a transaction, and a control batch ends
a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import subset as columnar
from logstore.format.columnar.columns import Buffer
from logstore.format.steps import Steps

TRANSACTIONAL, CONTROL = 0x10, 0x20  # bits of the attributes in Kafka's layout

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Group(Protocol):
    """Hold some decoded batches; the records of all batches are numbered together, from 0."""

    firsts: Numbers

    def offsets(self) -> Numbers:
        """Return the offsets of all records."""

    def is_null(self) -> Mask:
        """Return a mask of the records whose value is null."""

    def keys(self) -> tuple[bytes, Numbers, Numbers]:
        """Return a buffer with all keys, and each key's start and size; a null key has size -1."""

    def subset(self, number: int, keep: Mask, horizon_ms: int | None) -> Steps[bytes]:
        """Copy a batch with only the records that `keep` selects; set the copy's delete horizon."""


def _layout(header: BatchHeader) -> ModuleType:
    if header.magic != layouts.KAFKA_MAGIC:
        return columnar
    layouts.kafka_layout()  # raises the error if the extra `kafka` is not installed
    from logstore.format.kafka import subset as kafka

    return kafka


def group_of(
    data: Buffer,
    run: Sequence[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    checks_headers: bool = True,
) -> Steps[Group]:
    """Decode the parts of batches that compaction needs.

    All batches must have the same layout, and each batch must have a record.

    Args:
        run: the position of each batch in `data`, and its header.
        checks_headers: whether to check the record headers in Kafka's layout too. In the columnar
            layout, record headers are always checked.

    Raises:
        ValueError: the parts of a batch contradict each other.
        RecordExpansionError: a batch needs more memory than allowed.
        UnsupportedFormatError: a codec's library is not installed.
    """
    layout = _layout(run[0][1])
    group: Group = yield from layout.group_of(
        data, run, expansion_bytes_max, checks_headers=checks_headers
    )
    return group


def delete_horizons_ms(data: Buffer, run: Sequence[tuple[int, BatchHeader]]) -> list[int | None]:
    """Return, for each batch, the time (ms) after which compaction may remove its tombstones.

    If a batch has no delete horizon, its time is None.

    Args:
        run: the place of each batch in `data`, and its header; there is at least one batch.
    """
    horizons: list[int | None] = _layout(run[0][1]).delete_horizons_ms(data, run)
    return horizons


def empty(header: BatchHeader) -> bytes:
    """Create a batch that has no records, but the offsets and the producer of another batch."""
    data: bytes = _layout(header).empty(header)
    return data


def is_transactional(header: BatchHeader) -> bool:
    """Report whether a batch belongs to a transaction, or ends a transaction."""
    return header.magic == layouts.KAFKA_MAGIC and bool(header.attributes & TRANSACTIONAL)


def is_control(header: BatchHeader) -> bool:
    """Report whether a batch is a control batch."""
    return header.magic == layouts.KAFKA_MAGIC and bool(header.attributes & CONTROL)


def must_follow(header: BatchHeader) -> bool:
    """Report whether the layout forbids gaps between the offsets of consecutive batches."""
    return header.magic != layouts.KAFKA_MAGIC
