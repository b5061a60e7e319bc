"""Step through the bytes of one message. The bytes are not trusted.

Before memory is allocated, every length is compared with the number of remaining bytes. The memory
of a decoded message is limited, too, because an array element of one byte can become an object of a
hundred bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

# The largest memory for the objects of one message. A frame of 8 MiB can need this much.
OBJECT_BYTES_MAX = 256 << 20
VARINT_MAX = 2**31 - 1

Data = bytes | bytearray | memoryview


class WireError(ValueError):
    """Report bytes that are not a message of the protocol.

    Attributes:
        position: the byte of the message at which the decoder stopped.
        path: the field that the decoder was reading, such as `topics[3].partitions`.
        reason: what is wrong at this position.
    """

    def __init__(self, position: int, reason: str, path: str = "") -> None:
        self.position = position
        self.reason = reason
        self.path = path
        super().__init__(position, reason, path)

    def __str__(self) -> str:
        where = f"byte {self.position}, {self.path}" if self.path else f"byte {self.position}"
        return f"{where}: {self.reason}"

    def inside(self, name: str) -> None:
        """Put the name of an outer field, or an array index, before the path."""
        is_joined = not self.path or self.path.startswith("[")
        self.path = name + self.path if is_joined else f"{name}.{self.path}"


class Cursor:
    """The bytes of a message, and the position up to which they were read."""

    __slots__ = ("at", "budget_bytes", "data", "end")

    def __init__(self, data: memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.budget_bytes = OBJECT_BYTES_MAX

    def refuse(self, reason: str) -> NoReturn:
        """Raise a `WireError` with the cursor's present position."""
        raise WireError(self.at, reason)

    def finish(self) -> None:
        """Check that every byte was read."""
        if self.at != self.end:
            self.refuse(f"{self.end - self.at} bytes follow the end of the message")

    def take(self, size: int) -> memoryview:
        """Step over `size` bytes; return a view of them."""
        start = self.at
        if size > self.end - start:
            self.refuse(f"{size} bytes are declared, but only {self.end - start} remain")
        self.at = start + size
        return self.data[start : start + size]

    def uvarint(self) -> int:
        """Read an unsigned varint. Refuse values above 2^31 - 1, the largest length or tag."""
        at = self.at
        value = self.data[at]
        if value >= 0x80:
            value &= 0x7F
            for shift in (7, 14, 21, 28):
                at += 1
                byte = self.data[at]
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                self.refuse("a varint has more than five bytes")
            if value > VARINT_MAX:
                self.refuse(f"the varint {value} is above {VARINT_MAX}")
        self.at = at + 1
        return value

    def tags(self) -> Iterator[tuple[int, int]]:
        """Yield each tag and the size of its data. The caller must read or skip the data."""
        count = self.uvarint()
        self.reserve(count, 2, 0)
        last = -1
        for _ in range(count):
            tag = self.uvarint()
            if tag <= last:
                self.refuse(f"the tag {tag} follows the tag {last}")
            last = tag
            size = self.uvarint()
            if size > self.end - self.at:
                self.refuse(f"{size} bytes are declared, but only {self.end - self.at} remain")
            yield tag, size

    def skip_tags(self) -> None:
        """Step over all tagged fields of a struct, because its schema has no tagged field."""
        for _, size in self.tags():
            self.at += size

    def reserve(self, count: int, size_bytes_min: int, object_bytes: int) -> None:
        """Check that enough bytes are left for an array, and enough memory for its objects."""
        left = self.end - self.at
        if count * size_bytes_min > left:
            self.refuse(f"{count} elements are declared, but only {left} bytes remain")
        self.budget_bytes -= count * object_bytes
        if self.budget_bytes < 0:
            self.refuse(f"the message expands to more than {OBJECT_BYTES_MAX} bytes")
