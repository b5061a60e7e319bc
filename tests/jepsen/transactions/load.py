"""All clients of a run with transactions, each in a thread, and what became of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping

from jepsen.clients import SECONDS
from jepsen.history import History
from jepsen.plan import INPUTS, Plan
from jepsen.transactions.outcomes import Place
from jepsen.transactions.producers import Clock
from jepsen.transactions.readers import SessionReader, group_offsets
from jepsen.transactions.transformers import Transformer
from jepsen.transactions.writers import Count, Writer

LOOK_SECONDS, DRAIN_SECONDS = 0.5, 120.0
HUNG = "a transformer hung in a call of librdkafka"


class Load:
    """Writers, transformers and readers, for as long as a run lasts.

    Attributes:
        unsettled: what did not end as it should.
        errors: the errors that clients of librdkafka had.
    """

    def __init__(self, servers: str, history: History, plan: Plan, count: Count) -> None:
        self._servers, self._plan, self._count = servers, plan, count
        self._clock, self._readers_clock = Clock(), Clock()
        self._writers = [
            Writer(servers, history, self._clock, plan, number, count)
            for number in range(plan.writers)
        ]
        self._transformers = [
            Transformer(servers, history, self._clock, plan, number, count)
            for number in range(plan.transformers)
        ]
        self._readers = [
            SessionReader(servers, history, self._readers_clock, plan.topics, number, plan.seed)
            for number in range(plan.readers)
        ]
        self._threads: dict[object, threading.Thread] = {}
        self._watching = threading.Event()
        self.unsettled: list[str] = []

    @property
    def errors(self) -> list[str]:
        """The errors of all clients."""
        found = [one.errors for one in self._writers]
        found += [one.errors for one in self._transformers]
        found += [one.errors for one in self._readers]
        return sorted(set(itertools.chain(*found)))

    def start(self, life_seconds: float) -> None:
        """Start the threads; readers begin again after some time."""
        for writer in self._writers:
            self._go(writer, writer.run)
        for transformer in self._transformers:
            self._go(transformer, transformer.run, 0)
        for reader in self._readers:
            self._go(reader, reader.run, life_seconds)
        self._go(self, self._watch)

    def wait(self) -> None:
        """Wait until each writer has ended a transaction: the coordinators serve."""
        for writer in self._writers:
            assert writer.has_begun.wait(SECONDS), "a writer cannot begin before the first fault"

    def _go(self, owner: object, run: Callable[..., None], *arguments: object) -> None:
        def noted() -> None:
            try:
                run(*arguments)
            except BaseException as error:
                self.unsettled.append(f"{type(owner).__name__}: {error!r}")
                raise

        thread = threading.Thread(target=noted, daemon=True)
        self._threads[owner] = thread
        thread.start()

    def _watch(self) -> None:
        """Replace a transformer whose call of librdkafka does not return."""
        while not self._watching.wait(LOOK_SECONDS):
            for one in self._transformers:
                if one.is_hung:
                    self._count(HUNG)
                    self._go(one, one.run, one.turn_over())

    def finish_writers(self) -> None:
        """Begin no transaction more, and wait until each has ended."""
        self._clock.finish()
        for writer in self._writers:
            self._threads[writer].join()
            self.unsettled += writer.unsettled

    def drain(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        """Let the transformers transform all that is committed; give the offsets of the group.

        Args:
            ends: the offsets after the last committed input of each partition.
        """
        deadline = time.monotonic() + DRAIN_SECONDS
        while True:
            places = [place for place in ends if place[0] == INPUTS]
            found = group_offsets(self._servers, self._plan.group, places)
            left = {place: end for place, end in ends.items() if found.get(place, -1) < end}
            if not left or time.monotonic() > deadline:
                break
            threading.Event().wait(LOOK_SECONDS)
        if left:
            self.unsettled.append(f"the transformers are at {found}, not at {ends}")
        return found

    def finish(self) -> None:
        """End the transformers and the readers."""
        self._watching.set()
        for one in self._transformers:
            one.is_over.set()
        self._clock.finish()
        self._readers_clock.finish()
        deadline = time.monotonic() + SECONDS
        for owner, thread in self._threads.items():
            while thread.is_alive() and not (isinstance(owner, Transformer) and owner.is_hung):
                if time.monotonic() > deadline:
                    self.unsettled.append(f"{type(owner).__name__} does not end")
                    break
                thread.join(LOOK_SECONDS)
            if thread.is_alive() and isinstance(owner, Transformer):
                self._count(HUNG)
