"""Read Kafka's numbers, which are zigzag varints: one number, or many numbers at once.

Nearly all numbers have one or two bytes. A number of one or two bytes is looked up in a table by
the two bytes at its position.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logstore.format.columnar.columns import Buffer

VARINT_BYTES_MAX = 10
# Zero padding after the last record lets a reader overrun the record safely.
# For example, a short key is read as 16 bytes.
PADDING = bytes(16)

Numbers = NDArray[np.int64]


def varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag varint; return the number and the position after it."""
    if position < len(data) and (octet := data[position]) < 0x80:  # most numbers
        return (octet >> 1) ^ -(octet & 1), position + 1
    shift = number = 0
    for end in range(position, min(position + VARINT_BYTES_MAX, len(data))):
        octet = data[end]
        number |= (octet & 0x7F) << shift
        if octet < 0x80 and number < 1 << 64:
            return (number >> 1) ^ -(number & 1), end + 1
        shift += 7
    raise ValueError("a number does not end")


@cache
def short_varints() -> tuple[Numbers, Numbers]:
    """Build two tables that map a number's first two bytes to the number and to its size.

    If the number has more than two bytes, its size in the table is 0.
    """
    low, high = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    widths = np.where(low < 0x80, 1, np.where(high < 0x80, 2, 0))
    numbers = np.where(low < 0x80, low, low & 0x7F | high << 7)
    return (numbers >> 1) ^ -(numbers & 1), widths


def pairs_of(data: bytes) -> NDArray[Any]:
    """View the two bytes at each position as one unsigned number."""
    return np.ndarray((len(data) - 1,), "<u2", data, 0, (1,))


def varints(data: bytes, position: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Read a zigzag varint at each position; return the numbers and the end of each number.

    Args:
        data: the records, with PADDING after the last record.
        ends: for each number, the end of its record.

    Raises:
        ValueError: a number has no last byte, or is longer than the rest of its record.
    """
    numbers_of, widths_of = short_varints()
    pairs = pairs_of(data)[position]
    numbers, widths = numbers_of.take(pairs), widths_of.take(pairs)
    position = position + widths
    longer = np.flatnonzero(widths == 0)
    if len(longer):
        numbers[longer], position[longer] = _long_varints(data, position[longer])
    if bool((position > ends).any()):
        raise ValueError("a number ends after the end of its record")
    return numbers, position


def _long_varints(data: bytes, position: Numbers) -> tuple[Numbers, Numbers]:
    """Read numbers of any size, one byte of each number in each step."""
    octets = np.frombuffer(data, np.uint8)
    numbers, going = np.zeros(len(position), np.int64), np.arange(len(position))
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        octet = octets[position[going]]
        numbers[going] |= (octet & 0x7F).astype(np.int64) << shift
        position[going] += 1
        going = going[octet >= (0x80 if shift < 63 else 2)]
        if not len(going):
            # Shift unsigned numbers, because the highest bit of the tenth byte is not a sign.
            halves = (numbers.view(np.uint64) >> np.uint64(1)).view(np.int64)
            return halves ^ -(numbers & 1), position
    raise ValueError("a number does not end")
