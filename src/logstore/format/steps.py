"""Divide long work into steps of less than a millisecond, so that other threads run in between.

A function that works in steps is a generator, which yields None after each step and returns its
result. NumPy, the codecs and the checksums release the interpreter's lock while they work, so only
loops over Python objects have to be divided.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from logstore.format.columnar.columns import Buffer

T = TypeVar("T")
Steps = Generator[None, None, T]

STEP_CELLS = 512  # cutting this many slices from bytes takes about 0.1 ms


TURN_SECONDS = 0.0001  # a thread works for at least this time before it lets other threads run


def run(steps: Steps[T]) -> T:
    """Run all steps of some work; let other threads run after each `TURN_SECONDS`."""
    began = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if time.perf_counter() - began > TURN_SECONDS:
            time.sleep(0)
            began = time.perf_counter()


def cut(data: Buffer, edges: NDArray[np.int64], keep: NDArray[np.bool_]) -> Steps[list[Buffer]]:
    """Return the selected parts of a buffer, which consists of adjacent parts.

    Args:
        edges: the start of each part, and the end of the last part: shape (n + 1,).
        keep: whether each part is selected: shape (n,). Selected parts that are adjacent become one
            part of the result.
    """
    framed = np.zeros(len(keep) + 2, np.bool_)
    framed[1:-1] = keep
    turns = edges[np.flatnonzero(framed[1:] != framed[:-1])]
    found: list[Buffer] = []
    for first in range(0, len(turns), 2 * STEP_CELLS):
        places = turns[first : first + 2 * STEP_CELLS].tolist()
        found += [data[a:b] for a, b in zip(places[0::2], places[1::2], strict=True)]
        yield
    return found
