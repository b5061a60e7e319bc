"""Write to a log at random and say so on a pipe, before and after each operation.

    I <operation>     about to be done          A <operation>     acknowledged

One line each, written with one `write` call, so that a kill never tears a line. Every value names
the life and the number of its record, so an invented or a doubled record is recognised.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

FILLER = bytes(range(256)) * 8


def value_of(life: int, number: int) -> bytes:
    """Make the value of a record: all lives and numbers differ, sizes vary."""
    return b"%d.%d." % (life, number) + FILLER[number % 97 : number % 97 + number * 37 % 300]


class Writer:
    """Does random operations on a log until it is killed."""

    def __init__(self, log: Any, life: int, rng: random.Random, fd: int) -> None:
        self.log, self.life, self.rng, self.fd = log, life, rng, fd
        self.number = 0
        self.lock = threading.Lock()

    def say(self, *words: object) -> None:
        os.write(self.fd, (" ".join(map(str, words)) + "\n").encode())

    def numbers(self, count: int) -> tuple[int, list[bytes]]:
        with self.lock:
            first, self.number = self.number, self.number + count
        return first, [value_of(self.life, n) for n in range(first, first + count)]

    def append(self, is_durable: bool) -> None:
        number, (value,) = self.numbers(1)
        self.say("I", "extend", number, 1)
        offset = self.log.append(value, durable=is_durable)
        self.say("A", "extend", number, 1, offset)

    def extend(self, count: int, is_durable: bool) -> None:
        number, values = self.numbers(count)
        self.say("I", "extend", number, count)
        offsets = self.log.extend(values, durable=is_durable)
        assert len(offsets) == count
        self.say("A", "extend", number, count, offsets[0])

    def truncate(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = self.rng.randint(max(start, end - 60), end)
        self.say("I", "truncate", offset)
        self.log.truncate_to(offset)
        self.say("A", "truncate", offset)

    def delete(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = self.rng.randint(start, end)
        self.say("I", "delete", offset)
        self.log.delete_records_before(offset)
        self.say("A", "delete", offset)

    def run(self) -> None:
        """Write, roll, truncate and delete for ever."""
        while True:
            dice = self.rng.random()
            if dice < 0.55:
                self.append(is_durable=dice < 0.05)
            elif dice < 0.85:
                self.extend(self.rng.randint(1, 40), is_durable=dice < 0.60)
            elif dice < 0.92:
                self.log.flush()
            elif dice < 0.97:
                self.truncate()
            else:
                self.delete()

    def run_threads(self, count: int) -> None:
        """Append for ever from several threads, durably and not, so that commits are grouped."""

        def work(seed: float) -> None:
            rng = random.Random(seed)
            while True:
                if rng.random() < 0.6:
                    self.append(is_durable=rng.random() < 0.7)
                else:
                    self.extend(rng.randint(1, 10), is_durable=rng.random() < 0.7)

        seeds = [self.rng.random() for _ in range(count - 1)]
        for seed in seeds:
            threading.Thread(target=work, args=(seed,), daemon=True).start()
        work(self.rng.random())
