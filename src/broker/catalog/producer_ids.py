"""Give each producer an id that no other producer ever gets.

Producer ids are given in blocks. Before the first id of a block is given, the end of the block is
written durably to every log dir that works. After a restart, new ids are larger than the largest
end that any log dir stores. A log may come from another broker, so new ids are also larger than
every id in the logs that is below 2^61. Ids from 2^61 on are ignored: no broker has given so large
an id, but a client can write any id into its batches. If an id from 2^61 on were not ignored, no
new ids might be left.

If a log dir does not work while a block is given, it does not store the end of the block. So if
only this log dir is present at a later start, an id could be given twice. Programs that append to
the store without this broker use the ids from 2^62 on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.catalog import dir_facts
from broker.wire.client_batches import PRODUCER_IDS_END
from logstore import LogStore, LogStoreError, StoreEvent, StoreEventKind

BLOCK_IDS = 1000
EMBEDDED_IDS = PRODUCER_IDS_END
FOREIGN_IDS = 2**61  # if an id in a log is larger, a client has made it up
GIVEN_IDS = FOREIGN_IDS + 2**60  # no broker has given an id as large as this
FACT = "broker.producer_id_block_end"


class ProducerIds:
    """Give new producer ids for a store.

    Threads: `_lock` guards all fields, and is held while the end of a block is written. Only
    `_on_event` clears `_is_known` without the lock. A log dir that hangs delays this write by two
    seconds at most.
    """

    def __init__(self, store: LogStore, claim: Callable[[int], range] | None = None) -> None:
        """Store the arguments; give no id yet.

        Args:
            claim: takes the next block of ids, all of which are at least the given id. By default,
                the log dirs store which blocks were given. In a cluster, the coordination store
                stores them.
        """
        self._store = store
        self._claim = claim or self._claim_from_dirs
        self._lock = threading.Lock()
        self._next = self._end = 0
        self._floor_seen = 0  # each id that `skip` got is lower than this
        self._is_known = False  # whether the largest id in the logs was read
        store.add_listener(self._on_event)

    def close(self) -> None:
        """Stop listening to the store."""
        self._store.remove_listener(self._on_event)

    def take(self) -> int:
        """Return an id that no producer has.

        Raises:
            LogStoreError: no log dir could store the end of the next block.
        """
        with self._lock:
            if not self._is_known:
                self._is_known = True
                floor = self._floor()
                if floor > self._end:  # otherwise, `_next` continues in the present block
                    self._next = self._end = floor
            if self._next >= self._end:
                block = self._claim(self._next)
                self._next, self._end = block.start, block.stop
            self._next += 1
            return self._next - 1

    def skip(self, producer_id: int) -> None:
        """From now on, give only ids above this id, because a producer has it."""
        if producer_id >= FOREIGN_IDS:
            return
        with self._lock:
            if producer_id >= self._end:
                self._floor_seen = max(self._floor_seen, producer_id + 1)
                self._is_known = False

    def _claim_from_dirs(self, first: int) -> range:
        dir_facts.remember(self._store, FACT, first + BLOCK_IDS)
        return range(first, first + BLOCK_IDS)

    def _floor(self) -> int:
        """Return the smallest number that is above every known id."""
        stored = [one for one in dir_facts.values(self._store, FACT) if isinstance(one, int)]
        known = (*[one for one in stored if one < GIVEN_IDS], self._floor_seen)
        return max(*known, *map(self._end_of_log, self._store), 0)

    def _end_of_log(self, key: tuple[str, int]) -> int:
        try:
            states = self._store.log(*key).producer_states()
        except LogStoreError:  # the log is read again when its log dir returns
            return 0
        ids = [state.producer_id for state in states if state.producer_id < FOREIGN_IDS]
        return max(ids, default=-1) + 1

    def _on_event(self, event: StoreEvent) -> None:
        if event.kind in (StoreEventKind.LOG_DIR_RETURNED, StoreEventKind.LOG_DIR_ADDED):
            self._is_known = False
