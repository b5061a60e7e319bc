"""Describe the outcome of an append of encoded batches: the offsets, or an exception.

Each exception that such an append raises has the attribute `is_written` (see `LogStoreError`). So a
caller knows whether it can append the batches again. The attribute is set first by the code that
knows the outcome best. Later code does not change the attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.errors import LogStoreError

NO_TIMESTAMP = -1


class AppendInfo:
    """The place of the appended batches in the log; equals `range(base_offset, last_offset + 1)`.

    Attributes:
        base_offset, last_offset: the first and the last offset of all batches together. If there
            were no batches, `last_offset` is one less than `base_offset`.
        log_append_time: the timestamp that all records got, in ms; -1 if the records keep their own
            timestamps.
        log_start_offset: the log start after the append.
        max_timestamp: the largest timestamp of the records; -1 if there are no records.
    """

    __slots__ = (
        "base_offset",
        "last_offset",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time: int,
        log_start_offset: int,
        max_timestamp: int,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.max_timestamp = max_timestamp

    @property
    def offsets(self) -> range:
        """The offsets of the batches; some of these offsets may have no record."""
        return range(self.base_offset, self.last_offset + 1)

    @property
    def start(self) -> int:
        """The first offset, like the attribute `start` of a range."""
        return self.base_offset

    @property
    def stop(self) -> int:
        """The offset after the last offset, like the attribute `stop` of a range."""
        return self.last_offset + 1

    def __iter__(self) -> Iterator[int]:
        return iter(self.offsets)

    def __len__(self) -> int:
        return self.last_offset + 1 - self.base_offset

    def __getitem__(self, index: Any) -> Any:
        return self.offsets[index]

    def __contains__(self, offset: object) -> bool:
        return offset in self.offsets

    def __eq__(self, other: object) -> bool:
        if isinstance(other, range):
            return self.offsets == other
        if not isinstance(other, AppendInfo):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(self.offsets)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"AppendInfo({facts})"


def mark(error: BaseException, is_written: bool | None) -> None:
    """Set `is_written` of an exception, unless it is set already."""
    facts = vars(error)
    if "is_written" in facts:
        return
    facts["is_written"] = is_written
    if is_written:
        error.add_note("all batches are in the log: do not append them again")
    elif is_written is None:
        error.add_note("the batches may be in the log or not: open the log again and look")
    elif not isinstance(error, LogStoreError | ValueError | TypeError):
        error.add_note("no batch was appended")
