"""Copy batches of either layout with only some of their records; choose by the layout.

Only Kafka's layout knows transactions: its batches may belong to one, and a control batch ends one.
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

TRANSACTIONAL, CONTROL = 0x10, 0x20  # of the attributes, in Kafka's layout

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Group(Protocol):
    """Some decoded batches, with the records of all of them in one row of numbers."""

    firsts: Numbers

    def offsets(self) -> Numbers:
        """Return the offsets of all records."""

    def is_null(self) -> Mask:
        """Report which values are null."""

    def keys(self) -> tuple[bytes, Numbers, Numbers]:
        """Return a buffer with all keys, and the start and size of each; a size of -1 is null."""

    def subset(self, number: int, keep: Mask, horizon_ms: int | None) -> Steps[bytes]:
        """Copy a batch with the records of a mask, and with a delete horizon."""


def _layout(header: BatchHeader) -> ModuleType:
    if header.magic != layouts.KAFKA_MAGIC:
        return columnar
    layouts.kafka_layout()  # its error names the extra that is not installed
    from logstore.format.kafka import subset as kafka

    return kafka


def group_of(
    data: Buffer,
    run: Sequence[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    checks_headers: bool = True,
) -> Steps[Group]:
    """Decode batches of one layout as far as compaction needs; each has at least one record.

    Args:
        run: the place of each batch in `data`, and its header.
        checks_headers: also check record headers where they are not part of the copying.

    Raises:
        ValueError: a batch contradicts itself; RecordExpansionError if it is too large.
        UnsupportedFormatError: a codec's library is not installed.
    """
    layout = _layout(run[0][1])
    group: Group = yield from layout.group_of(
        data, run, expansion_bytes_max, checks_headers=checks_headers
    )
    return group


def delete_horizon_ms(data: Buffer, position: int, header: BatchHeader) -> int | None:
    """Return from when on the tombstones of a batch may go; None if no cleaning kept them yet."""
    horizon_ms: int | None = _layout(header).delete_horizon_ms(data, position, header)
    return horizon_ms


def empty(header: BatchHeader) -> bytes:
    """Create a batch without records that keeps the offsets and the producer of another."""
    data: bytes = _layout(header).empty(header)
    return data


def is_transactional(header: BatchHeader) -> bool:
    """Report whether a batch belongs to a transaction, or ends one."""
    return header.magic == layouts.KAFKA_MAGIC and bool(header.attributes & TRANSACTIONAL)


def is_control(header: BatchHeader) -> bool:
    """Report whether a batch is a control batch."""
    return header.magic == layouts.KAFKA_MAGIC and bool(header.attributes & CONTROL)


def must_follow(header: BatchHeader) -> bool:
    """Report whether the layout allows no gap of offsets between two batches."""
    return header.magic != layouts.KAFKA_MAGIC
