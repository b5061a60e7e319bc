"""Know what a log may hold after a kill, from what its writer said on the pipe.

Everything acknowledged must be there. What was announced and not acknowledged may be there, whole
or, for a truncation or a deletion, as far as it came. Nothing else may.
"""

from __future__ import annotations

from support.writer import value_of


class Violation(AssertionError):
    """Says which promise a log broke."""


class Expectation:
    """The records a log must and may hold; `settle` replaces them by those it does hold."""

    def __init__(self) -> None:
        self.start, self.records = 0, {0: b""}
        self.records.clear()
        self.end = 0
        self.pending: dict[tuple[str, ...], None] = {}
        self.life = 0

    def begin(self, life: int) -> None:
        """Begin to follow the next writer."""
        self.life, self.pending = life, {}

    def hear(self, line: bytes) -> None:
        """Take in one line of the pipe."""
        kind, *words = line.decode().split()
        if kind == "I":
            self.pending[tuple(words)] = None
            return
        operation = words[0]
        if operation == "extend":
            number, count, offset = map(int, words[1:])
            del self.pending[tuple(words[:3])]
            for i in range(count):
                if offset + i in self.records:
                    raise Violation(f"offset {offset + i} was given twice")
                self.records[offset + i] = value_of(self.life, number + i)
            self.end = max(self.end, offset + count)
            return
        del self.pending[tuple(words)]
        offset = int(words[1])
        if operation == "truncate":
            self.records = {o: v for o, v in self.records.items() if o < offset}
            self.end = offset
        else:
            self.records = {o: v for o, v in self.records.items() if o >= offset}
            self.start = max(self.start, offset)
            self.end = max(self.end, self.start)

    def settle(self, start: int, end: int, found: list[tuple[int, bytes]]) -> None:
        """Hold what a log has against what it may have; it is the truth from here on."""
        start_max, end_min, may_come = self.start, self.end, {}
        for words in self.pending:
            if words[0] == "truncate":
                end_min = min(end_min, int(words[1]))
            elif words[0] == "delete":
                start_max = max(start_max, int(words[1]))
            else:
                first, count = int(words[1]), int(words[2])
                may_come[value_of(self.life, first)] = (first, count)
        if not self.start <= start <= start_max:
            raise Violation(f"log start offset {start}, not in {self.start}..{start_max}")
        if end < end_min:
            raise Violation(f"log end offset {end}, acknowledged up to {end_min}")
        offsets = [offset for offset, _ in found]
        if offsets != list(range(start, end)):
            raise Violation(f"{len(offsets)} records for offsets {start}..{end}")
        position = 0
        while position < len(found):
            offset, value = found[position]
            known = self.records.get(offset)
            if known is not None:
                if known != value:
                    raise Violation(f"offset {offset} has {value[:20]!r}, not {known[:20]!r}")
                position += 1
                continue
            if value not in may_come:
                raise Violation(f"offset {offset} has {value[:20]!r}, which was not appended there")
            first, count = may_come.pop(value)
            batch = [value for _, value in found[position : position + count]]
            if batch != [value_of(self.life, n) for n in range(first, first + count)]:
                raise Violation(f"a part of an unacknowledged batch stands at offset {offset}")
            position += count
        self.start, self.end, self.records = start, end, dict(found)
        self.pending = {}
