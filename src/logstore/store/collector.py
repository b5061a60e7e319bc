"""Switch Python's cyclic garbage collector off while many logs are loaded.

The objects that a start makes stay in use, so nothing can be collected. If the collector ran, each
of its runs would examine all these objects. In a start with 10,000 partitions, this would take a
fifth of the time.
"""

from __future__ import annotations

import gc
import threading


class _Rest:
    """A `with` block in which no collection begins; the blocks of several threads may overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._is_ours = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._is_ours = gc.isenabled()  # False if the program switched the collector off
                gc.disable()
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._is_ours:
                gc.enable()


AT_REST = _Rest()
