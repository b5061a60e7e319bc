"""Define the parts of a record batch: the fields of its header, and its columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.columnar.columns import BytesColumn


class BatchHeader(NamedTuple):
    """Hold the fields of a batch's header; docs/FORMAT.md explains each field."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    attributes: int
    record_count: int
    last_offset: int
    stored_bytes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    payload_bytes: int


class Columns(NamedTuple):
    """Hold the decoded columns of a batch; a column that the batch does not need is None."""

    values: BytesColumn
    keys: BytesColumn | None
    timestamps: NDArray[np.int64] | None
    offset_deltas: NDArray[np.uint32] | None
    header_starts: NDArray[np.uint32] | None
    header_names: BytesColumn | None
    header_values: BytesColumn | None
